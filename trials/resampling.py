"""How far a Frechet distance would move with other pictures: paired bootstrap over the pictures of a comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pixdraft.trials.metrics import Array

DRAWS = 40


def resampled(sets: Mapping[str, Array], reference: Array, draws: int = DRAWS, seed: int = 0) -> dict[str, Array]:
    """Frechet distances of each set to the reference, its pictures drawn anew with replacement, [draws] each.

    Every draw takes the same pictures of all sets of one size, so that what their common prompts do to a distance
    leaves the comparison of two. The values lie above the distance of all pictures, since pictures come twice; their
    spread is what they are for.

    Args:
        sets: features of each method's pictures, [N, D], N at least 2.
        reference: features [M, D].
        draws: bootstrap samples.
        seed: of them.
    """
    mean = reference.mean(0)
    triangle: Array = np.asarray(np.linalg.qr((reference - mean) / np.sqrt(len(reference) - 1), mode="r"))
    factor = triangle.T  # factor factor^T is the covariance
    spread = float(np.square(factor).sum())
    found = {}
    for label, features in sets.items():
        rng = np.random.default_rng(seed)
        turned = features @ factor
        picks = rng.integers(len(features), size=(draws, len(features)))
        found[label] = np.array([_distance(features[pick], turned[pick], mean, spread) for pick in picks])
    return found


def errors(sets: Mapping[str, Array], reference: Array, baseline: str) -> dict[str, tuple[float, float]]:
    """Standard error of each set's Frechet distance, and of its ratio to the baseline's."""
    found = resampled(sets, reference)
    base = found[baseline]
    return {label: (float(values.std(ddof=1)), float((values / base).std(ddof=1))) for label, values in found.items()}


def _distance(features: Array, turned: Array, mean: Array, spread: float) -> float:
    """See `metrics.frechet_distance`; `turned` are the features times a root of the reference's covariance."""
    n = len(features) - 1
    centre = features.mean(0)
    own = np.square(features - centre).sum() / n
    return float(np.square(centre - mean).sum() + own + spread - 2.0 * _nuclear(turned - turned.mean(0)) / np.sqrt(n))


def _nuclear(x: NDArray[np.float64]) -> float:
    """Sum of the singular values of [N, D], by the smaller of its two Gram matrices."""
    gram = x @ x.T if len(x) <= x.shape[1] else x.T @ x
    return float(np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())
