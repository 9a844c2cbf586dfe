"""The stages on networks of a few thousand parameters: they learn, and stopping one changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pixdraft.decoding.statistics import STATISTICS
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer, to_float
from pixdraft.models.transformer import Transformer
from pixdraft.training import recipes
from pixdraft.training.corpus import guided_distribution
from pixdraft.training.losses import BOUND_LOSSES, InterDRO, total_variation
from pixdraft.training.scenes import SceneStream
from pixdraft.training.sprites import Sprites, names
from pixdraft.training.train_decoder import DecoderRecipe, train_decoder
from pixdraft.training.train_draft import DraftRecipe, PrefixBatches, new_draft, train_draft
from pixdraft.training.train_heads import States, collect, train_bounds, train_risk
from pixdraft.training.train_phi import PhiRecipe, device_prefix, train_phi
from pixdraft.training.train_target import TargetRecipe, TokenBatches, train_target
from pixdraft.training.train_tokenizer import CodeUsage, TokenizerRecipe, reconstruction_loss, train_tokenizer
from pixdraft.training.vocabulary import CONDITION_LENGTH
from tiny import SHAPE, decoder, frozen

PIXELS = VQConfig(4, (1, 1, 1, 1, 1), 1, 4, 16, 4, 2)  # 64 pixels to 4 x 4 tokens
SMALL = TransformerConfig(
    dim=32, layers=1, heads=2, ffn_dim=32, vocab_size=16, grid=4, condition_length=CONDITION_LENGTH
)
TOKENIZER = TokenizerRecipe(steps=4, batch=2, reseed_every=2, reseed_until=1.0)
TARGET = TargetRecipe(steps=4, batch=2, unconditional=0.5)
DRAFT = DraftRecipe(steps=3, batch=2, layers=(1, 2))


class Interrupted(SceneStream):
    """A stream at whose `at`-th batch Ctrl-C is pressed."""

    def __init__(self, stream: SceneStream, at: int) -> None:
        super().__init__(stream.sprites, stream.names, stream.seed)
        self.left = at

    def batch(self, start: int, count: int):  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().batch(start, count)


@pytest.fixture
def stream(sprites: Sprites) -> SceneStream:
    return SceneStream(sprites, names(), 1)


@pytest.fixture
def tokenizer() -> VQTokenizer:
    torch.manual_seed(0)
    return frozen(VQTokenizer(PIXELS))


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_the_tokenizer_s_run_can_be_stopped(stream: SceneStream, tmp_path: Path) -> None:
    unbroken = train_tokenizer(tmp_path / "unbroken", stream, PIXELS, TOKENIZER)
    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(tmp_path / "stopped", Interrupted(stream, at=3), PIXELS, TOKENIZER)
    resumed = train_tokenizer(tmp_path / "stopped", stream, PIXELS, TOKENIZER)
    assert equal(resumed, unbroken)
    assert not resumed.training
    torch.manual_seed(TOKENIZER.seed)
    assert not equal(VQTokenizer(PIXELS), unbroken)


def test_the_decoder_s_run_can_be_stopped(stream: SceneStream, tmp_path: Path) -> None:
    recipe = DecoderRecipe(steps=4, batch=2)

    def train(folder: Path, scenes: SceneStream) -> VQTokenizer:
        torch.manual_seed(0)
        return train_decoder(folder, scenes, frozen(VQTokenizer(PIXELS)), recipe)

    unbroken = train(tmp_path / "unbroken", stream)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", Interrupted(stream, at=3))
    assert equal(train(tmp_path / "stopped", stream), unbroken)
    torch.manual_seed(0)
    before = VQTokenizer(PIXELS)
    assert equal(before.encoder, unbroken.encoder)
    assert equal(before.quantize, unbroken.quantize)
    assert equal(before.quant_conv, unbroken.quant_conv)
    assert not equal(before.decoder, unbroken.decoder)
    assert not equal(before.post_quant_conv, unbroken.post_quant_conv)


@pytest.mark.usefixtures("eager")
def test_the_target_s_run_can_be_stopped(stream: SceneStream, tokenizer: VQTokenizer, tmp_path: Path) -> None:
    unbroken = train_target(tmp_path / "unbroken", stream, tokenizer, SMALL, TARGET)
    with pytest.raises(KeyboardInterrupt):
        train_target(tmp_path / "stopped", Interrupted(stream, at=2), tokenizer, SMALL, TARGET)
    assert equal(train_target(tmp_path / "stopped", stream, tokenizer, SMALL, TARGET), unbroken)
    with pytest.raises(ValueError, match="holds a run with other settings"):
        train_target(tmp_path / "stopped", stream, tokenizer, SMALL, replace(TARGET, steps=5))


@pytest.mark.usefixtures("eager")
def test_the_drafts_run_can_be_stopped(stream: SceneStream, tokenizer: VQTokenizer, tmp_path: Path) -> None:
    torch.manual_seed(0)
    target = decoder(SHAPE)
    condition, tokens = TokenBatches(stream, tokenizer, 1).batch(100, 4)

    def train(folder: Path, scenes: SceneStream) -> dict[int, DraftTransformer]:
        batches = PrefixBatches(TokenBatches(scenes, tokenizer, DRAFT.seed), condition, tokens, DRAFT.own_share)
        return train_draft(folder, target, batches, DRAFT)

    before = {name: value.clone() for name, value in target.state_dict().items()}
    unbroken = train(tmp_path / "unbroken", stream)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", Interrupted(stream, at=2))
    resumed = train(tmp_path / "stopped", stream)
    assert {n: d.config.layers for n, d in resumed.items()} == {1: 1, 2: 2}
    for layers, draft in resumed.items():
        assert equal(draft, unbroken[layers])
        assert not equal(draft.decoder.layers[0], target.layers[0])
        assert equal(draft.radius, new_draft(target, layers).radius)  # heads learn later
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_batches_are_scenes_as_tokens(stream: SceneStream, tokenizer: VQTokenizer) -> None:
    condition, tokens = TokenBatches(stream, tokenizer, 1).batch(6, 3)
    assert (condition.shape, tokens.shape) == ((3, CONDITION_LENGTH), (3, 16))
    assert condition.dtype == tokens.dtype == torch.int64
    again = TokenBatches(stream, tokenizer, 1).batch(6, 3)
    assert torch.equal(again[0], condition)
    assert torch.equal(again[1], tokens)


def test_batches_for_the_draft_are_half_the_target_s_own(stream: SceneStream, tokenizer: VQTokenizer) -> None:
    own = torch.full((5, CONDITION_LENGTH), 1), torch.full((5, 16), 3)
    batches = PrefixBatches(TokenBatches(stream, tokenizer, 1), *own, own_share=0.5)
    condition, tokens = batches.batch(2, 4, torch.Generator().manual_seed(0))
    assert (condition[:2] == 1).all()
    assert (tokens[:2] == 3).all()
    expected = batches.scenes.batch(8, 2)
    assert torch.equal(condition[2:], expected[0])
    assert torch.equal(tokens[2:], expected[1])


def test_dead_codes_are_found() -> None:
    usage = CodeUsage(4)
    for _ in range(3):
        usage.update(torch.tensor([[0, 0, 2]]))
    kept = usage.state_dict()["count"]
    torch.testing.assert_close(kept, torch.tensor([2.0, 0.0, 1.0, 0.0]) * (1 + 0.99 + 0.99**2))
    other = CodeUsage(4)
    other.load_state_dict({"count": kept.clone()})
    assert torch.equal(other.count, kept)


def test_reconstruction_looks_at_edges_too() -> None:
    flat, edge = torch.full((1, 3, 4, 4), 0.5), torch.full((1, 3, 4, 4), 0.5)
    edge[..., ::2] = -0.5
    nothing = torch.zeros(1, 3, 4, 4)
    assert reconstruction_loss(flat, nothing).item() == pytest.approx(0.5 + 2 * 0.25)
    assert reconstruction_loss(edge, nothing).item() == pytest.approx(0.5 + 2 * 0.25 + 0.5 * 1.0)
    assert reconstruction_loss(nothing, nothing).item() == 0.0


@pytest.fixture(scope="module")
def pair() -> tuple[Transformer, DraftTransformer]:
    """A target of two layers and its untrained draft of one."""
    torch.manual_seed(3)
    target = decoder(SHAPE)
    return target, frozen(new_draft(target, 1))


@pytest.fixture(scope="module")
def drawn() -> tuple[Tensor, Tensor]:
    """Prompts and tokens of twelve pictures."""
    rng = torch.Generator().manual_seed(4)
    ids = torch.randint(1, 50, (12, CONDITION_LENGTH), generator=rng)
    ids[:, :6] = 0
    return ids, torch.randint(0, 16, (12, 16), generator=rng)


@pytest.fixture(scope="module")
def states(pair: tuple[Transformer, DraftTransformer], drawn: tuple[Tensor, Tensor]) -> States:
    return collect(*pair, *drawn, guidance=2.0, batch=5)


def test_states_are_those_of_every_position(
    pair: tuple[Transformer, DraftTransformer], drawn: tuple[Tensor, Tensor], states: States
) -> None:
    target, draft = pair
    assert (states.feature.shape, states.q.shape) == ((192, SHAPE.dim), (192, 16))
    assert states.feature.dtype == states.q.dtype == torch.float16
    feature, q = states.take(torch.tensor([5 * 16 + 7]))
    condition, tokens = (part[5:6] for part in drawn)
    expected = draft.decoder.hidden(condition, tokens[:, :-1])[0, 7]
    torch.testing.assert_close(feature[0], expected, atol=5e-3, rtol=5e-3)
    expected = guided_distribution(target, condition, tokens, 2.0)[0, 7]
    torch.testing.assert_close(q[0], expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("name", BOUND_LOSSES)
def test_bounds_learn_and_leave_the_draft_alone(
    pair: tuple[Transformer, DraftTransformer], states: States, name: str
) -> None:
    draft = pair[1]
    before = {key: value.clone() for key, value in draft.state_dict().items()}
    feature, q = states.take(torch.arange(192))
    center = draft.decoder.output(feature)

    def loss(head: nn.Linear) -> float:
        with torch.no_grad():
            return BOUND_LOSSES[name](q, center, nn.functional.softplus(head(feature)), InterDRO()).item()

    untrained, trained = (train_bounds(draft, states, name, InterDRO(), steps=n, size=64) for n in (0, 40))
    assert loss(trained) < loss(untrained)
    assert equal(trained, train_bounds(draft, states, name, InterDRO(), steps=40, size=64))
    assert all(torch.equal(value, before[key]) for key, value in draft.state_dict().items())


def test_the_risk_head_learns_the_total_variation(pair: tuple[Transformer, DraftTransformer], states: States) -> None:
    draft = pair[1]
    feature, q = states.take(torch.arange(192))
    center = draft.decoder.output(feature)
    truth = total_variation(q, center)
    torch.manual_seed(0)
    head = train_risk(draft, states, steps=120, size=128)
    with torch.no_grad():
        error = (head(feature, center) - truth).square().mean()
    assert error < 0.7 * truth.var()  # better than the best constant


def test_device_draws_stand_where_the_risk_is_least(
    pair: tuple[Transformer, DraftTransformer], drawn: tuple[Tensor, Tensor]
) -> None:
    draft = pair[1]
    condition, tokens = drawn
    prefix, own = device_prefix(draft, condition, tokens, 0.7, torch.Generator().manual_seed(1))
    assert own.float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert torch.equal(prefix[~own], tokens[~own])
    assert (prefix[own] != tokens[own]).float().mean() > 0.3
    features = draft.decoder.hidden(condition, tokens[:, :-1])
    risk = draft.risk(features, draft.decoder.output(features))
    assert risk[own].max() <= risk[~own].min()


def test_phi_starts_at_the_untouched_cloud(
    pair: tuple[Transformer, DraftTransformer], drawn: tuple[Tensor, Tensor]
) -> None:
    before = [{k: v.clone() for k, v in network.state_dict().items()} for network in pair]

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        return drawn[0][:4], drawn[1][:4]

    recipe = PhiRecipe(steps=12, batch=4, rate=0.05)
    phis, rows = train_phi(*pair, batch_of, recipe, widths=(3, 8))
    assert {width: phi.down.weight.shape for width, phi in phis.items()} == {3: (3, 96), 8: (8, 96)}
    assert rows[0]["none"] == rows[0]["width 3"] == rows[0]["width 8"] > 0
    last = rows[-4:]
    for width in ("width 3", "width 8"):
        assert sum(row[width] for row in last) < sum(row["none"] for row in last)
    for network, state in zip(pair, before, strict=True):
        assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


def test_thresholds_ask_about_the_wanted_share(
    pair: tuple[Transformer, DraftTransformer], drawn: tuple[Tensor, Tensor]
) -> None:
    tables = recipes.thresholds(pair[1], *drawn)
    assert set(tables) == set(STATISTICS) - {"random"}
    draft, (condition, tokens) = pair[1], drawn
    features = draft.decoder.hidden(condition, tokens[:, :-1])
    center = draft.decoder.output(features)
    values = draft.risk(features, center).flatten().numpy()
    for rate, tau in tables["risk"]:
        assert np.mean(values >= tau - 1e-6) == pytest.approx(rate, abs=0.02)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (recipes.tokenizer, "sprites.npz is missing: run `pixdraft train data` first"),
        (recipes.load_tokenizer, "run `pixdraft train tokenizer` first"),
        (recipes.load_target, "run `pixdraft train target` first"),
        (recipes.draft, "run `pixdraft train target` first"),
        (recipes.eagle, "run `pixdraft train target` first"),
        (recipes.load_heads, "run `pixdraft train draft` first"),
        (recipes.weights, "run `pixdraft train target` first"),
    ],
)
def test_a_stage_that_comes_too_early(tmp_path: Path, stage: Callable[[Path], object], said: str) -> None:
    with pytest.raises(FileNotFoundError, match=said):
        stage(tmp_path)


def test_pictures_reach_the_networks_as_they_are(stream: SceneStream) -> None:
    pixels, _ = stream.batch(0, 2)
    planes = to_float(torch.from_numpy(pixels))
    np.testing.assert_array_equal(((planes + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy(), pixels)
