"""Hypothesis strategies for logits and distributions, from flat to one-hot, and what a rule makes of them exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from pixdraft.decoding.acceptance import Rule
from pixdraft.decoding.sampling import probabilities

Floats = NDArray[np.float64]
SIZES = st.integers(2, 24)


def logits(size: int, bound: float = 80.0) -> st.SearchStrategy[Floats]:
    return hnp.arrays(np.float64, size, elements=st.floats(-bound, bound, width=32))


@st.composite
def distribution(draw: st.DrawFn, size: int) -> Floats:
    """Softmax of extreme or mild logits, sometimes truncated, sometimes one-hot."""
    z = draw(logits(size, draw(st.sampled_from([0.0, 3.0, 80.0]))))
    return probabilities(z, draw(st.sampled_from([0.0, 1.0, 1.0, 4.0])), draw(st.integers(0, size)))


@st.composite
def pair(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Target q and draft p over one vocabulary; now and then the same."""
    size = draw(SIZES)
    q = draw(distribution(size))
    return q, q.copy() if draw(st.integers(0, 9)) == 0 else draw(distribution(size))


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Centre and radius of logit intervals: radius 0, small or huge."""
    size = draw(SIZES)
    bound = draw(st.sampled_from([0.0, 1.0, 1000.0]))
    radius = draw(hnp.arrays(np.float64, size, elements=st.floats(0.0, bound, width=32)))
    return draw(logits(size)), radius


def table(rule: Rule, q: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Acceptance probability [V] and residual [V, V] of every token that could be drafted."""
    size = len(q)
    rows, every = np.ones((size, 1)), range(size)
    b = np.array([rule.probability(q, p, x) for x in every])
    return b, rule.residuals(rows * q, rows * p, every)


def outcome(rule: Rule, q: Floats, p: Floats) -> tuple[Floats, float]:
    """The distribution that comes out of one judged token, exactly, and the probability of a reject."""
    b, residual = table(rule, q, p)
    rejected = p * (1.0 - b)
    return p * b + rejected @ residual, float(rejected.sum())
