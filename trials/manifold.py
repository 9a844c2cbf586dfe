"""Improved precision and recall of pictures by their features (Kynkaanniemi et al., arXiv 1904.06991). numpy only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pixdraft.trials.metrics import Array

NEIGHBOURS = 3  # k of the paper's experiments
_ROWS = 1024  # of the table of distances at once


class Manifold:
    """The part of feature space that some pictures stand for: a ball round each, up to its k-th nearest neighbour.

    Args:
        features: float64 [N, D], N above `neighbours`.
        neighbours: k; the picture itself is none of them.

    Raises:
        ValueError: there are too few pictures.
    """

    def __init__(self, features: Array, neighbours: int = NEIGHBOURS) -> None:
        if len(features) <= neighbours:
            raise ValueError(
                f"{len(features)} pictures have no {neighbours} neighbours each: take at least {neighbours + 1}"
            )
        self.features = features
        radii = []
        for rows, squared in _squared_distances(features, features):
            squared[np.arange(len(squared)), np.arange(rows.start, rows.stop)] = np.inf
            radii.append(np.partition(squared, neighbours - 1, axis=1)[:, neighbours - 1])
        self._squared_radii = np.concatenate(radii)

    def holds(self, features: Array) -> NDArray[np.bool_]:
        """Whether each of [M, D] features lies in one of the balls, [M]."""
        parts = [(squared <= self._squared_radii).any(1) for _, squared in _squared_distances(features, self.features)]
        return np.concatenate(parts)


def precision_recall(drawn: Manifold, real: Manifold) -> dict[str, float]:
    """Precision, recall and F1 of drawn pictures against real ones.

    Precision: the share of drawn pictures within the real manifold. Recall: the share of real ones within the drawn
    manifold; it grows with the number of drawn pictures, so only equal numbers compare. F1: their harmonic mean.
    """
    precision, recall = float(real.holds(drawn.features).mean()), float(drawn.holds(real.features).mean())
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}


def _squared_distances(a: Array, b: Array) -> Iterator[tuple[slice, Array]]:
    """||a_i - b_j||^2 of [N, D] and [M, D], some rows [n, M] of a at a time."""
    norms = np.square(b).sum(1)
    for start in range(0, len(a), _ROWS):
        part = a[start : start + _ROWS]
        squared = np.square(part).sum(1)[:, None] + norms - 2 * part @ b.T
        yield slice(start, start + len(part)), np.maximum(squared, 0.0)
