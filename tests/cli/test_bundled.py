"""The model that ships: the demo's own command, and the doctor's verdict on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from cli_helpers import Run, sentence
from repository import ROOT


@pytest.mark.slow
def test_the_demo_s_picture(run: Run, tmp_path: Path) -> None:
    result = run("generate", "red apple on sky", "--seed", 1, "--policy", "ciar", "--out", "demo.png", "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    numbers = said["statistics"]
    assert said["lost"] is None
    assert 0.05 < numbers["asked_share"] < 0.6
    assert numbers["counts"]["injected"] == 15
    assert numbers["frames_up"] > 10
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size == (64, 64)


def test_a_prompt_of_no_known_word_is_refused_whatever_its_style(run: Run) -> None:
    result = run("generate", "xyzzy qqq")
    assert result.exit_code == 2
    assert "no word of the prompt 'noto xyzzy qqq' is known" in sentence(result)


def test_the_demo_runs_that_command() -> None:
    demo = (ROOT / "scripts" / "demo").read_text()
    assert 'set -- "red apple on sky" --seed 1' in demo
    assert "--policy ciar" in demo


def test_the_doctor_finds_every_file_whole(run: Run) -> None:
    result = run("doctor", "--json")
    row = next(row for row in json.loads(result.stdout)["findings"] if row["check"] == "model emoji")
    assert row["state"] == "ok", row["detail"]
