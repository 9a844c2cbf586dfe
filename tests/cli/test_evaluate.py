"""`pixdraft evaluate` hands its options to the evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_helpers import Run, sentence

def test_evaluate_hands_its_options_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pixdraft.trials import evaluate

    called: list[Any] = []
    monkeypatch.setattr(evaluate, "main", lambda **options: called.append(options))
    assert run("evaluate", "there", "--pictures", 3, "--out", "tables").exit_code == 0
    options = {"folder": Path("there"), "model": "emoji", "pictures": 3, "workers": 2, "out": Path("tables")}
    assert called == [options]


def test_evaluate_refuses_no_pictures(run: Run) -> None:
    result = run("evaluate", "--pictures", 0)
    assert result.exit_code == 2
    assert "--pictures" in sentence(result)
