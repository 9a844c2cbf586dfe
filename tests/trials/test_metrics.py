"""Measures against closed forms, brute force and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pixdraft.trials.metrics import frechet_distance, retrieval, spearman

Floats = NDArray[np.float64]


def white(count: int, width: int, seed: int) -> Floats:
    """Points whose mean is 0 and whose covariance is the identity, exactly."""
    x = np.random.default_rng(seed).normal(size=(count, width))
    x -= x.mean(0)
    u, _, v = np.linalg.svd(x, full_matrices=False)
    return np.asarray(u @ v * np.sqrt(count - 1))


def test_frechet_distance_of_diagonal_gaussians() -> None:
    """|mu_a - mu_b|^2 + sum (sigma_a - sigma_b)^2."""
    means, widths = np.array([[0.0, 1.0, 2.0], [0.5, 1.0, -1.0]]), np.array([[1.0, 2.0, 0.1], [1.5, 2.0, 0.4]])
    a, b = (white(count, 3, count) * w + m for count, w, m in zip((200, 50), widths, means, strict=True))
    expected = np.square(means[0] - means[1]).sum() + np.square(widths[0] - widths[1]).sum()
    assert frechet_distance(a, b) == pytest.approx(expected, abs=1e-9)
    assert frechet_distance(b, a) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(40, 30), (5, 30), (4, 3)])
def test_frechet_distance_of_any_features(n: int, m: int) -> None:
    """Also of fewer pictures than features, where the covariances have no full rank."""
    rng = np.random.default_rng(1)
    mix = rng.normal(size=(2, 8, 8))
    a, b = rng.normal(size=(n, 8)) @ mix[0], rng.normal(size=(m, 8)) @ mix[1] + 1.0
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    root = np.sqrt(np.linalg.eigvals(cov_a @ cov_b).astype(complex)).real.sum()
    expected = np.square(a.mean(0) - b.mean(0)).sum() + np.trace(cov_a + cov_b) - 2 * root
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-6)


def test_frechet_distance_of_equal_sets_is_zero() -> None:
    a = np.random.default_rng(2).normal(size=(30, 6))
    assert frechet_distance(a, a) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(a, a[::-1]) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(a, a + 2.0) == pytest.approx(4.0 * 6)


def test_frechet_distance_of_many_draws_nears_the_closed_form() -> None:
    rng = np.random.default_rng(3)
    widths = np.array([[1.0, 0.5], [2.0, 0.5]])
    a, b = (rng.normal(size=(20_000, 2)) * w for w in widths)
    assert frechet_distance(a, b) == pytest.approx(1.0, abs=0.05)


GALLERY = np.array([[1.0, 0.0], [0.9, 0.5], [0.0, 1.0], [-0.5, 0.9], [-1.0, 0.0], [-0.9, -0.5]])
NAMES = ["right", "right", "up", "up", "left", "left"]


@pytest.mark.parametrize(("at", "share"), [(1, 0.5), (2, 0.75), (3, 1.0)])
def test_retrieval(at: int, share: float) -> None:
    features = np.array([[5.0, 0.1], [0.01, 0.02], [-1.0, 0.2], [1.0, 0.3]])
    wanted = ["right", "right", "left", "left"]  # the second is nearest to up, the last nearest to right, then up
    found = retrieval(features, wanted, GALLERY, NAMES, at)
    assert found == share


def test_length_means_nothing_to_retrieval() -> None:
    features = np.array([[0.3, 1.0]])
    assert retrieval(1e3 * features, ["up"], GALLERY * np.arange(1, 7)[:, None], NAMES, 1) == 1.0


def test_retrieval_names_what_the_gallery_lacks() -> None:
    with pytest.raises(ValueError, match="the gallery holds no picture of 'down': add one, or prompt another name"):
        retrieval(GALLERY[:2], ["right", "down"], GALLERY, NAMES, 1)


def test_spearman() -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(size=80)
    b = a + rng.normal(size=80)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert spearman(a, np.exp(a)) == pytest.approx(1.0)
    assert spearman(a, -(a**3)) == pytest.approx(-1.0)
    tied = np.round(a)
    assert spearman(tied, b) == pytest.approx(stats.spearmanr(tied, b).statistic)
