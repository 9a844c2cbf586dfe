from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from distributions import SIZES, Floats, distribution, logits, pair
from pixdraft.decoding import rng
from pixdraft.decoding.sampling import (
    MOST,
    check,
    entropy,
    keep_top,
    probabilities,
    sample,
    sample_block,
    total_variation,
)

LAST = 1 - 2.0**-53


@given(SIZES.flatmap(logits), st.floats(0.05, 20), st.integers(0, 30), st.floats(0.01, 1))
def test_a_distribution_comes_out(z: Floats, temperature: float, top_k: int, top_p: float) -> None:
    p = probabilities(z, temperature, top_k, top_p)
    assert p.dtype == np.float64
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-12)
    whole = probabilities(z, temperature)
    assert whole[p > 0].max() == whole.max()
    if top_k:
        assert (p > 0).sum() <= top_k


@given(SIZES.flatmap(logits), st.floats(0.1, 5), st.integers(1, 30), st.floats(0.01, 1))
def test_agrees_with_the_slow_way(z: Floats, temperature: float, top_k: int, top_p: float) -> None:
    order = sorted(range(len(z)), key=lambda i: (-z[i] / temperature, i))[:top_k]
    weight = {i: math.exp((z[i] - max(z)) / temperature) for i in order}
    kept: list[int] = []
    total, held = sum(weight.values()), 0.0
    for i in order:
        if kept and held >= top_p:
            break
        kept.append(i)
        held += weight[i] / total
    expected = np.zeros(len(z))
    for i in kept:
        expected[i] = weight[i] / sum(weight[j] for j in kept)
    p = probabilities(z, temperature, top_k, top_p)
    if abs(sum(weight[i] for i in kept[:-1]) / total - top_p) > 1e-9 and abs(held - top_p) > 1e-9:
        np.testing.assert_allclose(p, expected, atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0, 8.0])
@pytest.mark.parametrize("top_p", [0.2, 0.9, 0.999, 1 - 1e-12])
def test_a_nucleus_needs_no_sorted_vocabulary(spread: float, top_p: float) -> None:
    z = np.random.default_rng(5).normal(0, spread, (2, 6000)).round(1)  # with many ties
    whole = probabilities(z)
    order = np.argsort(-whole, axis=-1, kind="stable")
    before = np.cumsum(np.take_along_axis(whole, order, -1), axis=-1)
    kept = np.ones(z.shape, np.bool_)
    kept[:, 1:] = before[:, :-1] < top_p
    expected = np.zeros(z.shape)
    np.put_along_axis(expected, order, np.take_along_axis(whole, order, -1) * kept, -1)
    np.testing.assert_array_equal(probabilities(z, top_p=top_p), expected / expected.sum(-1, keepdims=True))


@given(SIZES.flatmap(distribution), st.floats(0, LAST))
def test_a_draw_is_a_block_of_one(p: Floats, u: float) -> None:
    assert sample(p, u) == sample_block(p, u)


def test_ties_go_to_the_lowest_id() -> None:
    z = np.array([1.0, 2.0, 2.0, 2.0, 0.0])
    assert probabilities(z, temperature=0).tolist() == [0, 1, 0, 0, 0]
    assert probabilities(z, top_k=2).tolist() == [0, 0.5, 0.5, 0, 0]
    assert np.flatnonzero(probabilities(z, top_p=0.3)).tolist() == [1, 2]
    assert keep_top(z, 4).tolist() == [True, True, True, True, False]
    assert keep_top(z, 9).all()
    assert not keep_top(z, 0).any()


def test_extremes_of_temperature() -> None:
    z = np.array([[80.0, 79.0, -80.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(probabilities(z, 1e-300), [[1, 0, 0], [1 / 3] * 3])
    np.testing.assert_allclose(probabilities(z / 1e9, MOST), np.full((2, 3), 1 / 3), atol=1e-9)
    assert probabilities(np.array([5000.0, 0.0])).tolist() == [1, 0]


def test_forbidden_codes_get_nothing() -> None:
    assert probabilities(np.array([-np.inf, 0.0, -np.inf, 0.0]), top_k=3).tolist() == [0, 0.5, 0, 0.5]


def test_rows_are_independent() -> None:
    z = np.random.default_rng(3).normal(0, 4, (2, 3, 40)).astype(np.float32)
    p = probabilities(z, 0.8, 10, 0.9)
    np.testing.assert_array_equal(p[1, 2], probabilities(z[1, 2], 0.8, 10, 0.9))


@given(SIZES.flatmap(distribution), st.floats(0, LAST))
def test_a_drawn_code_has_probability(p: Floats, u: float) -> None:
    token = sample(p, u)
    assert p[token] > 0
    assert token == sample_block(p[None], [u])[0]
    assert token == 0 or sum(p[:token].tolist()) <= u


@pytest.mark.parametrize("u", [0.0, LAST])
def test_the_ends_of_the_unit_interval(u: float) -> None:
    p = np.array([0.0, 0.1, 0.2, 0.0, 0.7 - 1e-12, 0.0])  # sums to less than the largest u
    assert sample(p, u) == (1 if u == 0 else 4)
    assert sample_block(np.stack([p, p[::-1]]), [u, u]).tolist() == ([1, 1] if u == 0 else [4, 4])


def test_many_draws_follow_the_distribution() -> None:
    p = probabilities(np.array([0.0, 1.0, -1.0, 2.0, -np.inf, 0.5]))
    tokens = sample_block(p, rng.uniforms(np.arange(200_000), 9, rng.DRAFT))
    counts = np.bincount(tokens, minlength=6)
    assert counts[4] == 0
    kept = p > 0
    assert stats.chisquare(counts[kept], 200_000 * p[kept]).pvalue > 1e-3


@given(pair())
def test_entropy_and_total_variation(drawn: tuple[Floats, Floats]) -> None:
    q, p = drawn
    assert 0 <= entropy(q) <= math.log(len(q)) + 1e-12
    assert 0 <= total_variation(p, q) <= 1 + 1e-12
    assert total_variation(p, q) == total_variation(q, p)
    assert total_variation(p, q) == pytest.approx(1 - np.minimum(p, q).sum(), abs=1e-12)


def test_entropy_of_the_ends() -> None:
    assert entropy(np.array([0.0, 1.0, 0.0])) == 0
    assert entropy(np.full((2, 8), 1 / 8)) == pytest.approx([math.log(8)] * 2)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "field"),
    [
        (-0.1, 0, 1.0, "temperature"),
        (math.nan, 0, 1.0, "temperature"),
        (math.inf, 0, 1.0, "temperature"),
        (math.nextafter(MOST, math.inf), 0, 1.0, "temperature"),
        (1.0, -1, 1.0, "top_k"),
        (1.0, 1.5, 1.0, "top_k"),
        (1.0, 0, 0.0, "top_p"),
        (1.0, 0, 1.1, "top_p"),
        (1.0, 0, math.nan, "top_p"),
    ],
)
def test_settings_out_of_range_are_named(temperature: float, top_k: int, top_p: float, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        check(temperature, top_k, top_p)
    with pytest.raises(ValueError, match=field):
        probabilities(np.zeros(3), temperature, top_k, top_p)


def test_guidance_is_checked_with_the_rest() -> None:
    check(1.0, 0, 1.0, 0.0)
    check(MOST, 0, 1.0, MOST)
    for guidance in (-0.1, math.nan, math.inf, 1e308):
        with pytest.raises(ValueError, match=f"guidance is {guidance!r}".replace("+", r"\+") + ".*from 0 to 1000"):
            check(1.0, 0, 1.0, guidance)


@pytest.mark.parametrize("bad", [[0.0, math.nan], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_bad_logits_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="logits"):
        probabilities(np.array(bad))


def test_bad_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="u is outside"):
        sample(np.array([0.5, 0.5]), 1.0)
    with pytest.raises(ValueError, match="no mass"):
        sample(np.zeros(3), 0.5)
    with pytest.raises(ValueError, match="at least one logit"):
        probabilities(np.zeros((2, 0)))
