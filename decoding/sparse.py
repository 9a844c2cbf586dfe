"""The draft distribution as it is sent: a few code ids and float16 logits, and the device samples from exactly that.

Speculative sampling is exact for whatever distribution the draft token was drawn from. So truncating and rounding
first, and drawing afterwards from what is left, costs agreement with the target but no exactness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding.sampling import Floats, check, keep_top, probabilities, sample


@dataclass(frozen=True, eq=False)
class SparseDistribution:
    """p = softmax of the float16 logits, in float64, over `ids`; zero elsewhere.

    Attributes:
        ids: uint32 [k], strictly ascending: sampling runs in vocabulary order, here as over the whole vocabulary.
        logits: float16 [k], finite; temperature, top-k and top-p are in them already.
    """

    ids: NDArray[np.uint32]
    logits: NDArray[np.float16]

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ids.shape != self.logits.shape or not self.ids.size:
            raise ValueError(
                f"a sparse draft has ids of shape {self.ids.shape} and logits of shape {self.logits.shape}: "
                "give one logit an id, and at least one"
            )
        if self.ids.dtype != np.uint32 or self.logits.dtype != np.float16:
            raise ValueError(
                f"a sparse draft takes uint32 ids and float16 logits, not {self.ids.dtype} and {self.logits.dtype}"
            )
        if not (self.ids[1:] > self.ids[:-1]).all():
            raise ValueError("the ids of a sparse draft must be strictly ascending: sort them and their logits by id")
        if not np.isfinite(self.logits).all():
            raise ValueError("the logits of a sparse draft must be finite: leave out codes without probability")

    @cached_property
    def _probabilities(self) -> Floats:
        z = self.logits.astype(np.float64)
        p: Floats = np.exp(z - z.max())
        p /= p.sum()
        p.flags.writeable = False
        return p

    def probabilities(self) -> Floats:
        """Probabilities of `ids`, float64 [k], read-only."""
        return self._probabilities

    def sharpened(self, temperature: float) -> SparseDistribution:
        """The same codes at a temperature on top of the one that is in the logits; 0 leaves the most probable code.

        Raises:
            ValueError: it is negative, infinite or NaN.
        """
        check(temperature, 0, 1.0)
        if temperature == 1:
            return self
        if temperature == 0:
            top = self.logits.argmax()
            return SparseDistribution(self.ids[top : top + 1], np.zeros(1, np.float16))
        with np.errstate(over="ignore"):  # what float16 cannot hold has no chance
            logits = ((self.logits - self.logits.max()).astype(np.float64) / temperature).astype(np.float16)
        kept = np.isfinite(logits)
        return SparseDistribution(self.ids[kept], logits[kept])

    def dense(self, vocab_size: int) -> Floats:
        """The same over the whole vocabulary, float64 [vocab_size].

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        if self.ids[-1] >= vocab_size:
            raise ValueError(f"a sparse draft names code {self.ids[-1]}, but the vocabulary ends at {vocab_size - 1}")
        p = np.zeros(vocab_size)
        p[self.ids] = self._probabilities
        return p

    def probability(self, token: int) -> float:
        """Of one of the `ids`."""
        return float(self._probabilities[np.searchsorted(self.ids, token)])

    def sample(self, u: float) -> int:
        """The code that `u` in [0, 1) draws; the same one as `sampling.sample` of `dense`."""
        return int(self.ids[sample(self._probabilities, u)])


def sparsify(p: Floats, k: int = 0) -> SparseDistribution:
    """Keep the k most probable codes of p (ties: lowest id), as float16 log-probabilities below the largest one's 0.

    Args:
        p: a distribution AFTER temperature, top-k and top-p, float64 [V].
        k: codes to keep at most; 0 keeps every code that has a probability.

    Raises:
        ValueError: k is negative, or `p` is not one row with mass.
    """
    if k < 0:
        raise ValueError(f"k is {k}: it must be at least 0, where 0 keeps every code")
    if p.ndim != 1 or not p.size or not p.max() > 0:
        raise ValueError(f"p of shape {p.shape} is not one distribution: give float64 [V] with mass")
    ids = np.flatnonzero(keep_top(p, k) if k else p > 0)
    kept = p[ids]
    if not (some := kept > 0).all():  # k is above the number of codes with a probability
        ids, kept = ids[some], kept[some]
    # a positive float64 has log p >= -745 and a distribution of V codes a maximum of 1 / V: float16 holds the shift
    logits = np.log(kept) - np.log(kept.max())
    return SparseDistribution(ids.astype(np.uint32), logits.astype(np.float16))


def draft_distribution(
    logits: NDArray[Any], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, keep: int = 0
) -> SparseDistribution:
    """What a device draws from and sends: `sparsify` of `sampling.probabilities`, k being `keep`.

    Where only the most probable codes are kept, and no nucleus asks for the mass of all, the softmax is taken of those
    alone: it costs a tenth of a small draft's step.

    Args:
        logits: [V]; -inf forbids a code.
        temperature, top_k, top_p: see `sampling.check`.
        keep: codes to keep at most; 0 keeps every code that has a probability.

    Raises:
        ValueError: as both do.
    """
    if keep <= 0 or keep >= logits.size or logits.ndim != 1 or temperature == 0 or top_p < 1:
        return sparsify(probabilities(logits, temperature, top_k, top_p), keep)
    check(temperature, top_k, top_p)
    if not np.isfinite(largest := logits.max()):
        raise ValueError("logits holds NaN, +inf or a row without a finite value: give finite logits")
    ids = np.flatnonzero(keep_top(logits, min(keep, int(top_k) or keep)))
    z = logits[ids].astype(np.float64)
    z -= largest
    with np.errstate(over="ignore"):
        z /= temperature
    if not (some := np.exp(z) > 0).all():
        ids, z = ids[some], z[some]
    return SparseDistribution(ids.astype(np.uint32), z.astype(np.float16))
