from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributions import Floats, outcome, pair, table
from pixdraft.decoding.acceptance import COOL, CSD, Addition, Amplify, Lossless, Rule
from pixdraft.decoding.sampling import entropy, total_variation

LOSSLESS = Lossless()
RELAXED = st.one_of(
    st.builds(CSD, st.floats(0, 1), st.floats(0, 1)),
    st.builds(Addition, st.floats(0, 1)),
    st.builds(Amplify, st.floats(1, 10)),
    st.builds(COOL, st.floats(1, 4), st.floats(0, 1)),
)


@given(pair())
def test_lossless_gives_exactly_the_target(drawn: tuple[Floats, Floats]) -> None:
    q, p = drawn
    made, rejected = outcome(LOSSLESS, q, p)
    np.testing.assert_allclose(made, q, atol=1e-12)
    assert rejected == pytest.approx(float(total_variation(p, q)), abs=1e-12)


@given(pair(), RELAXED)
def test_probabilities_and_residuals_are_proper(drawn: tuple[Floats, Floats], rule: Rule) -> None:
    q, p = drawn
    b, residual = table(rule, q, p)
    assert ((b >= 0) & (b <= 1)).all()
    assert (residual >= 0).all()
    np.testing.assert_allclose(residual.sum(axis=1), 1, atol=1e-12)


@given(pair(), RELAXED)
def test_a_relaxation_never_rejects_more(drawn: tuple[Floats, Floats], rule: Rule) -> None:
    q, p = drawn
    assert (table(rule, q, p)[0] >= table(LOSSLESS, q, p)[0]).all()


@given(pair(), RELAXED)
def test_rejection_and_error_make_up_the_total_variation(drawn: tuple[Floats, Floats], rule: Rule) -> None:
    # CSD, theorem 3.2, holds for every b >= min(1, q / p) with this residual
    q, p = drawn
    made, rejected = outcome(rule, q, p)
    assert rejected + total_variation(made, q) == pytest.approx(float(total_variation(p, q)), abs=1e-12)


@given(pair(), RELAXED)
def test_a_block_is_its_tokens_one_by_one(drawn: tuple[Floats, Floats], rule: Rule) -> None:
    q, p = drawn
    targets, drafts = np.stack([q, p, q]), np.stack([p, q, p])
    tokens = [0, 1, len(q) - 1]
    b, residual = rule.probabilities(targets, drafts, tokens), rule.residuals(targets, drafts, tokens)
    for i, (target, draft, token) in enumerate(zip(targets, drafts, tokens, strict=True)):
        assert rule.probability(target, draft, token, i) == b[i]
        np.testing.assert_array_equal(rule.residual(target, draft, token), residual[i])


def test_where_nothing_is_left_the_residual_is_the_target() -> None:
    q = np.array([0.25, 0.75])
    assert LOSSLESS.residual(q, q, 0).tolist() == q.tolist()


def test_tokens_that_one_side_never_draws() -> None:
    q, p = np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.5, 0.0, 0.5, 0.0])
    assert [LOSSLESS.probability(q, p, x) for x in range(4)] == [0, 1, 1, 0]
    assert LOSSLESS.residual(q, p, 0).tolist() == [0, 1, 0, 0]
    tiny = np.array([1.0, 5e-324])
    assert LOSSLESS.probability(tiny[::-1], tiny, 1) == 1


def test_csd_opens_only_inside_its_gate() -> None:
    q, p = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert total_variation(p, q) == pytest.approx(0.3)
    opened = 0.4 + 0.05 * float(entropy(q))
    assert CSD(0.05, 0.31).probability(q, p, 2) == pytest.approx(opened)
    assert CSD(0.05, 0.29).probability(q, p, 2) == pytest.approx(0.4)
    assert CSD(0.0, 1.0).probability(q, p, 2) == pytest.approx(0.4)


def test_two_nats_open_csd_wholly_at_the_published_lambda() -> None:
    q = np.full(8, 1 / 8)  # ln 8 = 2.08 nats
    p = np.roll(np.array([0.3] + [0.1] * 7), 2)
    assert CSD(0.5, 0.65).probabilities(np.tile(q, (8, 1)), np.tile(p, (8, 1)), np.arange(8)).tolist() == [1.0] * 8


def test_cool_falls_to_the_lossless_rule() -> None:
    q, p = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    weights = [COOL(1.5, 0.8).probability(q, p, 0, i) / 0.5 for i in range(4)]
    assert weights == pytest.approx([1.5, 1.4, 1.32, 1.256])
    assert COOL(1.5, 0.8).probability(q, p, 0, 500) == pytest.approx(0.5)
    assert COOL(1.3, 1.0).probability(q, p, 0, 7) == Amplify(1.3).probability(q, p, 0)
    assert COOL(1.0).probability(q, p, 0) == LOSSLESS.probability(q, p, 0)


def test_shapes_and_tokens_are_checked() -> None:
    q = np.ones((2, 4)) / 4
    with pytest.raises(ValueError, match=r"\[n, V\]"):
        LOSSLESS.probabilities(q, q[:, :3], [0, 1])
    with pytest.raises(ValueError, match=r"\[n, V\]"):
        LOSSLESS.residuals(q, q, [0])
    with pytest.raises(ValueError, match="0 to 3"):
        LOSSLESS.probabilities(q, q, [0, 4])
    with pytest.raises(ValueError, match="0 to 3"):
        LOSSLESS.probability(q[0], q[0], -1)
