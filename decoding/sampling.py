"""From logits to probabilities to tokens. Device and cloud call the same functions, or the pictures part ways.

Order of the steps: temperature, top-k, top-p, renormalise. Guidance is only checked here: it is in the target's logits
already, and the draft learned the guided distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixdraft.decoding.numbers import is_whole

Floats = NDArray[np.float64]

MOST = 1000.0  # of guidance and temperature: far beyond any use, and float32 logits stay finite
MOST_CODES = (1 << 31) - 1  # of a top-k: more than any vocabulary has, and every port's int holds it

_U = "u is outside [0, 1): give uniforms of the counter generator"
_MASS = "p holds no mass, or NaN: give a distribution"
_HEADS = (256, 4096)  # codes that a nucleus sorts at first: most are small, and sorting a vocabulary takes long


def check(temperature: float, top_k: int, top_p: float, guidance: float = 1.0) -> None:
    """Raise ValueError, naming the field, where a setting is out of range.

    `guidance` and `temperature` are 0 to 1000 (temperature 0 takes the most probable code); `top_k` is a whole number
    from 0 (keeps all) to 2**31 - 1; `top_p` is above 0 and at most 1 (1 keeps all).
    """
    for field, value in (("guidance", guidance), ("temperature", temperature)):
        if not 0 <= value <= MOST:
            raise ValueError(f"{field} is {value!r}: it must be a number from 0 to {MOST:g}")
    if not is_whole(top_k, 0, MOST_CODES):
        raise ValueError(
            f"top_k is {top_k!r:.64}: it must be a whole number from 0 to {MOST_CODES}, where 0 keeps every code"
        )
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p!r}: it must be above 0 and at most 1, where 1 keeps every code")


def keep_top(values: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Mask of the k largest entries of each row [..., V]: exactly min(k, V) of them, ties going to the lowest id."""
    size = values.shape[-1]
    if k >= size:
        return np.ones(values.shape, np.bool_)
    if k < 1:
        return np.zeros(values.shape, np.bool_)
    level = np.partition(values, size - k, axis=-1)[..., size - k, None]
    kept = np.asarray(values >= level, np.bool_)
    if (np.count_nonzero(kept, axis=-1) == k).all():  # no ties at the level, or room for all of them
        return kept
    above = values > level
    tied = values == level
    room = k - above.sum(axis=-1, keepdims=True)
    return np.asarray(above | (tied & (np.cumsum(tied, axis=-1) <= room)), np.bool_)


def _nucleus(p: Floats, top_p: float) -> NDArray[np.bool_]:
    """Mask of the fewest most probable codes that hold top_p together (Holtzman et al., arXiv 1904.09751)."""
    size = p.shape[-1]
    for head in (*(n for n in _HEADS if n < size), size):
        ids = np.nonzero(keep_top(p, head))[-1].reshape(*p.shape[:-1], head)
        order = np.take_along_axis(ids, np.argsort(-np.take_along_axis(p, ids, -1), axis=-1, kind="stable"), -1)
        mass = np.cumsum(np.take_along_axis(p, order, -1), axis=-1)
        if (mass[..., -1] >= top_p).all():
            break  # whatever comes after these comes after top_p
    kept = np.ones(order.shape, np.bool_)
    kept[..., 1:] = mass[..., :-1] < top_p  # a code stays while those before it do not yet hold top_p
    mask = np.zeros(p.shape, np.bool_)
    np.put_along_axis(mask, order, kept, -1)
    return mask


def probabilities(logits: NDArray[Any], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Floats:
    """The distribution to sample from, float64 [..., V].

    Temperature 0 is the one-hot arg max. Ties, there and in top-k and top-p, go to the lowest id, and top-k keeps
    exactly k codes, so that every port keeps the same ones.

    Args:
        logits: [..., V]; -inf forbids a code.
        temperature, top_k, top_p: see `check`.

    Raises:
        ValueError: a setting is out of range, or a row holds NaN, +inf or nothing finite.
    """
    check(temperature, top_k, top_p)
    z = np.asarray(logits, np.float64)
    if z.ndim == 0 or z.shape[-1] == 0:
        raise ValueError(f"logits has shape {z.shape}: give at least one logit along its last axis")
    largest = z.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ValueError("logits holds NaN, +inf or a row without a finite value: give finite logits")
    if temperature == 0:
        one_hot = np.zeros(z.shape)
        np.put_along_axis(one_hot, np.argmax(z, axis=-1, keepdims=True), 1.0, -1)
        return one_hot
    z = z - largest
    if temperature != 1:
        with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to -inf, which is right
            z /= temperature
    if 0 < top_k < z.shape[-1]:
        z[~keep_top(z, int(top_k))] = -np.inf
    p: Floats = np.exp(z, out=z)
    p /= p.sum(axis=-1, keepdims=True)
    if top_p < 1:
        p[~_nucleus(p, top_p)] = 0.0
        p /= p.sum(axis=-1, keepdims=True)
    return p


def sample_block(p: Floats, u: ArrayLike) -> NDArray[np.int64]:
    """Inverse CDF in vocabulary order: the first code whose running sum exceeds u. int64 [...].

    The running sum is added one code at a time from code 0, so that a port gets the same float64 values. Where
    rounding leaves the last sum at or below u, the last code with a probability is taken; a code without one is never
    drawn.

    Args:
        p: probabilities, float64 [..., V].
        u: uniforms in [0, 1), [...]; broadcast against the rows of `p`.

    Raises:
        ValueError: a u is outside [0, 1), or a row of `p` holds no mass.
    """
    uniform = np.asarray(u, np.float64)
    if not ((uniform >= 0) & (uniform < 1)).all():
        raise ValueError(_U)
    running = np.cumsum(p, axis=-1)
    if not (running[..., -1] > 0).all():
        raise ValueError(_MASS)
    token = np.asarray((running <= uniform[..., None]).sum(axis=-1), np.int64)
    size = p.shape[-1]
    if (token == size).any():
        last = size - 1 - np.argmax(p[..., ::-1] > 0, axis=-1)
        token = np.where(token == size, last, token)
    return token


def sample(p: Floats, u: float) -> int:
    """`sample_block` for one distribution [V] and one uniform, without what many rows cost."""
    if not 0 <= u < 1:
        raise ValueError(_U)
    running = np.cumsum(p)
    if not running[-1] > 0:
        raise ValueError(_MASS)
    token = int(np.searchsorted(running, u, side="right"))
    return token if token < p.size else int(np.flatnonzero(p)[-1])


def entropy(p: Floats) -> Floats:
    """Shannon entropy in nats over the last axis, float64 [...]; 0 log 0 is 0."""
    logs = np.log(p, out=np.zeros(p.shape), where=p > 0)
    return np.asarray(-(p * logs).sum(axis=-1) + 0.0, np.float64)


def total_variation(p: Floats, q: Floats) -> Floats:
    """TV(p, q) = 1/2 sum |p - q| over the last axis, float64 [...]; what lossless speculative sampling rejects."""
    return np.asarray(0.5 * np.abs(p - q).sum(axis=-1), np.float64)
