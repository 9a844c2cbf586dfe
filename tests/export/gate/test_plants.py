"""Breakages that converters are known for, planted: the gate sees each, and writes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eager_target import PLANTS, EagerExporter
from pixdraft.export.bundle import Job, make
from pixdraft.export.errors import GateFailed
from pixdraft.export.gate import thresholds
from pixdraft.export.gate.report import Report
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source


def judged(source: Source, exporter: EagerExporter, folder: Path, scheme: str) -> Report:
    recipe, alone = Recipe(scheme), replace(source, model=None, prompts=())
    bounds = thresholds.of(recipe).with_changes(["eager=0.9"] if scheme == "int4" else [])
    with pytest.raises(GateFailed) as caught:
        make(Job(alone, exporter, recipe, folder / "bundle", bounds), lambda *_: None)
    assert not (folder / "bundle").exists()
    assert "no bundle was written: " in str(caught.value)
    return caught.value.report


def failed(report: Report) -> set[str]:
    return {row.name for row in report.failed}


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
@pytest.mark.parametrize("plant", PLANTS)
def test_each_is_caught_whatever_the_scheme(
    source: Source, eager: EagerExporter, tmp_path: Path, plant: str, scheme: str
) -> None:
    eager.plant = plant
    report = judged(source, eager, tmp_path, scheme)
    wanted = {
        "dropped": {"mirror", "steps"},
        "unshared": {"mirror", "steps", "repeat"},
        "swapped": {"mirror"},
        "flipped": {"mirror", "eager"},
        "nan": {"eager", "mirror", "repeat"},
        "restless": {"repeat"},
    }[plant]
    assert wanted <= failed(report)


@pytest.mark.parametrize("plant", ["dropped", "unshared", "flipped", "swapped", "nan"])
def test_each_is_caught_without_a_pass_over_the_quantised_weights(
    source: Source, eager: EagerExporter, tmp_path: Path, plant: str
) -> None:
    eager.plant, eager.mirror = plant, None
    report = judged(source, eager, tmp_path, "int8")
    assert "eager" in failed(report)
    assert next(row for row in report.rows if row.name == "mirror").passed is None
