"""`pixdraft evaluate` hands its options to the evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_helpers import Run, sentence
from pixdraft.trials import evaluate


def test_evaluate_hands_its_options_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(evaluate, "main", lambda *options: called.append(options))
    result = run("evaluate", "there", "--pictures", 3, "--out", "tables", "--part", "sheet", "--part", "guidance")
    assert result.exit_code == 0
    assert called == [(Path("there"), "emoji", 3, 2, Path("tables"), ("sheet", "guidance"))]
    assert result.stdout.split() == ["tables/sheet.json", "tables/guidance.json"]


def test_evaluate_names_an_unknown_part(run: Run) -> None:
    result = run("evaluate", "--part", "weather")
    assert result.exit_code == 2
    assert "there is no part 'weather'" in sentence(result)


def test_evaluate_refuses_no_pictures(run: Run) -> None:
    result = run("evaluate", "--pictures", 0)
    assert result.exit_code == 2
    assert "--pictures" in sentence(result)
