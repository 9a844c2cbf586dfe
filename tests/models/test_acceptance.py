"""Every acceptance rule in torch says what it says in numpy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from distributions import Floats, distribution
from pixdraft.decoding import sampling
from pixdraft.decoding.acceptance import CSD, GSD, LANTERN, RULES, Lossless, Rule, create
from pixdraft.models import acceptance as twin

PARAMETERS: dict[str, st.SearchStrategy[dict[str, float]]] = {
    "lossless": st.just({}),
    "csd": st.fixed_dictionaries({"lam": st.floats(0, 2), "delta": st.floats(0, 1)}),
    "addition": st.fixed_dictionaries({"epsilon": st.floats(0, 1)}),
    "amplify": st.fixed_dictionaries({"factor": st.floats(1, 9)}),
    "gsd": st.fixed_dictionaries({"group": st.integers(1, 60), "distance": st.floats(0, 9), "gap": st.floats(0, 1)}),
    "lantern": st.fixed_dictionaries({"k": st.integers(1, 30), "delta": st.floats(0, 1)}),
    "lantern++": st.fixed_dictionaries({"k": st.integers(1, 30), "lam": st.floats(1, 20)}),
    "cool": st.fixed_dictionaries({"weight": st.floats(1, 4), "decay": st.floats(0, 1)}),
}
Block = tuple[Floats, Floats, NDArray[np.int64]]


@st.composite
def block(draw: st.DrawFn) -> Block:
    """Targets, drafts and tokens of a block of up to four."""
    size, n = draw(st.integers(2, 24)), draw(st.integers(0, 4))
    q = [draw(distribution(size)) for _ in range(n)]
    p = [row.copy() if draw(st.integers(0, 9)) == 0 else draw(distribution(size)) for row in q]
    tokens = [draw(st.integers(0, size - 1)) for _ in range(n)]
    return np.reshape(q, (n, size)), np.reshape(p, (n, size)), np.array(tokens, np.int64)


@st.composite
def codebook(draw: st.DrawFn, size: int) -> Floats:
    """Codes in general position, or on a small grid, where many are equally near and some are the same."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    width = draw(st.sampled_from([1, 3, 8]))
    return rng.normal(size=(size, width)) if draw(st.booleans()) else rng.integers(0, 3, (size, width)) / 3.0


def in_torch(q: Floats, p: Floats, tokens: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(q), torch.from_numpy(p), torch.from_numpy(tokens)


def test_parameters_are_drawn_for_every_rule() -> None:
    assert set(PARAMETERS) == set(RULES)


@pytest.mark.parametrize("name", RULES)
@given(data=st.data(), drawn=block())
def test_the_twins_agree(name: str, data: st.DataObject, drawn: Block) -> None:
    q, p, tokens = drawn
    codes = data.draw(codebook(q.shape[1])) if RULES[name].needs_codebook or data.draw(st.booleans()) else None
    rule = create(name, data.draw(PARAMETERS[name]), codes)
    if isinstance(rule, CSD):  # where the gate jumps, rounding decides
        assume((np.abs(sampling.total_variation(p, q) - rule.delta) > 1e-9).all())
    first = data.draw(st.integers(0, 20))
    b = twin.probabilities(rule, *in_torch(q, p, tokens), first)
    residual = twin.residuals(rule, *in_torch(q, p, tokens))
    assert (b.dtype, residual.dtype) == (torch.float64, torch.float64)
    np.testing.assert_allclose(b.numpy(), rule.probabilities(q, p, tokens, first), rtol=0, atol=1e-9)
    np.testing.assert_allclose(residual.numpy(), rule.residuals(q, p, tokens), rtol=0, atol=1e-9)


@given(block())
def test_entropy_and_total_variation_agree(drawn: Block) -> None:
    (q, p, _), (q_there, p_there, _) = drawn, in_torch(*drawn)
    np.testing.assert_allclose(twin.entropy(q_there).numpy(), sampling.entropy(q), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        twin.total_variation(p_there, q_there).numpy(), sampling.total_variation(p, q), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", RULES)
def test_agree_over_a_whole_vocabulary(name: str) -> None:
    rng = np.random.default_rng(5)
    q, p = (sampling.probabilities(rng.normal(size=(16, 4096)) * 2) for _ in range(2))
    tokens = sampling.sample_block(p, rng.random(16))
    codes = rng.normal(size=(4096, 8))
    rule = create(name, codebook=codes / np.linalg.norm(codes, axis=1, keepdims=True))
    blocks = in_torch(q, p, tokens)
    b, residual = twin.probabilities(rule, *blocks), twin.residuals(rule, *blocks)
    np.testing.assert_allclose(b.numpy(), rule.probabilities(q, p, tokens), rtol=0, atol=1e-9)
    np.testing.assert_allclose(residual.numpy(), rule.residuals(q, p, tokens), rtol=0, atol=1e-9)


def test_float32_is_taken_and_kept() -> None:
    q, p = (torch.rand(3, 8).softmax(-1) for _ in range(2))
    rule = create("lantern", {"k": 3}, np.random.default_rng(0).normal(size=(8, 2)))
    assert twin.probabilities(rule, q, p, torch.tensor([0, 7, 3])).dtype == torch.float32
    np.testing.assert_allclose(twin.residuals(rule, q, p, torch.tensor([0, 7, 3])).sum(-1).numpy(), 1, atol=1e-6)


def test_the_codebook_is_copied_once_and_forgotten_with_the_rule() -> None:
    held = len(twin._COPIES)
    codes = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    q = torch.full((1, 8), 0.125, dtype=torch.float64)

    def judge_thrice() -> None:
        rule = LANTERN(codes, k=2)
        for _ in range(3):
            twin.probabilities(rule, q, q, torch.tensor([1]))
        assert len(twin._COPIES) == held + 1

    judge_thrice()
    gc.collect()
    assert len(twin._COPIES) == held


def test_what_does_not_fit_is_named() -> None:
    q = torch.full((2, 4), 0.25, dtype=torch.float64)
    x = torch.tensor([0, 1])
    for call in (twin.probabilities, twin.residuals):
        with pytest.raises(ValueError, match=r"are \[\(2, 4\), \(2, 4\), \(1,\)\]: they must be \[n, V\]"):
            call(Lossless(), q, q, x[:1])
        with pytest.raises(ValueError, match=r"torch\.float32 and torch\.int64: give floats twice"):
            call(Lossless(), q, q.float(), x)
        with pytest.raises(ValueError, match="and int64"):
            call(Lossless(), q, q, x.int())
    with pytest.raises(ValueError, match="gsd: the codebook has 3 codes and q has 4"):
        twin.probabilities(GSD(codebook=np.zeros((3, 2))), q, q, x)


def test_a_rule_without_a_twin_says_so() -> None:
    class Stubborn(Rule):
        name = "stubborn"

        def probabilities(self, q: Any, p: Any, tokens: Any, first: int = 0) -> Floats:
            return np.zeros(len(q))

    q = torch.full((1, 4), 0.25, dtype=torch.float64)
    with pytest.raises(TypeError, match="'stubborn' has no twin in torch"):
        twin.probabilities(Stubborn(), q, q, torch.tensor([0]))
