"""Jacobi decoding once more, as plainly as it can be written: no session, no cache, every distribution looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pixdraft.cloud_stub.jacobi import window
from pixdraft.decoding.acceptance import Lossless, Rule
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import Jacobi

Look = Callable[[tuple[int, ...]], Floats]
"""The target's distribution [V] after some tokens."""


def draw(
    look: Look, strategy: Jacobi, seed: int, end: int, rule: Rule | None = None, before: Sequence[int] = ()
) -> list[list[int]]:
    """The tokens after `before` up to `end`, by the pass that settled them; `end` is the end of the picture."""
    size, tokens = look(tuple(before)).size, list(before)
    ahead = window(strategy, rule or Lossless(), size, seed, len(tokens), end, tokens[-1] if tokens else None)
    passes: list[list[int]] = []
    while len(tokens) < end:
        guessed = [*tokens, *ahead.tokens.tolist()]
        rows = range(len(tokens), min(len(guessed) + 1, end))
        passes.append(ahead.take(np.stack([look(tuple(guessed[:i])) for i in rows])).tolist())
        tokens += passes[-1]
    return passes
