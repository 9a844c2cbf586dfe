"""The verb `bench`, over a benchmark that measures nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import Run, sentence
from pixdraft.runtime import benchmark
from pixdraft.runtime.benchmark import Settings
from pixdraft.runtime.errors import BundleError

SEEN = {"p50": 0.001, "p90": 0.002, "p99": 0.003, "min": 0.0009, "samples": [0.001, 0.003]}
RESULTS: dict[str, Any] = {
    "bundle": {
        "name": "emoji",
        "target": "onnx",
        "scheme": "int8",
        "bytes": 3_200_000,
        "draft_bytes": 1_600_000,
        "delegation": {
            "draft": {"delegated": {"mul": 1}, "seconds": {"delegated": {"mul": 3e-5}, "left": {"sum": 1e-5}}}
        },
    },
    "settings": {"threads": 2},
    "load": {"cold": 0.12, "warm": SEEN},
    "open": SEEN,
    "first_step": 0.004,
    "steps": {"0": SEEN, "128": SEEN},
    "block": {"rows": 8, **SEEN},
    "decode": SEEN,
    "picture": SEEN,
    "loop": {"per_token": 0.0001, "share_of_step": 0.1},
    "floor": {
        "step": 0.0005,
        "bandwidth": 3.2e9,
        "ratio": 2.0,
        "memory_step": 0.001,
        "memory_bandwidth": 1.6e9,
        "memory_ratio": 1.0,
    },
    "memory": {"peak": 90_000_000, "before": 30_000_000},
    "ran": {"providers": ["[first]ExecutionProvider", "CPUExecutionProvider"], "threads": 2},
}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Settings]]:
    calls: list[tuple[Path, Settings]] = []

    def measure(folder: Path, settings: Settings) -> dict[str, Any]:
        calls.append((folder, settings))
        return dict(RESULTS)

    monkeypatch.setattr(benchmark, "run", measure)
    return calls


def test_a_place_that_cannot_be_written_is_known_before_measuring(
    run: Run, tmp_path: Path, measured: list[tuple[Path, Settings]]
) -> None:
    (tmp_path / "b").mkdir()
    result = run("bench", "b", "--out", "b")
    assert result.exit_code == 2
    assert "--out: cannot write b (there is a folder of that name): choose another place for it" in sentence(result)
    assert measured == []


def test_a_table_and_a_file(run: Run, tmp_path: Path, measured: list[tuple[Path, Settings]]) -> None:
    (tmp_path / "b").mkdir()
    result = run("bench", tmp_path / "b", "--threads", 2, "--repeats", 7, "--out", tmp_path / "new" / "bench.json")
    assert result.exit_code == 0
    assert "…" not in result.stdout  # long cells are folded
    assert all(ending in result.stdout for ending in ("sum 25%", "[first]", "CPUExecutionProvider"))
    assert measured == [(tmp_path / "b", Settings(threads=2, repeats=7))]
    for words in (
        "step at 128",
        "1.000",
        "2.000",
        "3.000",
        "10% of a step",
        "2.00",
        "75.0%",
        "mul 75%",
    ):
        assert words in result.stdout
    kept = json.loads((tmp_path / "new" / "bench.json").read_text(encoding="utf-8"))
    assert kept["steps"]["128"]["samples"] == [0.001, 0.003]
    assert kept["command"] == "pixdraft bench BUNDLE --threads 2 --repeats 7 --warmup 10"


@pytest.mark.usefixtures("measured")
def test_json_for_machines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    assert json.loads(run("bench", tmp_path / "b", "--json").stdout)["floor"]["ratio"] == 2.0


def test_a_folder_that_is_no_bundle(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, settings: Settings) -> dict[str, Any]:
        raise BundleError("x is no bundle, it has no manifest.json: make one with `pixdraft export`")

    monkeypatch.setattr(benchmark, "run", refuse)
    result = run("bench", tmp_path)
    assert result.exit_code == 2
    assert "is no bundle" in sentence(result)
