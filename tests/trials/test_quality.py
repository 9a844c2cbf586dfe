"""Metrics over features: what they say is what their parts say, of every set, and of every picture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixdraft.trials.manifold import Manifold, precision_recall
from pixdraft.trials.metrics import frechet_distance
from pixdraft.trials.quality import FeatureMetric, PackagedMetric, Pictures


def colours(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Features that tests can foresee: the mean colour."""
    return np.asarray(pixels.mean((1, 2)), np.float64)


def noise(count: int, seed: int, names: list[str] | None = None) -> Pictures:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return Pictures(pixels, ["a prompt"] * count, names)


SETS = {"AR": noise(12, 1), "CSD": noise(12, 2)}
REFERENCE = colours(noise(30, 3).pixels)


def test_every_set_is_held_against_the_reference() -> None:
    metric = FeatureMetric({"metric": "colours"}, colours, REFERENCE)
    found = metric.measure(SETS, "AR")
    for label, pictures in SETS.items():
        means, features = found[label].means, colours(pictures.pixels)
        assert means["frechet"] == frechet_distance(features, REFERENCE)
        assert means["frechet_error"] > 0
        shares = precision_recall(Manifold(features), Manifold(REFERENCE))
        assert {name: means[name] for name in shares} == shares
        assert found[label].each == {}
    assert found["AR"].means["frechet_x"] == 1.0
    assert found["AR"].means["frechet_x_error"] == 0.0
    ratio = found["CSD"].means["frechet"] / found["AR"].means["frechet"]
    assert found["CSD"].means["frechet_x"] == ratio
    assert metric.used == {"metric": "colours", "reference_pictures": 30, "neighbours": 3, "bootstrap": 40}


def test_names_of_the_means_are_the_metric_s_own() -> None:
    names = ("fid", "fid_precision", "fid_recall", "fid_f1")
    means = FeatureMetric({}, colours, REFERENCE, names).measure(SETS, "AR")["AR"].means
    assert set(means) == {*names, "fid_error", "fid_x", "fid_x_error"}


@pytest.mark.parametrize(("few", "judged"), [("CSD", {"AR"}), ("AR", set())])
def test_too_few_pictures_get_no_distance(few: str, judged: set[str]) -> None:
    found = FeatureMetric({}, colours, REFERENCE).measure(SETS | {few: noise(3, 4)}, "AR")
    assert {label for label, measured in found.items() if measured.means} == judged


def test_retrieval_where_prompts_name_a_thing() -> None:
    judge: Any = SimpleNamespace(
        features=colours,
        reference=REFERENCE,
        gallery=np.eye(3),
        gallery_names=["red", "green", "blue"],
    )
    pixels = np.zeros((4, 4, 4, 3), np.uint8)
    for i, channel in enumerate((0, 1, 2, 0)):
        pixels[i, ..., channel] = 200 + i
    named = Pictures(pixels, [""] * 4, ["red", "green", "red", "red"])
    found = PackagedMetric(judge).measure({"AR": named, "floor": Pictures(pixels, [""] * 4)}, "AR")
    assert found["AR"].means["retrieval_1"] == 0.75
    assert found["AR"].means["retrieval_10"] == 1.0
    assert found["AR"].each == {"rank": [0, 0, 1, 0]}
    assert "retrieval_1" not in found["floor"].means
