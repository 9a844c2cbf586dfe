"""Speculative Jacobi decoding draws the target's own pictures, whatever fills the window and couples its drafts.

V = 3 and T = 4 leave 81 pictures, counted over 20,000 seeds against their exact probabilities; a window of four makes
drafts that are filled in, drawn again once and twice, accepted, rejected, and followed by a bonus. The same count must
find what is wrong: a residual, a distribution that a draft was not drawn from, or a number used for two purposes.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from exactness import joint, p_value, rows
from fakes import TableTarget
from pixdraft.cloud_stub.jacobi import Window
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import Amplify, Lossless, Rule
from pixdraft.decoding.coupling import COUPLINGS
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import INITS, SJD
from windows import draw

V, T, SEEDS = 3, 4, 20_000
TARGET = TableTarget(V, T, bottleneck=0)
ROWS = rows(TARGET, "a fox")
EXACT = joint(TARGET, "a fox")


def chance(strategies: list[SJD], seeds: int = SEEDS, rule: Rule | None = None) -> float:
    """p-value of the pictures of so many seeds, which take the strategies in turns."""
    counts = np.zeros(V**T, np.int64)
    for seed in range(seeds):
        passes = draw(ROWS.__getitem__, strategies[seed % len(strategies)], seed, T, rule)
        counts[int("".join(map(str, chain(*passes))), V)] += 1
    return p_value(counts, EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("init", INITS)
def test_sjd_is_lossless(init: str) -> None:
    assert chance([SJD(4, init)]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("coupling", sorted(set(COUPLINGS) - {"none"}))
def test_coupled_sjd_is_lossless(coupling: str) -> None:
    assert chance([SJD(4, init, coupling) for init in INITS]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_relaxed_rule_is_found(coupling: str) -> None:
    assert chance([SJD(4, coupling=coupling)], SEEDS // 5, Amplify(2.0)) < 1e-12


@pytest.mark.slow
def test_a_wrong_residual_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_the_draft(self: Lossless, q: Floats, p: Floats, token: int) -> Floats:
        return q

    monkeypatch.setattr(Lossless, "residual", forgets_the_draft)
    assert chance([SJD(4)], SEEDS // 5) < 1e-12


@pytest.mark.slow
def test_a_distribution_that_the_drafts_were_not_drawn_from_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Window.take

    def takes_the_first_row_for_all(self: Window, target: Floats) -> np.ndarray:
        self._p = np.broadcast_to(self._p[:1], self._p.shape)
        return take(self, target)

    monkeypatch.setattr(Window, "take", takes_the_first_row_for_all)
    assert chance([SJD(4, "uniform")], SEEDS // 5) < 1e-6


@pytest.mark.slow
def test_a_number_that_is_used_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "HOLD", rng.ACCEPT)
    monkeypatch.setattr(rng, "again", lambda positions, numbers: positions)
    assert chance([SJD(4, coupling="maximal")], SEEDS // 5) < 1e-6
