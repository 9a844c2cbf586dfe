"""The verdict on drafts: a pure function of the target's probabilities, the drafts, the rule and the seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng, sampling
from pixdraft.decoding.acceptance import Rule
from pixdraft.decoding.sampling import Floats
from pixdraft.protocol.blocks import Block


@dataclass(frozen=True)
class Settled:
    """Where drafts end.

    Attributes:
        settled: drafts that stand, counted from the first.
        token: the one after them, from the residual or as a bonus; -1 where no target row is left for it.
        rejected: whether `token` replaces a rejected one.
    """

    settled: int
    token: int
    rejected: bool

    @property
    def drawn(self) -> NDArray[np.int64]:
        """The token as an array of one, or of none."""
        return np.array([self.token] if self.token >= 0 else [], np.int64)


@dataclass(frozen=True, eq=False)
class Judgement(Settled):
    """What becomes of a device's block.

    Attributes:
        accepted: asked tokens that stand.
        audit: q(x) of each kept token that stands, float32.
    """

    accepted: int
    audit: NDArray[np.float32]


def judge_drafts(
    target: Floats,
    base: int,
    tokens: NDArray[np.int64],
    drafts: Iterable[tuple[int, Floats]],
    rule: Rule,
    seed: int,
) -> Settled:
    """Judge drafts from left to right (Leviathan et al., arXiv 2211.17192, algorithm 1).

    At offset i, image position t = base + i, with q_i the target's row, p_i the draft's, x_i the token and
    u(t, stream) the counter RNG:

        stand    if u(t, ACCEPT) < b(q_i, p_i, x_i)           b = min(1, q(x) / p(x)) for the lossless rule
        else     draw from the residual with u(t, RESIDUAL)   norm(max(0, q - p)), and settle the drafts at i
        bonus    from q_n with u(base + n, RESIDUAL) where every judged token stands

    A token that the lossless rule settles at a judged offset is distributed as q_i exactly, whatever p_i it was drawn
    from.

    Args:
        target: probabilities, row i for position base + i: [n + 1, V], or [n, V] where no bonus is to be drawn.
        base: image position of the first draft.
        tokens: n drafts.
        drafts: ascending offsets of those to judge, and what each was drawn from, float64 [V]; the others stand.
        rule: of `decoding.acceptance`.
        seed: of the counter RNG.
    """
    for judged, (i, p) in enumerate(drafts):
        q, x = target[i], int(tokens[i])
        if rng.uniform(seed, base + i, rng.ACCEPT) >= rule.probability(q, p, x, judged):
            u = rng.uniform(seed, base + i, rng.RESIDUAL)
            return Settled(i, sampling.sample(rule.residual(q, p, x), u), True)
    n = tokens.size
    if len(target) == n:
        return Settled(n, -1, False)
    return Settled(n, sampling.sample(target[n], rng.uniform(seed, base + n, rng.RESIDUAL)), False)


def judge(target: Floats, block: Block, rule: Rule, seed: int) -> Judgement:
    """Judge the asked tokens of a device's block by `judge_drafts`.

    Kept tokens (not asked) always stand; q_i(x_i) is returned for them.

    Args:
        target: [n + 1, V]; [n, V] where the block fills the picture.
        block: n tokens, some asked.
        rule, seed: see `judge_drafts`.
    """
    asked = ((i, draft.dense(target.shape[1])) for i, draft in zip(block.asked, block.drafts, strict=True))
    end = judge_drafts(target, block.base, block.tokens, asked, rule, seed)
    standing = np.arange(end.settled)
    kept: NDArray[Any] = standing[~np.isin(standing, block.asked)]
    audit = target[kept, block.tokens[kept]].astype(np.float32)
    return Judgement(end.settled, end.token, end.rejected, end.settled - kept.size, audit)
