"""Precision and recall against loops over every pair."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pixdraft.trials import manifold
from pixdraft.trials.manifold import Manifold, precision_recall

Floats = NDArray[np.float64]


def within(points: Floats, centres: Floats, k: int) -> list[bool]:
    """Whether each point is as near to some centre as that centre's k-th nearest other one."""
    found = []
    for point in points:
        held = False
        for i, centre in enumerate(centres):
            others = sorted(float(np.linalg.norm(centre - c)) for j, c in enumerate(centres) if j != i)
            held = held or float(np.linalg.norm(point - centre)) <= others[k - 1]
        found.append(held)
    return found


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("rows", [1024, 10])
def test_a_manifold_holds_what_loops_say(k: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifold, "_ROWS", rows)
    rng = np.random.default_rng(k)
    real, drawn = rng.normal(size=(40, 5)), rng.normal(size=(25, 5)) * 1.3 + 0.4
    expected = within(drawn, real, k)
    assert 0 < sum(expected) < 25
    assert Manifold(real, k).holds(drawn).tolist() == expected
    found = precision_recall(Manifold(drawn, k), Manifold(real, k))
    precision, recall = np.mean(expected), np.mean(within(real, drawn, k))
    assert found["precision"] == pytest.approx(precision)
    assert found["recall"] == pytest.approx(recall)
    assert found["f1"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_the_same_pictures_are_all_held() -> None:
    points = Manifold(np.random.default_rng(1).normal(size=(30, 4)))
    assert precision_recall(points, points) == {"precision": 1.0, "recall": 1.0, "f1": 1.0}


def test_one_kind_of_picture_is_precise_and_recalls_little() -> None:
    rng = np.random.default_rng(2)
    real = np.concatenate([rng.normal(size=(50, 3)), rng.normal(size=(50, 3)) + 100])
    found = precision_recall(Manifold(rng.normal(size=(50, 3)) * 0.5), Manifold(real))
    assert found["precision"] > 0.9
    assert found["recall"] < 0.5


def test_nothing_in_common_is_nothing() -> None:
    points = np.random.default_rng(3).normal(size=(10, 2))
    assert precision_recall(Manifold(points), Manifold(points + 1e3)) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_too_few_pictures_are_named() -> None:
    with pytest.raises(ValueError, match="3 pictures have no 3 neighbours each: take at least 4"):
        Manifold(np.zeros((3, 2)))
