"""EAGLE-2 draws the target's own pictures, however good the drafter is and whatever shape its trees have.

V = 3 and T = 4 leave 81 pictures, counted over 20,000 seeds against their exact probabilities; trees of up to three
positions make guesses that are tested first, second and last, accepted, rejected, and followed by a bonus. The same
count must find what is wrong: a relaxed rule, a guess that is not struck out, or a number used for two purposes.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from exactness import joint, p_value, rows
from fakes import TableCache, TableDrafter, TableTarget
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import LANTERN, Amplify, LANTERNPlusPlus, Lossless, Rule
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import EAGLE2
from trees import Plain

V, T, SEEDS = 3, 4, 20_000
PROMPT = "a fox"
TARGET = TableTarget(V, T, bottleneck=0)
ROWS = rows(TARGET, PROMPT)
EXACT = joint(TARGET, PROMPT)
SHAPES = {
    "one guess": EAGLE2(total_tokens=2, depth=0, top_k=1),
    "a chain": EAGLE2(total_tokens=4, depth=4, top_k=1),
    "a tree": EAGLE2(total_tokens=6, depth=2, top_k=2),
    "every code": EAGLE2(),
}
CODES = np.array([[0.0], [1.0], [3.0]])


def plain(shape: EAGLE2, blur: float) -> Plain:
    drafter, cache = TableDrafter(TARGET, blur), TableCache(PROMPT, 1.0)
    return Plain(ROWS.__getitem__, lambda tokens: drafter.logits(cache, list(tokens)), shape, T)


def chance(drawers: list[Plain], seeds: int = SEEDS, rule: Rule | None = None) -> float:
    """p-value of the pictures of so many seeds, which take the drawers in turns."""
    counts = np.zeros(V**T, np.int64)
    for seed in range(seeds):
        passes = drawers[seed % len(drawers)].draw(seed, rule)
        counts[int("".join(map(str, chain(*passes))), V)] += 1
    return p_value(counts, EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_eagle_2_is_lossless(name: str) -> None:
    assert chance([plain(SHAPES[name], blur) for blur in (0.0, 1.0, 4.0)]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [Amplify(2.0), LANTERN(CODES, k=1, delta=0.3), LANTERNPlusPlus(CODES, k=1, lam=3.0)],
    ids=lambda rule: rule.name,
)
def test_a_relaxed_rule_is_found(rule: Rule) -> None:
    assert chance([plain(SHAPES["a tree"], 1.0)], SEEDS // 5, rule) < 1e-12


@pytest.mark.slow
def test_lantern_that_borrows_nothing_is_lossless() -> None:
    assert chance([plain(SHAPES["a tree"], 1.0)], rule=LANTERN(CODES, delta=0.0)) > 1e-3


@pytest.mark.slow
def test_a_guess_that_is_not_struck_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves_it_in(self: Lossless, q: Floats, token: int) -> Floats:
        return q

    monkeypatch.setattr(Lossless, "struck", leaves_it_in)
    assert chance([plain(SHAPES["a tree"], 1.0)], SEEDS // 5) < 1e-12


@pytest.mark.slow
def test_a_remainder_that_is_not_renormalised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw would not notice, the next guess does: it stands too seldom."""

    def too_little(self: Lossless, q: Floats, token: int) -> Floats:
        return np.where(np.arange(q.size) == token, 0.0, q)

    monkeypatch.setattr(Lossless, "struck", too_little)
    assert chance([plain(SHAPES["a tree"], 1.0)], SEEDS // 5) < 1e-12


@pytest.mark.slow
def test_a_number_that_is_used_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "again", lambda positions, numbers: positions)
    assert chance([plain(SHAPES["every code"], 1.0)], SEEDS // 5) < 1e-12
