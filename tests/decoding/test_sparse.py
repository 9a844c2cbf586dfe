from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributions import SIZES, Floats, distribution, outcome
from pixdraft.decoding.acceptance import Lossless
from pixdraft.decoding.sampling import probabilities, sample
from pixdraft.decoding.sparse import SparseDistribution, draft_distribution, sparsify


@given(SIZES.flatmap(distribution), st.integers(0, 30), st.floats(0, 1 - 2.0**-53))
def test_what_is_sent_is_what_is_sampled(p: Floats, k: int, u: float) -> None:
    sparse = sparsify(p, k)
    dense = sparse.dense(len(p))
    assert sparse.probabilities().sum() == pytest.approx(1, abs=1e-12)
    assert sparse.logits.max() == 0
    assert np.isfinite(sparse.logits).all()
    assert len(sparse.ids) == min(k or len(p), int((p > 0).sum()))
    assert p[sparse.ids].min() >= np.delete(p, sparse.ids).max(initial=0)
    assert sparse.sample(u) == sample(dense, u)
    assert dense[sparse.sample(u)] > 0


@given(SIZES.flatmap(distribution))
def test_keeping_all_loses_only_float16_rounding(p: Floats) -> None:
    q = sparsify(p).dense(len(p))
    assert ((p > 0) >= (q > 0)).all()
    large = p > 1e-6
    np.testing.assert_allclose(q[large], p[large], rtol=0.02)


@given(st.data(), st.integers(1, 24))
def test_a_truncated_draft_stays_exact(data: st.DataObject, k: int) -> None:
    size = data.draw(SIZES)
    q, p = data.draw(distribution(size)), data.draw(distribution(size))
    made, _ = outcome(Lossless(), q, sparsify(p, k).dense(size))
    np.testing.assert_allclose(made, q, atol=1e-12)


def test_vocabulary_order_and_ties() -> None:
    sparse = sparsify(np.array([0.2, 0.0, 0.2, 0.4, 0.2]), k=3)
    assert sparse.ids.tolist() == [0, 2, 3]
    assert sparse.ids.dtype == np.uint32
    assert sparse.logits.dtype == np.float16


def test_a_steep_distribution_stays_finite() -> None:
    p = probabilities(np.array([0.0, -300.0, -700.0, -5000.0]))
    sparse = sparsify(p)
    assert sparse.ids.tolist() == [0, 1, 2]
    assert sparse.logits.tolist() == [0, -300, -700]
    assert sparse.dense(4)[0] == 1


@pytest.mark.parametrize(
    ("ids", "logits", "message"),
    [
        ([1, 1], [0.0, 0.0], "ascending"),
        ([2, 1], [0.0, 0.0], "ascending"),
        ([1], [0.0, 0.0], "one logit an id"),
        ([], [], "at least one"),
        ([1, 2], [0.0, np.nan], "finite"),
        ([1, 2], [0.0, -np.inf], "finite"),
    ],
)
def test_what_came_over_the_wire_is_checked(ids: list[int], logits: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseDistribution(np.array(ids, np.uint32), np.array(logits, np.float16))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="uint32"):
        SparseDistribution(np.array([1]), np.array([0.0], np.float16))
    with pytest.raises(ValueError, match="code 7"):
        SparseDistribution(np.array([7], np.uint32), np.array([0.0], np.float16)).dense(7)
    with pytest.raises(ValueError, match="k is -1"):
        sparsify(np.array([1.0, 0.0]), -1)
    with pytest.raises(ValueError, match="not one distribution"):
        sparsify(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        sparsify(np.ones(2) / 2).probabilities()[0] = 1


@given(
    st.integers(2, 200),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.integers(0, 80),
    st.sampled_from([0.5, 1.0]),
    st.integers(0, 80),
    st.booleans(),
)
def test_a_softmax_of_the_kept_alone_is_the_same(
    size: int, seed: int, temperature: float, top_k: int, top_p: float, keep: int, rough: bool
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=size) * rng.choice([0.1, 3, 40])).astype(np.float32)
    if rough:  # ties, and codes that are forbidden
        logits = logits.round()
        logits[rng.random(size) < 0.3] = -np.inf
        logits[rng.integers(size)] = 1.0
    found = draft_distribution(logits, temperature, top_k, top_p, keep)
    wanted = sparsify(probabilities(logits, temperature, top_k, top_p), keep)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    # one unit of float16 where a rounding falls on the other side
    np.testing.assert_allclose(found.logits.astype(float), wanted.logits.astype(float), rtol=2.0**-10, atol=2.0**-24)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_no_numbers(wrong: float) -> None:
    logits = np.zeros(9, np.float32)
    logits[4] = wrong
    with pytest.raises(ValueError, match="give finite logits"):
        draft_distribution(logits, keep=3)
    with pytest.raises(ValueError, match="without a finite value"):
        draft_distribution(np.full(9, -np.inf, np.float32), keep=3)


@given(SIZES.flatmap(distribution), st.integers(0, 30), st.sampled_from([0.0, 1e-6, 0.3, 1.0, 4.0]))
def test_sharper_is_another_temperature_of_the_same_codes(p: Floats, k: int, temperature: float) -> None:
    sparse = sparsify(p, k)
    sharp = sparse.sharpened(temperature)
    assert set(sharp.ids) <= set(sparse.ids)
    best = int(sparse.ids[sparse.logits.argmax()])
    assert sharp.probability(best) == sharp.probabilities().max()
    if temperature == 0:
        assert sharp.ids.tolist() == [best]
    elif temperature == 1:
        assert sharp is sparse
    elif temperature > 0.1:
        wanted = probabilities(sparse.logits.astype(np.float64), temperature)
        dense = np.zeros(len(p))
        dense[sparse.ids] = wanted
        np.testing.assert_allclose(sharp.dense(len(p)), dense, atol=5e-3)


def test_a_temperature_that_is_none() -> None:
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="temperature is"):
            sparsify(np.full(4, 0.25)).sharpened(wrong)
