"""Every export in one table: what is made once stays, what fails is a line, and ratios are of one run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pixdraft.export.bundle import Job, Made
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.gate.report import Report, Row
from pixdraft.export.source import Source, load
from pixdraft.runtime.benchmark import Settings
from pixdraft.trials import exports, step_times
from pixdraft.trials.agreement import agreement
from pixdraft.trials.exports import Kind, kinds, made_or_found
from tiny import networks, write_folder

ONE = Kind("tiny", "onnx", "fp32")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", networks())


@pytest.fixture(scope="module")
def source(model: Path) -> Source:
    return load(model)


def test_kinds_by_target_by_scheme_and_by_both() -> None:
    everything = kinds(["a", "b"], [])
    assert len(everything) == len(set(everything)) == 2 * (4 + 3 + 4 + 5)
    assert {k.target for k in kinds(["a"], ["coreml"])} == {"coreml"}
    taken = {("executorch-coreml", "int4"), ("coreml", "int4"), ("onnx", "int4")}
    assert {(k.target, k.scheme) for k in kinds(["a"], ["int4"])} == taken
    assert kinds(["a"], ["executorch:8da4w"]) == [Kind("a", "executorch", "8da4w")]
    with pytest.raises(ExportError, match="--only int3 fits no export"):
        kinds(["a"], ["onnx", "int3"])


def test_a_failed_gate_is_a_line(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Job] = []

    def failing(job: Job, show: object) -> Made:
        calls.append(job)
        job.content.mkdir(parents=True, exist_ok=True)
        (job.content / "draft.onnx").write_bytes(b"12345")
        raise GateFailed("no", Report((Row("tv", 0.5, 0.1, False), Row("top1", 0.9, 0.8, True))))

    monkeypatch.setattr(exports, "make", failing)
    report, folder = made_or_found(ONE, source, tmp_path, lambda what: None)
    assert (report["passed"], report["bytes"]) == (False, 5)
    row = exports.line(ONE, report, {"why": "it did not pass its gate"})
    assert (row["failed"], row["tv"], row["top1"], row["psnr"]) == (["tv"], 0.5, 0.9, None)
    assert "step_ms" not in row
    assert made_or_found(ONE, source, tmp_path, lambda what: None) == (report, folder)
    assert len(calls) == 1, "what was judged once is not judged again"
    other = replace(source, prompts=source.prompts[:1])
    made_or_found(ONE, other, tmp_path, lambda what: None)
    assert len(calls) == 2, "but other prompts are another judgement"


def test_ratios_are_taken_within_rounds(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = {"torch eager": [[4.0, 4.0], [40.0, 40.0], [4.0, 4.0]], "a": [[2.0, 2.0], [20.0, 20.0], [1.0, 1.0]]}
    monkeypatch.setattr(step_times, "_samples", lambda *_: rounds)
    found = step_times.step_times(source, {})
    assert found["ratios"]["a"] == [2.0, 2.0, 4.0]
    assert found["ratio"] == {"torch eager": 1.0, "a": 2.0}


@pytest.mark.slow
def test_one_export_from_end_to_end(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Weights out of nowhere are judged by nothing: what counts here is that the parts meet.
    monkeypatch.setattr(step_times, "ROUNDS", 2)
    monkeypatch.setattr(exports, "load", lambda name: replace(load(name), prompts=load(name).prompts[:2]))
    settings = Settings(repeats=3, warmup=1, pictures=1)
    told: list[str] = []
    result = exports.run([str(model)], ["onnx:fp32"], tmp_path / "b", tmp_path / "out", settings, "cmd", told.append)
    (row,) = result["lines"]
    assert row["passed"], row
    assert row["same"] == 1.0, "float32 decides as torch does"
    assert row["eager_x"] > 0
    assert row["step_ms"] > 0
    kept = json.loads((tmp_path / "out" / "exports.json").read_text(encoding="utf-8"))
    assert kept["made"]["command"] == "cmd"
    raw: dict[str, Any] = json.loads((tmp_path / "out" / "exports.samples.json").read_text(encoding="utf-8"))
    assert len(raw[f"{model} onnx fp32"]["open"]["samples"]) == 3
    shown = (tmp_path / "out" / "exports.md").read_text(encoding="utf-8")
    assert "| passed |" in shown
    assert exports.table(result).startswith("model")


def test_a_different_draft_is_told_apart(source: Source, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pixdraft.runtime.backends.torch_backend import TorchDraft
    from pixdraft.trials import agreement as module

    other = load(model)
    for parameter in other.network.parameters():
        parameter.data += 0.3 * parameter.data.flip(0)
    drafts = {"same": source, "other": other}
    monkeypatch.setattr(
        module,
        "open_bundle",
        lambda path, threads: TorchDraft(source.info, drafts[path.name].network, source.tokenizer),
    )
    found = agreement(source, {name: Path(name) for name in drafts}, pictures=3)
    assert found["by"]["same"] == {"same": 1.0, "first": [None] * 3, "tokens": 1.0, "decisions": 1.0}
    assert found["by"]["other"]["same"] < 1.0
    assert any(place is not None for place in found["by"]["other"]["first"])
