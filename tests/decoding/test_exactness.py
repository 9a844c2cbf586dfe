"""Accept, or draw from the residual: over many pictures of the counter generator the target's distribution comes out.

The same test must fail where the residual is wrong, or it would show nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from distributions import Floats, outcome, table
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import CSD, LANTERN, Amplify, Lossless, Rule
from pixdraft.decoding.sampling import probabilities, sample_block
from pixdraft.decoding.sparse import sparsify

PICTURES = 250_000
SEEDS = np.arange(PICTURES, dtype=np.uint64)
Q = probabilities(np.array([1.0, 0.2, -0.4, 2.0, 0.0, -2.0, 0.7, 1.3]))
P = probabilities(np.array([0.0, 1.2, -0.9, 1.1, 0.4, -1.0, 2.0, 0.1]))


class KeepsTheTarget(Lossless):
    """Wrong on purpose: draws from q itself after a reject."""

    def residuals(self, q: Floats, p: Floats, tokens: object) -> Floats:
        return q


class Mirrored(Lossless):
    """Wrong on purpose: draws from norm(max(0, p - q))."""

    def residuals(self, q: Floats, p: Floats, tokens: object) -> Floats:
        return super().residuals(p, q, tokens)  # type: ignore[arg-type]


def judged(rule: Rule, q: Floats, p: Floats, position: int) -> Floats:
    """How often each code came out of one position, over all pictures."""
    draft = sample_block(p, rng.uniforms(SEEDS, position, rng.DRAFT))
    b, residual = table(rule, q, p)
    token = sample_block(residual[draft], rng.uniforms(SEEDS, position, rng.RESIDUAL))
    accepted = rng.uniforms(SEEDS, position, rng.ACCEPT) < b[draft]
    return np.bincount(np.where(accepted, draft, token), minlength=len(q)).astype(np.float64)


@pytest.mark.parametrize("position", [0, 255])
def test_lossless_draws_the_target(position: int) -> None:
    assert stats.chisquare(judged(Lossless(), Q, P, position), PICTURES * Q).pvalue > 1e-3


def test_lossless_draws_the_target_from_a_truncated_draft() -> None:
    counts = judged(Lossless(), Q, sparsify(P, 3).dense(len(P)), 17)
    assert stats.chisquare(counts, PICTURES * Q).pvalue > 1e-3


@pytest.mark.parametrize("rule", [KeepsTheTarget(), Mirrored(), Amplify(1.3)])
def test_a_wrong_residual_or_a_relaxed_rule_is_caught(rule: Rule) -> None:
    assert stats.chisquare(judged(rule, Q, P, 0), PICTURES * Q).pvalue < 1e-12


@pytest.mark.parametrize("rule", [CSD(0.1, 0.9), LANTERN(np.random.default_rng(1).normal(size=(8, 2)), 4, 0.2)])
def test_a_relaxed_rule_draws_what_it_says(rule: Rule) -> None:
    made, _ = outcome(rule, Q, P)
    assert stats.chisquare(judged(rule, Q, P, 3), PICTURES * made).pvalue > 1e-3
