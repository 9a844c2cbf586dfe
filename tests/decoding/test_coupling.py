"""Couplings draw from what they are told to, and keep a token as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pixdraft.decoding import rng
from pixdraft.decoding.coupling import COUPLINGS, Coupling
from pixdraft.decoding.sampling import Floats, probabilities, sample_block, total_variation

Q = probabilities(np.array([1.0, 0.2, -0.4, 2.0, 0.0, -2.0, 0.7, -np.inf]))
P = probabilities(np.array([0.0, 1.2, -0.9, 1.1, 0.4, -1.0, -np.inf, 0.1]))
TV = float(total_variation(P, Q))
N = 20_000
POSITIONS = np.arange(N)
NONE, NOBODY = np.zeros((0, 8)), np.zeros(0, np.int64)


def every(p: Floats) -> Floats:
    return np.broadcast_to(p, (N, p.size))


def first(coupling: Coupling, p: Floats = P) -> np.ndarray:
    """Drafts of every position, drawn for the first time."""
    return coupling.draw(every(p), POSITIONS, 1, NONE, NOBODY)


@pytest.fixture(params=COUPLINGS)
def coupling(request: pytest.FixtureRequest) -> Coupling:
    return COUPLINGS[request.param](seed=5)


def test_a_redraw_is_distributed_as_it_should_be(coupling: Coupling) -> None:
    before = first(coupling)
    after = coupling.draw(every(Q), POSITIONS, 2, every(P), before)
    for drawn, p in ((before, P), (after, Q)):
        counts = np.bincount(drawn, minlength=8)
        assert counts[p == 0].sum() == 0
        assert stats.chisquare(counts[p > 0], N * p[p > 0]).pvalue > 1e-3


def test_it_is_so_given_a_token_that_was_certain(coupling: Coupling) -> None:
    """An init that is one-hot: whatever it was, the redraw must not remember it."""
    certain = np.eye(8)[3]
    after = coupling.draw(every(Q), POSITIONS, 1, every(certain), np.full(N, 3))
    assert stats.chisquare(np.bincount(after, minlength=8)[Q > 0], N * Q[Q > 0]).pvalue > 1e-3


def test_how_often_a_token_stays() -> None:
    agreement = {}
    for name, kind in COUPLINGS.items():
        coupling = kind(seed=8)
        before = first(coupling)
        agreement[name] = float(np.mean(before == coupling.draw(every(Q), POSITIONS, 2, every(P), before)))
    assert agreement["none"] == pytest.approx((P * Q).sum(), abs=0.015)
    assert agreement["maximal"] == pytest.approx(1 - TV, abs=0.015)
    assert (1 - TV) / (1 + TV) - 0.015 < agreement["gumbel"] <= 1 - TV
    assert agreement["none"] < agreement["common"] <= 1 - TV


@pytest.mark.parametrize("name", ["common", "gumbel", "maximal"])
def test_the_same_distribution_gives_the_same_token(name: str) -> None:
    coupling = COUPLINGS[name](seed=5)
    before = first(coupling)
    assert (coupling.draw(every(P), POSITIONS, 2, every(P), before) == before).all()


def test_numbers_belong_to_positions_and_not_to_calls(coupling: Coupling) -> None:
    whole = coupling.draw(every(Q), POSITIONS, 3, every(P), np.ones(N, np.int64))
    part = coupling.draw(every(Q)[7:20], POSITIONS[7:20], 3, every(P)[7:18], np.ones(11, np.int64))
    assert part[:11].tolist() == whole[7:18].tolist()
    assert part.size == 13
    assert coupling.draw(NONE, NOBODY, 4, NONE, NOBODY).size == 0


def test_the_race_is_the_gumbel_maximum() -> None:
    u = np.array([rng.uniforms(5, rng.again(np.array([2]), k), rng.RACE)[0] for k in range(8)])
    with np.errstate(divide="ignore"):
        expected = int(np.argmax(np.log(Q) - np.log(-np.log(u))))
    assert COUPLINGS["gumbel"](5).draw(Q[None], np.array([2]), 9, NONE, NOBODY).tolist() == [expected]


def test_a_first_draw_is_by_inverse_cdf() -> None:
    expected = sample_block(Q, rng.uniforms(5, 2 + 4 * 2**32, rng.DRAFT))
    for name in ("none", "maximal"):
        assert COUPLINGS[name](5).draw(Q[None], np.array([2]), 4, NONE, NOBODY) == expected
