"""Whole small pictures, counted over many seeds, against the exact distribution that a table gives them."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fakes import TableTarget
from pixdraft.decoding.sampling import Floats, probabilities


def rows(target: TableTarget, prompt: str, temperature: float = 1.0) -> dict[tuple[int, ...], Floats]:
    """The target's distribution after every possible beginning of a picture."""
    v, t = target.info.vocab_size, target.info.image_tokens
    return {
        before: probabilities(target.logits(prompt, list(before)), temperature)
        for n in range(t)
        for before in product(range(v), repeat=n)
    }


def joint(target: TableTarget, prompt: str, temperature: float = 1.0) -> Floats:
    """Probability of every picture, float64 [V ** T], the first token slowest."""
    v, t = target.info.vocab_size, target.info.image_tokens
    q = rows(target, prompt, temperature)
    return np.array([np.prod([q[x[:i]][x[i]] for i in range(t)]) for x in product(range(v), repeat=t)])


def p_value(counts: NDArray[np.int64], p: Floats) -> float:
    """Chi-square over all pictures; those expected fewer than five times are one cell."""
    expected = p * counts.sum()
    rare = expected < 5
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(seen[wanted > 0], wanted[wanted > 0]).pvalue)
