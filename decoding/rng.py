"""The counter-based random numbers of a picture: a function of (seed, position, stream) and of nothing else.

A generator with a state would make the picture depend on the order of the draws. Rollback, pipelining, replay and
the ports draw in different orders and must agree, so every draw has an address instead.
"""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAFT = 0  # the draft token AT a position
ACCEPT = 1  # the test of the token at a position; of guesses that compete for it (see `again`): one draw each
RESIDUAL = 2  # the residual or the bonus token at a position
TARGET = 3  # a target token at a position: the cloud's own pictures, and an injected prefix
RANDOM = 4  # the "random" statistic: whether to ask, never which token
RACE = 5  # the race of the codes at a position, one number a code (see `again`): Gumbel coupling
HOLD = 6  # whether a redrawn draft holds its token: maximal coupling
STREAMS = 8  # a position holds eight addresses, the last one free

_AGAIN = 1 << 32
_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


def uniform(seed: int, position: int, stream: int) -> float:
    """The uniform of one address, in [0, 1) on a grid of 2^-53.

    z = seed + 0x9E3779B97F4A7C15 * (1 + 8 * position + stream) modulo 2^64, then the finaliser of splitmix64
    (Steele, Lea and Flood, OOPSLA 2014), then (z >> 11) * 2^-53.

    Args:
        seed: 0 <= seed < 2^64.
        position: image position, at least 0.
        stream: 0 <= stream < 8, one of the constants above.

    Raises:
        ValueError: an argument is out of range.
    """
    seed, position, stream = index(seed), index(position), index(stream)
    if not 0 <= seed <= _MASK:
        raise ValueError(f"seed is {seed}: it must be at least 0 and below 2**64")
    if position < 0:
        raise ValueError(f"position is {position}: it must be at least 0")
    if not 0 <= stream < STREAMS:
        raise ValueError(f"stream is {stream}: it must be at least 0 and below {STREAMS}")
    z = (seed + _GAMMA * (1 + STREAMS * position + stream)) & _MASK
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def uniforms(seeds: ArrayLike, positions: ArrayLike, streams: ArrayLike) -> NDArray[np.float64]:
    """`uniform` over arrays: the three arguments broadcast; float64 of the broadcast shape.

    Raises:
        ValueError: an argument holds something else than whole numbers in range.
    """
    seed = _unsigned("seeds", seeds)
    position = _unsigned("positions", positions)
    stream = _unsigned("streams", streams)
    if (stream >= STREAMS).any():
        raise ValueError(f"streams holds {stream.max()}: streams are at least 0 and below {STREAMS}")
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        z = seed + np.uint64(_GAMMA) * (np.uint64(1) + np.uint64(STREAMS) * position + stream)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
    z = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    return np.asarray(z, np.float64) * 2.0**-53


def again(positions: NDArray[np.int64], numbers: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """The positions to use for draw `numbers` (from 0) of a stream that draws more than once at an image position.

    position + 2^32 * number: draw 0 is at the position itself, and no two draws share an address, as a picture has
    fewer than 2^32 tokens. What belongs to a position stays a function of seed, position, stream and number.

    Args:
        positions: each below 2^32.
        numbers: 0 <= number < 2^29; broadcast against the positions.
    """
    return positions + numbers * np.int64(_AGAIN)


def _unsigned(name: str, values: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} has type {array.dtype}: give whole numbers (uint64 for seeds of 2**63 and up)")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError(f"{name} holds {array.min()}: values must be at least 0")
    return array.astype(np.uint64)
