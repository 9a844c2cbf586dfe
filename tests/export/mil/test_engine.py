"""Two engines over one hand-written draft: the interpreter's, and Core ML's with the interpreter in its place."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from mil_programs import PackageWriter
from pixdraft.export.errors import ExportError
from pixdraft.export.mil import MilProgram
from pixdraft.export.mil.engine import MilEngine
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.coreml_backend import open_engine
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import Manifest

DIM, WIDTH, SLOTS, SIDE = 2, 3, 4, 2
ROWS = {"step": 1, "block": 2}
KINDS = {"center": (WIDTH,), "radius": (WIDTH,), "feature": (DIM,), "risk": (), "message": (1,)}


def half(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "FLOAT16", shape


def write_draft(path: Path, rows: dict[str, int] = ROWS) -> Path:
    """Writes its rows at `slot`; the feature is the sum of all rows written so far; place shows in the risk."""
    writer = PackageWriter()
    for name, n in rows.items():
        f = writer.function(name)
        f.inputs = {"x": ("FLOAT32", (1, n, DIM)), "slot": ("INT32", (1,)), "place": ("INT32", (1,))}
        f.states = {"kept": half(SLOTS, DIM)}
        f.op("squeeze", {"rows": half(n, DIM)}, x="x", axes=[("INT32", [0])])
        f.op("read_state", {"before": half(SLOTS, DIM)}, input="kept")
        f.op("concat", {"begin": ("INT32", (2,))}, values=("slot", f.const("zero", "INT32", [0])), axis=[("INT32", 0)])
        f.op("add", {"last": ("INT32", (1,))}, x="slot", y=[("INT32", n)])
        f.op("concat", {"end": ("INT32", (2,))}, values=("last", f.const("dim", "INT32", [DIM])), axis=[("INT32", 0)])
        f.op("slice_update", {"after": half(SLOTS, DIM)}, x="before", update="rows", begin="begin", end="end")
        f.op("write_state", {}, input="kept", data="after")
        f.op("reduce_sum", {"total": half(1, DIM)}, x="after", axes=[("INT32", [0])], keep_dims=[("BOOL", True)])
        f.op("tile", {"feature": half(n, DIM)}, x="total", reps=[("INT32", [n, 1])])
        f.op("linear", {"center": half(n, WIDTH)}, x="feature", weight=[("FLOAT16", np.eye(WIDTH, DIM))])
        f.op("abs", {"radius": half(n, WIDTH)}, x="center")
        f.op("tile", {"risk": half(n)}, x="place", reps=[("INT32", [n])])
        f.op(
            "slice_by_size", {"message": half(n, 1)}, x="feature", begin=[("INT32", [0, 1])], size=[("INT32", [-1, 1])]
        )
        f.outputs = tuple(KINDS)
    return writer.save(path, default=next(iter(rows)))


def write_decoder(path: Path) -> Path:
    writer = PackageWriter()
    main = writer.function()
    main.inputs = {"tokens": ("INT32", (1, SIDE * SIDE))}
    main.op("reshape", {"square": half(1, SIDE, SIDE)}, x="tokens", shape=[("INT32", [1, SIDE, SIDE])])
    main.op("tile", {"pixels": half(3, SIDE, SIDE)}, x="square", reps=[("INT32", [3, 1, 1])])
    main.outputs = ("pixels",)
    return writer.save(path)


class FakeModel:
    """As `coremltools.models.MLModel`: outputs are float16, and the state is whoever's `make_state` was asked."""

    compute_unit = SimpleNamespace(name="ALL")

    def __init__(self, path: str, function_name: str | None = None) -> None:
        self.program = MilProgram(path, function_name, half=True)

    def make_state(self) -> dict[str, Any]:
        return dict(self.program.state)

    def predict(self, inputs: dict[str, Any], state: dict[str, Any] | None = None) -> dict[str, Any]:
        kinds = {name: value.dtype for name, value in inputs.items()}
        assert all(kind == (np.float32 if name == "x" else np.int32) for name, kind in kinds.items())
        self.program.state = {} if state is None else state
        return {name: value.astype(np.float16) for name, value in self.program.run(**inputs).items()}


def manifest(facts: dict[str, Any]) -> Manifest:
    values = {
        "format": 1,
        "pixdraft": "0",
        "target": "coreml",
        "quantisation": {"scheme": "fp16"},
        "model": dict.fromkeys(("name", "model_hash", "tokenizer_hash", "statistic"), "")
        | {"guidance": 1.0, "thresholds": {}},
        "shapes": dict.fromkeys(
            ("dim", "layers", "heads", "vocab_size", "image_tokens", "condition_length", "bottleneck", "capacity"), 1
        )
        | {"picture_size": 1},
        "draft": "draft.mlpackage",
        "decoder": "decoder.mlpackage",
        "tables": "",
        "golden": "",
        "facts": facts,
        "files": {},
        "tools": {},
        "minimum": {},
    }
    return msgspec.convert(values, Manifest)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_draft(tmp_path / "draft.mlpackage")
    write_decoder(tmp_path / "decoder.mlpackage")
    return tmp_path


def a_mac(patch: pytest.MonkeyPatch, model: type = FakeModel) -> None:
    tools, models = ModuleType("coremltools"), ModuleType("coremltools.models")
    models.MLModel = model  # type: ignore[attr-defined]
    tools.models = models  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "coremltools", tools)
    patch.setattr(platform, "system", lambda: "Darwin")


@pytest.fixture(params=["interpreter", "core ml"])
def engine(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "interpreter":
        return MilEngine(folder / "draft.mlpackage", folder / "decoder.mlpackage")
    a_mac(monkeypatch)
    return open_engine(folder, manifest({"functions": dict(ROWS)}))


def test_passes_share_one_cache(engine: Any) -> None:
    assert engine.sizes == (1, 2)
    assert "Core ML" in engine.ran["engine"]
    first = engine.run(np.array([[1.0, 2.0]], np.float32), 0, 3)
    assert isinstance(first, DraftOutput)
    for part, (name, shape) in zip(first, KINDS.items(), strict=True):
        assert part.dtype == np.float32, name
        assert part.shape == (1, *shape), name
    assert (first.feature.tolist(), first.risk.tolist()) == ([[1.0, 2.0]], [3.0])
    both = engine.run(np.array([[10.0, 0.0], [0.0, 20.0]], np.float32), 1, 0)
    assert both.feature.tolist() == [[11.0, 22.0]] * 2
    assert both.center.tolist() == [[11.0, 22.0, 0.0]] * 2
    again = engine.run(np.array([[5.0, 5.0]], np.float32), 1, 0)  # writing at a slot is the rollback
    assert again.message.tolist() == [[27.0]]


def test_pictures_from_tokens(engine: Any) -> None:
    pixels = engine.decode(np.array([1, 2, 3, 4], np.int64))
    assert pixels.dtype == np.float32
    assert pixels.shape == (3, SIDE, SIDE)
    assert pixels[2].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_packages_that_are_no_draft(tmp_path: Path) -> None:
    decoder = write_decoder(tmp_path / "decoder.mlpackage")
    with pytest.raises(ExportError, match=r"decoder\.mlpackage is no draft of pixdraft: export it again"):
        MilEngine(decoder, decoder)
    blocks = write_draft(tmp_path / "draft.mlpackage", {"block": 2})
    with pytest.raises(ExportError, match="has no function of one row"):
        MilEngine(blocks, decoder)


def test_core_ml_is_on_macs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    with pytest.raises(BundleError, match="runs on macOS and iOS only: check it here with `pixdraft check"):
        open_engine(folder, manifest({"functions": dict(ROWS)}))


@pytest.mark.parametrize("facts", [{}, {"functions": {}}, {"functions": {"step": "one"}}])
def test_a_manifest_without_functions(folder: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    a_mac(monkeypatch)
    with pytest.raises(BundleError, match=r"manifest\.json names no functions of the draft"):
        open_engine(folder, manifest(facts))


def test_a_mac_without_coremltools(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_mac(monkeypatch)
    monkeypatch.setitem(sys.modules, "coremltools", None)
    with pytest.raises(BundleError, match=r"needs coremltools .*: pip install 'pixdraft\[coreml\]'"):
        open_engine(folder, manifest({"functions": dict(ROWS)}))


def test_what_core_ml_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("Error in building plan")

    a_mac(monkeypatch, Refusing)
    with pytest.raises(BundleError, match=r"Core ML cannot run .* \(Error in building plan\)"):
        open_engine(folder, manifest({"functions": dict(ROWS)}))
