"""Drawing a draft again when its distribution has moved, so that it stays the same token as often as may be.

Speculative Jacobi decoding draws each draft of its window from p, then, a pass later, from a p' that is hardly another.
Drawn independently, the two tokens differ almost always where distributions are flat, and every change moves what the
target says of all later positions. A coupling draws x' ~ p' exactly, but together with x ~ p ("Speculative Coupled
Decoding", ICML 2026, arXiv 2510.24211).

Whatever the coupling, the numbers it uses belong to the position alone, and what p is at a position depends on the
numbers of EARLIER positions alone: the target looks back, never ahead. Given those, the draft that is judged is
distributed as its p, and the numbers of its test were used nowhere before. So every coupling is lossless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng
from pixdraft.decoding.rule import at, norm_positive, quotient
from pixdraft.decoding.sampling import Floats, sample_block

Tokens = NDArray[np.int64]


class Coupling(ABC):
    """Draws the drafts of one picture, of one seed; a position may be drawn for again and again.

    Args:
        seed: of the counter RNG.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    @abstractmethod
    def draw(self, q: Floats, positions: Tokens, number: int, p: Floats, before: Tokens) -> Tokens:
        """A code of each row of q, int64 [n].

        Args:
            q: what to draw from, float64 [n, V].
            positions: image positions of the rows [n], ascending.
            number: of this redraw, from 1: no two at one position share it.
            p: float64 [m, V], m <= n: what the drafts at the first m positions were drawn from.
            before: those drafts [m].
        """


class Independent(Coupling):
    """No coupling: numbers of its own for every redraw, as in SJD (arXiv 2410.01699)."""

    def draw(self, q: Floats, positions: Tokens, number: int, p: Floats, before: Tokens) -> Tokens:
        """See `Coupling.draw`."""
        return sample_block(q, rng.uniforms(self._seed, rng.again(positions, number), rng.DRAFT))


class Common(Coupling):
    """One number a position for all redraws, and the inverse CDF: codes that are neighbours in the vocabulary merge."""

    def draw(self, q: Floats, positions: Tokens, number: int, p: Floats, before: Tokens) -> Tokens:
        """See `Coupling.draw`."""
        return sample_block(q, rng.uniforms(self._seed, positions, rng.DRAFT))


class Gumbel(Coupling):
    """Gumbel coupling: argmax_k (log q_k + g_k), with one Gumbel number g_k a code and position for all redraws.

    Written as a race, argmin_k (E_k / q_k) with exponential E_k = -log u_k, which is the same. Two draws agree with
    probability (1 - TV) / (1 + TV) or more, without a look at the last draft.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._races: dict[int, Floats] = {}

    def draw(self, q: Floats, positions: Tokens, number: int, p: Floats, before: Tokens) -> Tokens:
        """See `Coupling.draw`."""
        codes = np.arange(q.shape[1])
        races = {}
        for position in positions.tolist():  # what is no longer drawn for is forgotten
            if (race := self._races.get(position)) is None:
                u = rng.uniforms(self._seed, rng.again(np.array(position), codes), rng.RACE)
                race = -np.log(u + 2.0**-54)  # the middle of a step of the grid: neither 0 nor 1
            races[position] = race
        self._races = races
        times = np.full(q.shape, np.inf)
        if len(q):
            with np.errstate(over="ignore"):  # a code that next to never wins may as well never
                np.divide(np.stack(list(races.values())), q, out=times, where=q > 0)
        return np.asarray(times.argmin(axis=-1), np.int64)


class Maximal(Coupling):
    """Maximal coupling: hold x with probability min(1, q(x) / p(x)), else draw from norm(max(0, q - p)).

    Two draws agree with probability 1 - TV(p, q), which no coupling passes.
    """

    def draw(self, q: Floats, positions: Tokens, number: int, p: Floats, before: Tokens) -> Tokens:
        """See `Coupling.draw`."""
        m, places = len(before), rng.again(positions, number)
        changed = np.concatenate([norm_positive(q[:m] - p, q[:m]), q[m:]])
        tokens = sample_block(changed, rng.uniforms(self._seed, places, rng.DRAFT))
        held = rng.uniforms(self._seed, places[:m], rng.HOLD) < quotient(at(q[:m], before), at(p, before))
        tokens[:m][held] = before[held]
        return tokens


COUPLINGS: dict[str, type[Coupling]] = {
    "none": Independent,
    "common": Common,
    "gumbel": Gumbel,
    "maximal": Maximal,
}
