"""Where the time of an ONNX draft goes, by ONNX Runtime's own profiles; ExecuTorch's is in `test_executorch.py`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pixdraft.export import timing
from pixdraft.export.description import describe
from pixdraft.export.exporters import exporter
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.backends.exported import ExportedDraft
from pixdraft.runtime.backends.onnx_backend import TimedOnnxEngine, by_operator
from pixdraft.runtime.bundle import open_timed


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_where_the_time_goes(source: Source, tmp_path: Path, threads: int) -> None:
    onnx = exporter("onnx")
    made = onnx.export(source, Recipe("fp32"), tmp_path)
    manifest = describe(source, onnx, Recipe("fp32"), made, tmp_path)
    engine = cast(TimedOnnxEngine, open_timed(tmp_path, manifest, threads))
    assert engine.ran["threads"] == threads
    profiles = Path(engine._folder.name)
    prompt = np.ones(source.network.config.condition_length, np.int32)
    draft = ExportedDraft(source.info, source.tables(), engine)
    seconds = timing.spent(draft, engine, prompt, np.zeros(source.info.image_tokens, np.int64))
    for model, some in (("draft", {"MatMul", "GroupQueryAttention"}), ("decoder", {"Gather"})):
        taken = seconds[model]["delegated"]
        assert some <= taken.keys() & made.delegation[model]["delegated"].keys()
        assert 0 < sum(taken.values()) < 1
        assert seconds[model]["left"] == {}
    assert not profiles.exists()


def test_a_target_without_a_clock() -> None:
    manifest: Any = SimpleNamespace(target="coreml")
    assert open_timed(Path(), manifest) is None
    assert timing.measure(Path(), manifest, cast(Any, None)) == {}


def test_a_profile_is_read_by_run() -> None:
    def node(name: str, start: int, spent: int, end: str = "_kernel_time") -> dict[str, Any]:
        return {"cat": "Node", "name": f"n{end}", "ts": start, "dur": spent, "args": {"op_name": name}}

    events: list[dict[str, Any]] = [{"cat": "Session", "name": "model_loading_uri", "ts": 0, "dur": 5}]
    for start, spent in ((10, 900), (20, 1), (30, 3), (40, 500)):
        events += [node("MatMul", start + 1, spent), node("MatMul", start + 2, spent)]
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": 9})
    events += [node("Cast", 33, 6), node("Add", 5, 100), node("Add", 42, 100, "_fence_before")]
    assert by_operator(events, 1) == {"delegated": {"MatMul": pytest.approx(6e-6), "Cast": 0.0}, "left": {}}
    assert by_operator(events, 4) == {"delegated": {}, "left": {}}
