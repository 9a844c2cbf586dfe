"""The verdict on one block: a pure function of the target's probabilities, the block, the rule and the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng, sampling
from pixdraft.decoding.acceptance import Rule
from pixdraft.protocol.blocks import Block


@dataclass(frozen=True, eq=False)
class Judgement:
    """What becomes of a block.

    Attributes:
        settled: tokens of the block that stand, counted from its start.
        token: the one after them, from the residual or as a bonus; -1 where the picture is full.
        rejected: whether `token` replaces a rejected one.
        accepted: asked tokens that stand.
        audit: q(x) of each kept token that stands, float32.
    """

    settled: int
    token: int
    rejected: bool
    accepted: int
    audit: NDArray[np.float32]


def judge(target: NDArray[np.float64], block: Block, rule: Rule, seed: int) -> Judgement:
    """Judge the asked tokens of a block from left to right (Leviathan et al., arXiv 2211.17192, algorithm 1).

    At offset i, image position t = base + i, with q_i the target's row, p_i the draft's, x_i the token and
    u(t, stream) the counter RNG:

        stand    if u(t, ACCEPT) < b(q_i, p_i, x_i)           b = min(1, q(x) / p(x)) for the lossless rule
        else     draw from the residual with u(t, RESIDUAL)   norm(max(0, q - p)), and settle the block at i
        bonus    from q_n with u(base + n, RESIDUAL) where every asked token stands

    Kept tokens (not asked) always stand; q_i(x_i) is returned for them. A token that the lossless rule settles at an
    asked offset is distributed as q_i exactly, whatever p_i it was drawn from.

    Args:
        target: probabilities [n + 1, V], row i for position base + i; [n, V] where the block fills the picture.
        block: n tokens, some asked.
        rule: of `decoding.acceptance`.
        seed: of the counter RNG.
    """
    n = block.tokens.size
    settled, token, rejected = n, -1, False
    for judged, (i, draft) in enumerate(zip(block.asked, block.drafts, strict=True)):
        q, p, x = target[i], draft.dense(target.shape[1]), int(block.tokens[i])
        if rng.uniform(seed, block.base + i, rng.ACCEPT) >= rule.probability(q, p, x, judged):
            u = rng.uniform(seed, block.base + i, rng.RESIDUAL)
            settled, token, rejected = i, sampling.sample(rule.residual(q, p, x), u), True
            break
    if not rejected and len(target) > n:
        token = sampling.sample(target[n], rng.uniform(seed, block.base + n, rng.RESIDUAL))
    standing = np.arange(settled)
    kept: NDArray[Any] = standing[~np.isin(standing, block.asked)]
    audit = target[kept, block.tokens[kept]].astype(np.float32)
    return Judgement(settled, token, rejected, settled - kept.size, audit)
