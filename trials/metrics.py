"""Measures over features and scores: Frechet distance, retrieval, rank correlation. numpy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def frechet_distance(a: Array, b: Array) -> float:
    """Frechet distance of the Gaussians fitted to features a [N, D] and b [M, D] (Heusel et al., arXiv 1706.08500).

    |mu_a - mu_b|^2 + tr(A + B - 2 (A B)^(1/2)). The trace of the root is the nuclear norm of the product of the
    centred features, which is exact and works with fewer pictures than features; with more, their triangular factors
    stand for them.
    """
    a_c, b_c = a - a.mean(0), b - b.mean(0)
    n, m = len(a) - 1, len(b) - 1
    cross = np.linalg.svd(_factor(a_c) @ _factor(b_c).T, compute_uv=False).sum() / np.sqrt(n * m)
    spread = np.square(a_c).sum() / n + np.square(b_c).sum() / m
    return float(np.square(a.mean(0) - b.mean(0)).sum() + spread - 2.0 * cross)


def _factor(x: Array) -> Array:
    """R with R^T R = x^T x, no taller than x is wide."""
    return np.asarray(np.linalg.qr(x, mode="r")) if len(x) > x.shape[1] else x


def ranks(features: Array, names: list[str], gallery: Array, gallery_names: list[str]) -> NDArray[np.int64]:
    """How many names of the gallery are nearer to each picture (by cosine) than the prompted one, [N]; 0 is a hit.

    A name is as near as its nearest gallery picture.

    Args:
        features: of the drawn pictures, [N, D].
        names: what each should show.
        gallery, gallery_names: rendered pictures and what they show.

    Raises:
        ValueError: the gallery shows nothing of a prompted name.
    """
    if absent := sorted(set(names) - set(gallery_names)):
        raise ValueError(f"the gallery holds no picture of {absent[0]!r}: add one, or prompt another name")
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    gallery_unit = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    labels = sorted(set(gallery_names))
    place = {name: i for i, name in enumerate(labels)}
    owner = np.array([place[name] for name in gallery_names])
    similarity = unit @ gallery_unit.T
    best = np.full((len(features), len(labels)), -np.inf)
    for label in range(len(labels)):
        best[:, label] = similarity[:, owner == label].max(1)
    wanted = np.array([place[name] for name in names])
    return np.asarray((best > best[np.arange(len(names)), wanted][:, None]).sum(1), np.int64)


def retrieval(features: Array, names: list[str], gallery: Array, gallery_names: list[str], at: int) -> float:
    """Share of pictures whose `at` nearest names in the gallery hold the prompted one, see `ranks`."""
    return float((ranks(features, names, gallery, gallery_names) < at).mean())


def spearman(a: Array, b: Array) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_places(a), _places(b))[0, 1])


def _places(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2.0)[inverse], np.float64)
