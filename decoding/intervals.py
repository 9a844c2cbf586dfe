"""InterFuse: probability intervals from logit intervals, and the uncertainty read off them.

CIAR (arXiv 2603.25463) predicts a logit interval [c - r, c + r] for every code. The bounds here are the interval
softmax of credal networks: each entry moves alone to an end of its interval while the others stay at their centres.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


# The device runs these over its vocabulary at every position, and arrays of that size cost more to get than to fill: so
# what is no longer needed is written over.
def _sigmoid(x: Floats) -> Floats:
    # exp of a negative number alone: nothing overflows, and small results keep their relative precision
    small = np.abs(x)
    np.exp(np.negative(small, out=small), out=small)
    sigmoid: Floats = np.where(x >= 0, 1.0, small)
    small += 1.0
    sigmoid /= small
    return sigmoid


def log_odds(center: NDArray[Any]) -> Floats:
    """a_i = c_i - logsumexp over k != i of c_k, float64 [..., V]: the log odds of each softmax entry.

    Exact also where one entry holds nearly all the mass: 1 - s_i is never formed by subtraction from 1.

    Args:
        center: logits c [..., V], V >= 2; -inf forbids a code.

    Raises:
        ValueError: V < 2, or a row holds NaN, +inf or nothing finite.
    """
    c = np.asarray(center, np.float64)
    if c.ndim == 0 or c.shape[-1] < 2:
        raise ValueError(f"center has shape {c.shape}: give at least two logits along its last axis")
    top = np.argmax(c, axis=-1, keepdims=True)
    largest = np.take_along_axis(c, top, -1)
    if not np.isfinite(largest).all():
        raise ValueError("center holds NaN, +inf or a row without a finite logit: give finite logits")
    e = c.copy()
    np.put_along_axis(e, top, -np.inf, -1)
    second = e.max(axis=-1, keepdims=True)
    second = np.where(second == -np.inf, largest, second)
    # Only the arg max can hold more than half, so only its complement could cancel. Scaled by the SECOND logit, that
    # complement is `rest` >= 1; every other entry's complement is exp(gap) + rest - e_i, with exp(gap) >= 1 >= e_i.
    gap = largest - second
    e -= second
    np.exp(e, out=e)
    rest = e.sum(axis=-1, keepdims=True)
    np.subtract(rest, e, out=e)
    e *= np.exp(-gap)
    e += 1.0
    odds: Floats = c - largest
    odds -= np.log(e, out=e)
    with np.errstate(divide="ignore"):  # rest = 0: the arg max is the only code allowed, its log odds are +inf
        np.put_along_axis(odds, top, gap - np.log(rest), -1)
    return odds


def fuse(center: NDArray[Any], radius: NDArray[Any]) -> tuple[Floats, Floats]:
    """Probability bounds (lower, upper), float64 [..., V] each; NOT clipped (`reachable` does that).

    With a_i the log odds of s = softmax(c): l = sigmoid(a - r), u = sigmoid(a + r), so that l <= s <= u and
    sum l <= 1 <= sum u. CIAR (arXiv 2603.25463), InterFuse; the closed form is
    l_i = e^(c_i - r_i) / (e^(c_i - r_i) + sum over k != i of e^(c_k)), u_i likewise with + r_i.

    Args:
        center: logits c [..., V], V >= 2.
        radius: half-widths r >= 0 [..., V], finite.

    Raises:
        ValueError: the shapes differ, or a value is out of range.
    """
    r = np.asarray(radius, np.float64)
    if r.shape != np.shape(center):
        raise ValueError(f"radius has shape {r.shape} and center {np.shape(center)}: they must be equal")
    if r.size and not (r.min() >= 0 and r.max() < np.inf):
        raise ValueError("radius holds a negative, infinite or NaN value: half-widths are finite and at least 0")
    a = log_odds(center)
    lower = _sigmoid(a - r)
    a += r
    return lower, _sigmoid(a)


def reachable(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """The tightest bounds of the same credal set, float64 [..., V] each.

    l*_i = max(l_i, 1 - sum over k != i of u_k) and u*_i = min(u_i, 1 - sum over k != i of l_k): every end is then
    taken by some distribution inside all the intervals (de Campos, Huete and Moral, 1994).
    """
    others_upper = upper.sum(axis=-1, keepdims=True) - upper
    others_lower = lower.sum(axis=-1, keepdims=True) - lower
    return np.maximum(lower, 1.0 - others_upper), np.minimum(upper, 1.0 - others_lower)


def width(lower: Floats, upper: Floats) -> Floats:
    """||u - l||_1, float64 [...]: the total ambiguity.

    Where draft p and target q both lie inside the bounds, TV(p, q) <= width / 2, and TV is the probability that
    lossless speculative sampling rejects: half the width bounds the risk of keeping a token.
    """
    return np.asarray(np.abs(upper - lower).sum(axis=-1), np.float64)


def uncertainty(lower: Floats, upper: Floats) -> Floats:
    """U = ||delta||_1 * std(delta), delta = u - l, population standard deviation over V; float64 [...].

    CIAR (arXiv 2603.25463): total ambiguity times the disparity of confidence between codes.
    """
    delta = upper - lower
    deviation = np.asarray(delta.std(axis=-1), np.float64)
    return np.asarray(np.abs(delta, out=delta).sum(axis=-1), np.float64) * deviation
