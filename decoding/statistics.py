"""What a policy may call the uncertainty of a position, by name. Higher is less certain.

Every function takes the `Evidence` of a position (or of many: leading axes carry through) and computes only what it
needs, so that a policy on entropy never pays for intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixdraft.decoding import intervals, rng, sampling
from pixdraft.decoding.sampling import Floats


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that is known of a drafted position, or of [...] positions, before anybody is asked.

    Attributes:
        center, radius: of the logit intervals, [..., V].
        p: the distribution that the token is drawn from, float64 [..., V].
        risk: total variation predicted by the risk head, [...].
        seed, position: of the picture and in it; whole numbers, [...].
    """

    center: NDArray[Any]
    radius: NDArray[Any]
    p: Floats
    risk: ArrayLike
    seed: ArrayLike
    position: ArrayLike

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """`intervals.fuse` of centre and radius, computed once and only if asked for."""
        return intervals.fuse(self.center, self.radius)


def interval(evidence: Evidence) -> Floats:
    """U = ||delta||_1 * std(delta) of the probability intervals (CIAR, arXiv 2603.25463)."""
    return intervals.uncertainty(*evidence.bounds)


def width(evidence: Evidence) -> Floats:
    """||delta||_1; half of it bounds TV(p, q) where the intervals hold."""
    return intervals.width(*evidence.bounds)


def discrete(evidence: Evidence, k: int) -> Floats:
    """U over the k most probable codes only, all of them where V <= k: Discrete(k) of CIAR's ablation.

    The paper enumerates solutions of k codes and does not define the set; this is the reading decided here. The codes
    are the k largest centres, whatever was truncated before the draw, ties going to the lowest id; bounds are those of
    the whole vocabulary.
    """
    lower, upper = evidence.bounds
    kept = sampling.keep_top(evidence.center, k)
    shape = (*lower.shape[:-1], min(k, lower.shape[-1]))
    return intervals.uncertainty(lower[kept].reshape(shape), upper[kept].reshape(shape))


def entropy(evidence: Evidence) -> Floats:
    """Entropy of p, in nats (Entropy-Lens among CIAR's baselines)."""
    return sampling.entropy(evidence.p)


def inverse_confidence(evidence: Evidence) -> Floats:
    """1 - max p."""
    return np.asarray(1.0 - evidence.p.max(axis=-1), np.float64)


def softmax_correlation(evidence: Evidence) -> Floats:
    """1 - cos(C, R), C = p^T p and R = diag(p): SoftmaxCorr of one position.

    SoftmaxCorr (Tu, Deng, Zheng and Gedeon, TMLR 2024, arXiv 2406.09908) ranks classifiers: C = P^T P / N over the
    softmax rows P of N pictures, R the diagonal matrix of how often each class is expected, cos their cosine. How CIAR
    takes it of one token is not published. Decided here: N = 1, and p itself is what is expected, which leaves
    sum p^3 / (sum p^2)^(3/2): 1 for a certain code, 1 / sqrt(m) for m equally likely ones. (A reference that is the
    same for all codes would give 1 / sqrt(V) for every p.)
    """
    square = np.square(evidence.p)
    cosine = (square * evidence.p).sum(axis=-1) / square.sum(axis=-1) ** 1.5
    return np.asarray(np.maximum(1.0 - cosine, 0.0), np.float64)  # rounding may lift a cosine past 1


def risk(evidence: Evidence) -> Floats:
    """The total variation from the target that the risk head predicts."""
    return np.asarray(evidence.risk, np.float64)


def random(evidence: Evidence) -> Floats:
    """A uniform of the counter generator: asks at random, the same way every time (CIAR's Random baseline)."""
    return rng.uniforms(evidence.seed, evidence.position, rng.RANDOM)


Statistic = Callable[[Evidence], Floats]

STATISTICS: dict[str, Statistic] = {
    "interval": interval,
    "width": width,
    "discrete-100": partial(discrete, k=100),
    "discrete-300": partial(discrete, k=300),
    "entropy": entropy,
    "max": inverse_confidence,
    "softmaxcorr": softmax_correlation,
    "risk": risk,
    "random": random,
}


def auroc(score: NDArray[Any], label: NDArray[Any]) -> float:
    """Area under the ROC curve: how often a positive scores above a negative (ties count half).

    Args:
        score: [n].
        label: what is positive, bool [n]; or the probability that it is, for the expectation over the labels (all but
            the n pairs of an entry with itself, which count half).

    Raises:
        ValueError: there are no positives, or no negatives.
    """
    _, level = np.unique(score, return_inverse=True)
    chance = np.asarray(label, np.float64)
    positives, negatives = np.bincount(level, chance), np.bincount(level, 1.0 - chance)
    if not positives.sum() or not negatives.sum():
        raise ValueError("AUROC needs both positives and negatives: measure on more positions")
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / (positives.sum() * negatives.sum()))
