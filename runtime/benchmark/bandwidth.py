"""How fast this machine reads memory: what a pass over weights cannot beat."""

from __future__ import annotations

import time

import numpy as np

MEMORY = 256 << 20  # bytes; more than any cache of a phone or a desktop


def read_bandwidth(size: int, seconds: float = 0.3) -> float:
    """Bytes a second of reading a working set of `size` bytes over and over, the best of many passes.

    A dot product of two float32 arrays reads everything once and computes next to nothing. It uses the threads that
    numpy's BLAS was started with.

    Args:
        size: of the working set. A small one stays in the caches, as a small model's weights do.
        seconds: to spend on it at least.
    """
    count = max(1024, size // 8)
    a, b = np.ones(count, np.float32), np.ones(count, np.float32)
    rounds = max(1, (4 << 20) // (8 * count))  # a timer's tick must not matter
    best = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(rounds):
            a.dot(b)
        best = min(best, (time.perf_counter() - start) / rounds)
    return 8 * count / best
