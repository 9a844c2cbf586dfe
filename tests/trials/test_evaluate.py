"""What an evaluation leaves: a file a part, with the command, the machine and the commit it stands on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pixdraft.trials import evaluate
from pixdraft.trials.provenance import provenance
from repository import ROOT


def test_provenance_says_what_a_number_stands_on() -> None:
    facts = provenance("pixdraft evaluate")
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert facts["command"] == "pixdraft evaluate"
    assert facts["commit"] == done.stdout.strip()
    assert isinstance(facts["dirty"], bool)
    assert {"pixdraft", "numpy", "torch"} <= set(facts["versions"])
    assert facts["machine"]["cores"] >= 1
    assert facts["machine"]["platform"]
    assert json.loads(json.dumps(facts)) == facts


def test_provenance_does_without_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = provenance("x")
    assert (facts["commit"], facts["dirty"]) == ("", False)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Parts that measure nothing, and what they were called with."""
    calls: list[Any] = []

    def part(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
        calls.append((folder, model, count, workers, out))
        return {"rows": [count]}

    monkeypatch.setattr(evaluate, "PARTS", {"one": part, "two": part})
    return calls


def test_each_part_leaves_its_file(called: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "new" / "tables"
    results = evaluate.main(Path("run"), "emoji", 7, 2, out, ("one", "two"))
    assert results == {"one": {"rows": [7]}, "two": {"rows": [7]}}
    assert called == [(Path("run"), "emoji", 7, 2, out)] * 2
    assert sorted(file.name for file in out.iterdir()) == ["one.json", "two.json"]
    kept = json.loads((out / "two.json").read_text(encoding="utf-8"))
    assert kept["rows"] == [7]
    assert kept["made"]["command"] == "pixdraft evaluate model RUN_FOLDER --model emoji --pictures 7 --part two"
    assert kept["made"]["commit"]


def test_raw_rows_have_a_file_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def part(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
        return {"rows": [1], "raw": [{"seed": i} for i in range(count)]}

    monkeypatch.setattr(evaluate, "PARTS", {"one": part})
    assert evaluate.main(Path("run"), "emoji", 3, 2, tmp_path, ("one",)) == {"one": {"rows": [1]}}
    lines = (tmp_path / "one.rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert "raw" not in json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))


def test_an_unknown_part_is_refused_before_anything_is_done(called: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no part 'three': the known ones are one, two"):
        evaluate.main(Path("run"), "emoji", 7, 2, tmp_path / "tables", ("one", "three"))
    assert not called
    assert not (tmp_path / "tables").exists()
