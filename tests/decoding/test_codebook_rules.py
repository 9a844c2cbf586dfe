from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributions import Floats, distribution, outcome, table
from pixdraft.decoding.acceptance import GSD, LANTERN, LANTERNPlusPlus, Lossless, Rule, RuleError
from pixdraft.decoding.codebook_rules import nearest

LINE = np.arange(6.0)[:, None]  # codes on a line: neighbours are known by sight


@st.composite
def judged(draw: st.DrawFn) -> tuple[Rule, Floats, Floats]:
    size = draw(st.integers(2, 16))
    codebook = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(size, 3))
    rule = draw(
        st.sampled_from(
            [
                GSD(draw(st.integers(1, 9))),
                GSD(draw(st.integers(1, 9)), codebook=codebook),
                LANTERN(codebook, k=draw(st.integers(1, 20)), delta=draw(st.floats(0, 1))),
                LANTERNPlusPlus(codebook, k=draw(st.integers(1, 20)), lam=draw(st.floats(1, 20))),
            ]
        )
    )
    return rule, draw(distribution(size)), draw(distribution(size))


@given(judged())
def test_probabilities_and_residuals_are_proper(drawn: tuple[Rule, Floats, Floats]) -> None:
    rule, q, p = drawn
    b, residual = table(rule, q, p)
    assert ((b >= 0) & (b <= 1)).all()
    assert (residual >= 0).all()
    np.testing.assert_allclose(residual.sum(axis=1), 1, atol=1e-12)
    assert outcome(rule, q, p)[0].sum() == pytest.approx(1, abs=1e-12)


@given(judged())
def test_a_block_is_its_tokens_one_by_one(drawn: tuple[Rule, Floats, Floats]) -> None:
    rule, q, p = drawn
    targets, drafts, tokens = np.stack([q, p]), np.stack([p, q]), [1, 0]
    b, residual = rule.probabilities(targets, drafts, tokens), rule.residuals(targets, drafts, tokens)
    assert b.tolist() == [rule.probability(q, p, 1), rule.probability(p, q, 0)]
    np.testing.assert_array_equal(residual[1], rule.residual(p, q, 0))


@given(judged())
def test_lantern_borrows_within_its_bound(drawn: tuple[Rule, Floats, Floats]) -> None:
    rule, q, p = drawn
    if isinstance(rule, GSD):
        return
    assert isinstance(rule, LANTERN | LANTERNPlusPlus)
    for x in range(len(q)):
        bound = rule.delta if isinstance(rule, LANTERN) else (rule.lam - 1) * q[x]
        ids = rule.neighbours(q, x)
        assert x not in ids
        assert len(ids) <= rule.k
        assert q[ids].sum() <= bound + 1e-12
        codebook: Floats = rule.codebook
        every = nearest(codebook, x, rule.k)
        if len(ids) < len(every):
            assert q[every[: len(ids) + 1]].sum() > bound - 1e-12
        assert rule.probability(q, p, x) >= Lossless().probability(q, p, x)


def test_nearest_codes_leave_the_code_itself_out_and_break_ties_low() -> None:
    line = np.asarray(LINE, np.float64)
    assert nearest(line, 2, 3).tolist() == [1, 3, 0]
    assert nearest(line, 0, 99).tolist() == [1, 2, 3, 4, 5]
    twins = np.zeros((4, 2))
    assert nearest(twins, 1, 2).tolist() == [0, 2]


def test_lantern_by_hand() -> None:
    q, p = np.array([0.3, 0.05, 0.1, 0.04, 0.01, 0.5]), np.array([0.1, 0.1, 0.5, 0.1, 0.1, 0.1])
    rule = LANTERN(LINE, k=3, delta=0.1)
    assert rule.neighbours(q, 2).tolist() == [1, 3]  # 0.05 + 0.04, and 0.3 more would pass 0.1
    assert rule.mass(q, 2) == pytest.approx(0.19)
    assert rule.probability(q, p, 2) == pytest.approx(0.38)
    # p is struck out on 1, 2, 3: max(0, q - p') = 0.2, 0.05, 0.1, 0.04, 0, 0.4
    assert rule.residual(q, p, 2) == pytest.approx(np.array([0.2, 0.05, 0.1, 0.04, 0, 0.4]) / 0.79)


def test_lantern_plus_plus_by_hand() -> None:
    q, p = np.array([0.3, 0.05, 0.1, 0.04, 0.01, 0.5]), np.array([0.1, 0.1, 0.5, 0.1, 0.1, 0.1])
    assert LANTERNPlusPlus(LINE, k=3, lam=1.5).neighbours(q, 2).tolist() == [1]
    assert LANTERNPlusPlus(LINE, k=3, lam=1.5).mass(q, 2) == pytest.approx(0.15)
    assert LANTERNPlusPlus(LINE, k=3, lam=5).mass(q, 2) == pytest.approx(0.49)
    assert LANTERNPlusPlus(LINE, k=3, lam=1).probability(q, p, 2) == Lossless().probability(q, p, 2)


def test_gsd_by_hand() -> None:
    q, p = np.array([0.30, 0.05, 0.10, 0.04, 0.01, 0.50]), np.array([0.1, 0.1, 0.5, 0.1, 0.1, 0.1])
    assert sorted(GSD(3, gap=1.0).cluster(q, 2)) == [0, 1, 2]  # ranks by q: 5 0 2 1 3 4
    assert sorted(GSD(3).cluster(q, 2)) == [1, 2]  # 0.30 is more than 0.15 away
    assert GSD(3).probability(q, p, 2) == pytest.approx(0.15 / 0.6)
    assert GSD(3, distance=0.5, codebook=LINE).cluster(q, 2).tolist() == [2]  # the next code is 1 away, squared
    assert sorted(GSD(35, distance=1.0, codebook=LINE).cluster(q, 2)) == [1, 2, 3]
    assert GSD(1).probability(q, p, 2) == Lossless().probability(q, p, 2)
    assert GSD(35, gap=1.0).probability(q, p, 2) == 1  # all of either side
    assert GSD(3).residual(q, p, 2) == pytest.approx(Lossless().residual(q, p, 2))


def test_a_codebook_of_another_size_is_refused() -> None:
    q = np.ones((1, 4)) / 4
    for rule in (LANTERN(LINE), LANTERNPlusPlus(LINE), GSD(codebook=LINE)):
        with pytest.raises(ValueError, match="6 codes and q has 4"):
            rule.probabilities(q, q, [0])


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((1, 3)), np.full((3, 3), np.nan)])
def test_a_bad_codebook_is_refused(bad: Floats) -> None:
    with pytest.raises(RuleError, match="codebook has shape"):
        LANTERN(bad)
