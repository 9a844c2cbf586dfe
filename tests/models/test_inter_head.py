"""The draft and its heads: InterFuse against numpy's, where it starts from, its cache, its message."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pixdraft.decoding import intervals
from pixdraft.models.conditions import WordCondition
from pixdraft.models.inter_head import Conditioning, DraftTransformer, fuse
from pixdraft.models.transformer import StaticCache
from pixdraft.training.vocabulary import words
from tiny import BOTTLENECK, SHAPE, Networks

CONDITION = torch.tensor([[0] * 7 + [3, 1, 2]])


@pytest.mark.parametrize("gap", [0.0, 5.0, 20.0, 45.0])
@pytest.mark.parametrize("radius", [0.0, 0.1, 3.0])
def test_fuse_equals_the_numpy_one(gap: float, radius: float) -> None:
    """Also where one logit holds nearly everything, and 1 - s would lose all its digits."""
    rng = np.random.default_rng(1)
    center = rng.normal(size=(5, 16))
    center[:, 3] += gap
    half = radius * rng.uniform(size=(5, 16))
    lower, upper = fuse(torch.from_numpy(center), torch.from_numpy(half))
    expected = intervals.fuse(center, half)
    np.testing.assert_allclose(lower.numpy(), expected[0], rtol=1e-9)
    np.testing.assert_allclose(upper.numpy(), expected[1], rtol=1e-9)
    single = fuse(torch.from_numpy(center).float(), torch.from_numpy(half).float())
    np.testing.assert_allclose(single[0].numpy(), expected[0], rtol=1e-4)
    np.testing.assert_allclose(single[1].numpy(), expected[1], rtol=1e-4)


@pytest.mark.parametrize("gap", [0.0, 60.0, 300.0])
def test_fuse_has_finite_gradients(gap: float) -> None:
    center = torch.zeros(2, 8)
    center[:, 0] = gap
    center, radius = center.requires_grad_(), torch.full((2, 8), 0.5).requires_grad_()
    lower, upper = fuse(center, radius)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    for gradient in torch.autograd.grad((upper - lower).sum(), (center, radius)):
        assert gradient.isfinite().all()


def test_the_radius_starts_at_one_small_value() -> None:
    torch.manual_seed(0)
    draft = DraftTransformer(DraftTransformer.shape(SHAPE), WordCondition(4, SHAPE.condition_length, SHAPE.dim))
    _, radius = draft.intervals(torch.randn(3, SHAPE.dim))
    torch.testing.assert_close(radius, torch.full_like(radius, F.softplus(torch.tensor(-2.0)).item()))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_draft_starts_from_its_target(parts: Networks, layers: int) -> None:
    target = parts.target
    shape = DraftTransformer.shape(target.config, layers)
    assert (shape.layers, shape.dim, shape.vocab_size) == (layers, SHAPE.dim, SHAPE.vocab_size)
    draft = DraftTransformer(shape, WordCondition(len(words()), shape.condition_length, shape.dim)).eval()
    draft.start_from(target)
    own, theirs = draft.decoder.state_dict(), target.state_dict()
    assert all(torch.equal(own[name], theirs[name]) for name in own)
    assert len([name for name in own if name.startswith("layers.1.")]) == (7 if layers == 2 else 0)
    if layers == target.config.layers:
        tokens = torch.tensor([[3, 5, 1]])
        torch.testing.assert_close(draft.decoder(CONDITION, tokens), target(CONDITION, tokens))


def test_the_untouched_cloud_is_the_start() -> None:
    assert not Conditioning(BOTTLENECK, SHAPE.dim)(torch.randn(5, BOTTLENECK)).any()


def test_step_by_step_equals_a_full_pass(parts: Networks) -> None:
    draft = parts.draft
    tokens = torch.randint(0, 16, (1, 16), generator=torch.Generator().manual_seed(1))
    cache = StaticCache(draft.config, 1)
    state, valid = draft.prefill(CONDITION, cache)
    states = [state]
    position = 0
    for count in (1, 1, 4, 1, 9):
        states.append(draft.step(tokens[:, position : position + count], position, valid, cache))
        position += count
    together = torch.cat(states, 1)
    torch.testing.assert_close(together, draft.decoder.hidden(CONDITION, tokens), atol=1e-5, rtol=1e-5)


def test_heads_say_what_they_should(parts: Networks) -> None:
    draft = parts.draft
    feature = draft.decoder.hidden(CONDITION, torch.tensor([[3, 5, 1]]))[0]
    row = draft.heads(feature)
    assert torch.equal(row.feature, feature)
    assert (row.center.shape, row.radius.shape) == ((4, 16), (4, 16))
    assert (row.risk.shape, row.message.shape) == ((4,), (4, BOTTLENECK))
    torch.testing.assert_close(row.center, feature @ draft.decoder.output.weight.T)
    assert (row.radius > 0).all()
    assert ((row.risk > 0) & (row.risk < 1)).all()
    lower, upper = intervals.fuse(row.center.numpy(), row.radius.numpy())
    table = draft.decoder.tok_embeddings.weight.double().numpy()
    seen = np.concatenate([feature.double().numpy(), lower @ table, upper @ table], axis=-1)
    z = seen @ draft.phi_down.weight.double().numpy().T
    np.testing.assert_allclose(row.message.numpy(), z / (1.0 + np.exp(-z)), atol=1e-5)  # silu(W1 [f ; l E ; u E])


def test_the_risk_head_sees_how_sure_the_draft_is(parts: Networks) -> None:
    feature = torch.zeros(2, SHAPE.dim)
    sure, unsure = torch.zeros(16), torch.zeros(16)
    sure[2] = 30.0
    risk = parts.draft.risk(feature, torch.stack([sure, unsure]))
    assert risk.isfinite().all()
    assert risk[0] != risk[1]
