"""Bounds by scheme: what they let pass, what they never do, how they are moved."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import coreml
from pixdraft.export.gate.report import Measure, Report, Row
from pixdraft.export.gate.thresholds import AT_LEAST, BY_SCHEME, Thresholds, of
from pixdraft.export.recipe import Recipe
from repository import ROOT

EIGHT = of(Recipe("int8"))
NAMES = [f.name for f in fields(Thresholds)]


@pytest.mark.parametrize("name", NAMES)
def test_nan_passes_no_bound(name: str) -> None:
    report = EIGHT.judge([Measure(name, math.nan)])
    assert [row.passed for row in report.rows] == [False]
    assert not report.passed


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_itself_passes_and_beyond_it_does_not(name: str) -> None:
    bound = getattr(EIGHT, name)
    beyond = bound - 1e-6 if name in AT_LEAST else bound + 1e-6
    rows = EIGHT.judge([Measure(name, bound), Measure(name, beyond)]).rows
    assert [row.passed for row in rows] == [True, False]


def test_what_was_not_measured_neither_passes_nor_fails() -> None:
    report = EIGHT.judge([Measure("tv", None, "no prompts")])
    assert report.rows == (Row("tv", None, EIGHT.tv, None, "no prompts"),)
    assert not report.failed
    assert not report.passed, "a gate that measured nothing lets nothing pass"


def test_a_mixture_takes_the_wider_bound_of_each_check() -> None:
    bounds = of(Recipe("int4", {"output": "fp32"}))
    assert bounds == of(Recipe("int4"))
    assert of(Recipe("fp32", {"output": "int4"})) == bounds
    assert bounds.top1 < EIGHT.top1
    assert bounds.tv > EIGHT.tv


def test_every_scheme_has_bounds() -> None:
    assert set(coreml.EXPORTER.schemes) <= set(BY_SCHEME)
    with pytest.raises(ExportError, match="there are no thresholds for int3: choose one of"):
        of(Recipe("int3"))


def test_bounds_are_moved_by_name() -> None:
    moved = EIGHT.with_changes(["tv=0.5", "delegated=0.9"])
    assert (moved.tv, moved.delegated, moved.top1) == (0.5, 0.9, EIGHT.top1)
    assert EIGHT.with_changes([]) == EIGHT


@pytest.mark.parametrize("change", ["colour=1", "tv", "tv=", "tv=wide", "tv=nan", "=1"])
def test_changes_that_say_nothing(change: str) -> None:
    with pytest.raises(ExportError, match=f"--threshold {change}"):
        EIGHT.with_changes([change])


@pytest.mark.parametrize("change", ["tv=-0.1", "eager=-inf", "repeat=-1"])
def test_bounds_that_no_export_can_meet(change: str) -> None:
    with pytest.raises(ExportError, match=f"--threshold {change} can never be met, .* is 0 or more: write .*=0.1"):
        EIGHT.with_changes([change])


def test_bounds_that_let_everything_pass() -> None:
    moved = EIGHT.with_changes(["tv=inf", "psnr=-inf", "auroc=-0.01"])
    assert (moved.tv, moved.psnr, moved.auroc) == (math.inf, -math.inf, -0.01)


def test_the_page_on_exporting_has_every_bound() -> None:
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(" `"): cells for line in text.splitlines() if len(cells := line.split("|")) == 8}
    columns = [of(Recipe(scheme)) for scheme in ("fp32", "fp16", "int8", "int4")]
    for name in NAMES:
        shown = [float(cell) for cell in rows[name][3:7]]
        assert shown == [getattr(column, name) for column in columns], name


def test_the_sentence_names_the_first_failure() -> None:
    measures = [Measure("psnr", 99.0), Measure("tv", 0.2, "16 pictures"), Measure("u", math.nan)]
    report = EIGHT.judge(measures)
    assert report.sentence == f"tv is 0.2 where the bound is {EIGHT.tv:g} (16 pictures), and 1 more failed"
    assert EIGHT.judge(measures[:1]).sentence == "all 1 checks passed"
    assert Report((Row("files", None, None, False, "draft.bin is missing"),)).sentence == "files (draft.bin is missing)"


def test_a_report_survives_json() -> None:
    report = EIGHT.judge([Measure("tv", 0.25, "x"), Measure("u", math.nan), Measure("auroc", None, "y")])
    text = json.dumps(report.to_dict(), allow_nan=False)
    again = Report.of(json.loads(text))
    assert again.to_dict() == report.to_dict()
    assert [row.passed for row in again.rows] == [False, False, None]
