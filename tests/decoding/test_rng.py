from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pixdraft.decoding import rng

ADDRESSES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(0, 7))


@given(st.lists(ADDRESSES, min_size=1, max_size=20))
def test_the_vectorised_twin_agrees_bit_by_bit(addresses: list[tuple[int, int, int]]) -> None:
    seeds, positions, streams = zip(*addresses, strict=True)
    drawn = rng.uniforms(np.array(seeds, np.uint64), np.array(positions), np.array(streams))
    assert drawn.tolist() == [rng.uniform(*address) for address in addresses]
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_all_three_arguments_broadcast() -> None:
    drawn = rng.uniforms(np.arange(3)[:, None], np.arange(5), rng.ACCEPT)
    assert drawn.shape == (3, 5)
    assert drawn[2, 4] == rng.uniform(2, 4, rng.ACCEPT)
    assert rng.uniforms(2, 4, rng.ACCEPT) == rng.uniform(2, 4, rng.ACCEPT)


def test_the_largest_address_wraps_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rng.uniforms(np.uint64(2**64 - 1), 2**50, 7) == rng.uniform(2**64 - 1, 2**50, 7)


def test_streams_of_a_position_are_distinct() -> None:
    names = [rng.DRAFT, rng.ACCEPT, rng.RESIDUAL, rng.TARGET, rng.RANDOM]
    assert names == [0, 1, 2, 3, 4]
    assert len({rng.uniform(1, 2, stream) for stream in range(rng.STREAMS)}) == rng.STREAMS


def test_uniform_and_independent_across_streams_and_positions() -> None:
    seeds = np.arange(50_000, dtype=np.uint64)
    columns = [rng.uniforms(seeds, position, stream) for position in (0, 1) for stream in range(5)]
    for column in columns:
        assert stats.chisquare(np.histogram(column, 64, (0, 1))[0]).pvalue > 1e-4
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 0.02


@pytest.mark.parametrize(
    ("seed", "position", "stream", "message"),
    [(-1, 0, 0, "seed"), (2**64, 0, 0, "seed"), (0, -1, 0, "position"), (0, 0, -1, "stream"), (0, 0, 8, "stream")],
)
def test_bad_addresses_are_named(seed: int, position: int, stream: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rng.uniform(seed, position, stream)


def test_bad_arrays_are_named() -> None:
    with pytest.raises(ValueError, match="positions holds -2"):
        rng.uniforms(1, np.array([0, -2]), 0)
    with pytest.raises(ValueError, match="streams holds 8"):
        rng.uniforms(1, 0, 8)
    with pytest.raises(ValueError, match="seeds has type float64"):
        rng.uniforms(1.5, 0, 0)
