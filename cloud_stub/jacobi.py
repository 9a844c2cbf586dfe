"""The window of Jacobi decoding: drafts ahead of the settled tokens, and what one pass of the target makes of them.

    settled | x_0  x_1  ...  x_(n-1) |            drafts; p_i is what x_i was drawn from
              q_0  q_1  ...  q_(n-1)  q_n         what the pass says, given the drafts before each

The model is elsewhere: a window says what to feed, and takes probabilities. Its random numbers belong to positions
(`decoding.coupling` says why that keeps every coupling exact), so the same request is answered with the same tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from pixdraft.cloud_stub.verification import judge_drafts
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import Rule
from pixdraft.decoding.coupling import COUPLINGS, Independent
from pixdraft.decoding.sampling import Floats, sample_block
from pixdraft.decoding.strategies import JD, Jacobi

Tokens = NDArray[np.int64]


def window(strategy: Jacobi, rule: Rule, vocab_size: int, seed: int, base: int, end: int, last: int | None) -> Window:
    """The window of a strategy; `rule` judges its drafts if the strategy lets a rule judge. See `Window`."""
    if isinstance(strategy, JD):
        return JacobiWindow(strategy, vocab_size, seed, base, end, last)
    return SpeculativeWindow(strategy, vocab_size, seed, base, end, last, rule)


class Window(ABC):
    """Drafts for the image positions `base` to `end`, as many as fit.

    Args:
        strategy: window, init and coupling.
        vocab_size: V.
        seed: of the counter RNG.
        base: position of the first token to draw.
        end: position to stop before.
        last: the settled token at base - 1; None at base 0.

    Attributes:
        tokens: drafts to feed after the settled tokens, int64 [n], n = min(W - 1, end - base).
    """

    def __init__(self, strategy: Jacobi, vocab_size: int, seed: int, base: int, end: int, last: int | None) -> None:
        self.tokens = np.zeros(0, np.int64)
        self._p = np.zeros((0, vocab_size))
        self._strategy = strategy
        self._seed = seed
        self._base = base
        self._end = end
        self._passes = 0
        self._fill(last)

    def take(self, target: Floats) -> Tokens:
        """The tokens that one pass settles, int64 [k], k >= 1 while there is something to draw.

        Args:
            target: probabilities of the positions base .. base + n, float64 [n + 1, V]; [n, V] will do where the
                drafts reach `end`.
        """
        target = target[: self._end - self._base]
        self._passes += 1
        settled = self._settle(target)
        k = settled.size
        self._base += k
        rows = target[k:]  # q of the positions behind, given drafts of which some have fallen: the next p
        self.tokens = self._redraw(rows, self._base + np.arange(len(rows)), self._p[k:], self.tokens[k:])
        self._p = rows
        if k:
            self._fill(int(settled[-1]))
        return settled

    @abstractmethod
    def _settle(self, target: Floats) -> Tokens:
        """The drafts that stand, and the target's token that follows them."""

    @abstractmethod
    def _redraw(self, q: Floats, positions: Tokens, p: Floats, before: Tokens) -> Tokens:
        """Drafts from q; the first m positions had the drafts `before`, drawn from p."""

    def _fill(self, last: int | None) -> None:
        """Fill the free places at the end of the window; `last` is the settled token before it."""
        n = self.tokens.size
        positions = self._base + np.arange(n, min(self._strategy.window - 1, self._end - self._base))
        size = self._p.shape[1]
        # rounding may lift the largest u * V to V
        drawn = (rng.uniforms(self._seed, positions, rng.DRAFT) * size).astype(np.int64).clip(max=size - 1)
        if self._strategy.init == "left" and drawn.size:
            left = self.tokens[-1] if n else last
            drawn[:] = drawn[0] if left is None else left
        p = np.full((drawn.size, size), 1.0 / size)
        if self._strategy.init != "uniform":
            p = np.zeros((drawn.size, size))
            np.put_along_axis(p, drawn[:, None], 1.0, axis=1)
        self.tokens = np.concatenate([self.tokens, drawn])
        self._p = np.concatenate([self._p, p])


class SpeculativeWindow(Window):
    """SJD (arXiv 2410.01699): a rule judges each draft against the p it was drawn from. See `Window`.

    Args:
        rule: of `decoding.acceptance`.
    """

    def __init__(
        self, strategy: Jacobi, vocab_size: int, seed: int, base: int, end: int, last: int | None, rule: Rule
    ) -> None:
        super().__init__(strategy, vocab_size, seed, base, end, last)
        self._rule = rule
        self._coupling = COUPLINGS[strategy.coupling](seed)

    def _settle(self, target: Floats) -> Tokens:
        judged = judge_drafts(target, self._base, self.tokens, enumerate(self._p), self._rule, self._seed)
        return np.concatenate([self.tokens[: judged.settled], judged.drawn])

    def _redraw(self, q: Floats, positions: Tokens, p: Floats, before: Tokens) -> Tokens:
        return self._coupling.draw(q, positions, self._passes, p, before)


class JacobiWindow(Window):
    """JD (arXiv 2002.03629): a draft stands where the target draws the same code with its own number. See `Window`."""

    def _settle(self, target: Floats) -> Tokens:
        drawn = self._draw(target, self._base + np.arange(len(target)))
        fallen = np.flatnonzero(self.tokens != drawn[: self.tokens.size])
        return drawn[: fallen[0] + 1] if fallen.size else drawn

    def _redraw(self, q: Floats, positions: Tokens, p: Floats, before: Tokens) -> Tokens:
        if self._strategy.coupling == "common":
            return self._draw(q, positions)
        return Independent(self._seed).draw(q, positions, self._passes, p, before)

    def _draw(self, q: Floats, positions: Tokens) -> Tokens:
        return sample_block(q, rng.uniforms(self._seed, positions, rng.TARGET))
