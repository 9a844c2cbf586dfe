"""The benchmark measures what it says it does; the bundle under it is a fake that costs what it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixdraft.runtime.backends import DraftInfo, DraftOutput
from pixdraft.runtime.benchmark import Settings, measure, process
from pixdraft.runtime.benchmark.bandwidth import read_bandwidth
from pixdraft.runtime.errors import BundleError, DeviceError, RequestError

INFO = DraftInfo("fake", "m" * 64, "t" * 64, 32, 16, 4, 1.0, "risk", {})
STEP = 0.004


class SlowDraft:
    """A draft whose step takes `STEP` seconds, and a block no longer than that."""

    info = INFO
    ran = {"provider": "none"}

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def open(self, condition: np.ndarray) -> DraftOutput:
        return self._rows(1)

    def step(self, tokens: np.ndarray, position: int) -> DraftOutput:
        self.steps.append((len(tokens), position))
        time.sleep(STEP)
        return self._rows(len(tokens))

    def decode(self, tokens: np.ndarray) -> np.ndarray:
        return np.zeros((8, 8, 3), np.uint8)

    @staticmethod
    def _rows(count: int) -> DraftOutput:
        wide = np.tile(np.linspace(0, 1, INFO.vocab_size, dtype=np.float32), (count, 1))
        thin = np.zeros((count, INFO.bottleneck), np.float32)
        return DraftOutput(wide, wide, thin, np.full(count, 0.25, np.float32), thin)


@pytest.fixture
def draft() -> SlowDraft:
    return SlowDraft()


SETTINGS = Settings(warmup=1, repeats=5, pictures=2, block=4)
CONDITION = np.array([0, 3, 5], np.int32)
TOKENS = np.arange(16, dtype=np.int64)


def test_steps_are_timed_at_four_positions_in_turns(draft: SlowDraft) -> None:
    seen = measure.steps(draft, CONDITION, TOKENS, SETTINGS)
    assert list(seen) == ["0", "4", "8", "15"]
    assert draft.steps[0] == (16, 0)
    assert draft.steps[2:10] == [(1, p) for p in (0, 4, 8, 15)] * 2
    for row in seen.values():
        assert len(row["samples"]) == 5
        assert STEP <= row["min"] <= row["p50"] <= row["p90"] <= row["p99"] <= max(row["samples"])


def test_a_block_has_its_rows(draft: SlowDraft) -> None:
    seen = measure.block(draft, CONDITION, TOKENS, SETTINGS)
    assert seen["rows"] == 4
    assert set(draft.steps) == {(4, 8)}


def test_the_loop_is_what_a_picture_costs_without_its_model(draft: SlowDraft) -> None:
    whole = measure.picture(draft, CONDITION)
    loop = measure.loop(draft, CONDITION, TOKENS, SETTINGS)
    assert whole > 15 * STEP  # the first row comes from opening
    assert 0 < loop["per_token"] < STEP
    assert len(loop["samples"]) == 2


def test_the_floor_is_bytes_over_bandwidth() -> None:
    seen = measure.floor(1 << 20, 0.01)
    assert seen["step"] == pytest.approx((1 << 20) / seen["bandwidth"])
    assert seen["ratio"] == pytest.approx(0.01 / seen["step"])
    assert seen["bandwidth"] > 1e8
    assert seen["memory_step"] == pytest.approx((1 << 20) / seen["memory_bandwidth"])
    assert seen["memory_ratio"] == pytest.approx(0.01 / seen["memory_step"])


def test_a_small_working_set_is_read_no_slower_than_it_is_timed() -> None:
    assert 1e8 < read_bandwidth(4096, seconds=0.02) < 1e13


@pytest.mark.parametrize("field", ["threads", "repeats", "pictures", "block"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(RequestError, match=f"{field} is 0: give at least"):
        Settings(**{field: 0})


def test_weights_are_the_draft_s_files(tmp_path: Path) -> None:
    (tmp_path / "draft.onnx").write_bytes(b"x" * 100)
    (tmp_path / "d.mlpackage" / "Data").mkdir(parents=True)
    (tmp_path / "d.mlpackage" / "Data" / "w.bin").write_bytes(b"x" * 70)
    (tmp_path / "d.mlpackage" / "Manifest.json").write_bytes(b"{}")
    assert measure.weight_bytes(tmp_path, "draft.onnx") == 100
    assert measure.weight_bytes(tmp_path, "d.mlpackage") == 72


def test_a_folder_that_is_no_bundle_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is no bundle"):
        process.run(tmp_path, Settings(repeats=2))


def test_a_process_that_dies_says_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*args: Any, **named: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], -11, "", "warning\nSegmentation fault\n")

    monkeypatch.setattr(subprocess, "run", dies)
    with pytest.raises(DeviceError, match=r"ended with code -11: Segmentation fault"):
        process.run(tmp_path, Settings())


def test_the_process_gets_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def answers(command: list[str], **named: Any) -> subprocess.CompletedProcess[str]:
        asked.update(named["env"], settings=json.loads(command[-1]), interpreter=command[0])
        return subprocess.CompletedProcess(command, 0, 'noise\n{"ran": {}}\n', "")

    monkeypatch.setattr(subprocess, "run", answers)
    assert process.run(tmp_path, Settings(threads=3)) == {"ran": {}}
    assert asked["OMP_NUM_THREADS"] == asked["OPENBLAS_NUM_THREADS"] == "3"
    assert asked["settings"]["threads"] == 3
    assert asked["interpreter"] == sys.executable


def test_memory_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    process.main(str(tmp_path), json.dumps({"repeats": 2}))
    assert "is no bundle" in json.loads(capsys.readouterr().out)["refused"]
    assert process.peak_memory() > 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process begins at nought anyway")
def test_memory_is_the_process_s_own() -> None:
    held = np.ones(400 << 20, np.uint8)  # the one that starts the measuring process may be large
    code = "from pixdraft.runtime.benchmark.process import peak_memory; print(peak_memory())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 1 << 20 < int(told) < held.nbytes // 2
