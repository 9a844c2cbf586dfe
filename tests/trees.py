"""EAGLE-2 once more, as plainly as it can be written: no session, no cache, every distribution looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import Lossless, Rule
from pixdraft.decoding.rule import Tokens
from pixdraft.decoding.sampling import Floats, sample
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.decoding.tree import Tree, grow, walk

Look = Callable[[tuple[int, ...]], Floats]
"""The target's distribution [V] after some tokens."""
Guess = Callable[[tuple[int, ...]], NDArray[Any]]
"""The drafter's logits [V] after some tokens."""


class PathDrafter:
    """What grows a tree from a function of the tokens so far."""

    def __init__(self, guess: Guess, settled: Sequence[int]) -> None:
        self._guess = guess
        self._layer = [tuple(settled)]
        self.calls = 0

    def expand(self, tokens: Tokens, parents: Tokens) -> NDArray[Any]:
        self._layer = [(*self._layer[at], int(token)) for token, at in zip(tokens, parents, strict=True)]
        self.calls += 1
        return np.stack([self._guess(path) for path in self._layer])


def paths(tree: Tree) -> list[tuple[int, ...]]:
    """The tokens from the root to each node, without the root's own."""
    found: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True):
        found.append((*found[parent], token))
    return found


class Plain:
    """Draws pictures; what grows after some tokens is grown once, as it depends on nothing else."""

    def __init__(self, look: Look, guess: Guess, strategy: EAGLE2, end: int) -> None:
        self._look, self._guess, self._strategy, self._end = look, guess, strategy, end
        self._grown: dict[tuple[int, ...], tuple[Tree, Floats]] = {}

    def draw(self, seed: int, rule: Rule | None = None, before: Sequence[int] = ()) -> list[list[int]]:
        """The tokens after `before`, by the pass that settled them; a first token comes by itself."""
        tokens, passes = list(before), []
        if not tokens:
            tokens = [sample(self._look(()), rng.uniform(seed, 0, rng.RESIDUAL))]
            passes.append(tokens[:])
        while len(tokens) < self._end:
            tree, rows = self._after(tuple(tokens))
            ended = walk(tree, rows, rule or Lossless(), seed, len(tokens))
            settled = [int(tree.tokens[node]) for node in ended.path[1:]]
            passes.append(settled + [ended.token] * (ended.token >= 0))
            tokens += passes[-1]
        return passes

    def _after(self, tokens: tuple[int, ...]) -> tuple[Tree, Floats]:
        if tokens not in self._grown:
            room = self._end - len(tokens)
            drafter = PathDrafter(self._guess, tokens)
            tree = grow(tokens[-1], self._guess(tokens), drafter.expand, self._strategy, room)
            rows = [self._look((*tokens, *path)) for path in paths(tree) if len(path) < room]
            self._grown[tokens] = tree, np.stack(rows)
        return self._grown[tokens]
