"""Opening a bundle: the engine of its target and no other, and no torch on the way."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bundles import folder_of_bytes
from pixdraft.runtime import bundle
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.bundle import open_bundle
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.runtime.manifest import NAME, Manifest, hashes, read, write


def one_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


class OnesEngine:
    """Says 1 to everything."""

    sizes: tuple[int, ...] = ()
    ran: dict[str, Any] = {}

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        rows = len(x)
        wide = np.ones((rows, 8), np.float32)
        return DraftOutput(wide, wide, np.ones((rows, 4), np.float32), np.ones(rows, np.float32), wide[:, :3])

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.ones((3, 8, 8), np.float32)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str, int]]:
    """What the engine of a made-up target was opened with."""
    calls: list[tuple[Path, str, int]] = []

    def open_engine(folder: Path, manifest: Manifest, threads: int) -> OnesEngine:
        calls.append((folder, manifest.draft, threads))
        return OnesEngine()

    module = types.ModuleType("pixdraft_test_ones")
    module.open_engine = open_engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(bundle.ENGINES, "ones", module.__name__)
    return calls


def test_a_bundle_draws(tmp_path: Path, opened: list[tuple[Path, str, int]]) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    draft = open_bundle(str(folder), threads=3)
    assert opened == [(folder, "draft.bin", 3)]
    assert draft.info.tokenizer_hash == "t" * 64
    assert draft.open(np.array([0, 2])).center.shape == (1, 8)
    assert draft.step(np.array([1, 2]), 0).message.shape == (2, 3)
    assert (draft.decode(np.zeros(4, np.int64)) == 255).all()


def test_nothing_is_opened_that_was_tampered_with(tmp_path: Path, opened: list[tuple[Path, str, int]]) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    (folder / "draft.bin").write_bytes(b"graft")
    with pytest.raises(BundleError, match=r"draft\.bin is not the file"):
        open_bundle(folder)
    assert not opened


def test_a_target_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(
        BundleError,
        match="is for 'abacus', this pixdraft runs executorch, executorch-coreml, coreml, onnx: update pixdraft",
    ):
        open_bundle(folder_of_bytes(tmp_path / "b", "abacus"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY", one_array()])
def test_tables_that_cannot_be_read(tmp_path: Path, opened: object, content: bytes) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    (folder / "tables.npz").write_bytes(content)
    manifest = read(folder, verify=False)
    values = {name: getattr(manifest, name) for name in Manifest.__struct_fields__} | {"files": hashes(folder)}
    write(folder, Manifest(**values))
    with pytest.raises(BundleError, match=r"tables\.npz cannot be read as arrays .*: export the bundle again"):
        open_bundle(folder)


def test_tables_hold_no_code(tmp_path: Path) -> None:
    np.savez(tmp_path / "tables.npz", prompt=np.array([{"any": "object"}], dtype=object))
    with pytest.raises(BundleError, match="cannot be read as arrays"):
        read_arrays(tmp_path / "tables.npz")


def test_opening_loads_no_engine_and_no_torch_before_it_must(tmp_path: Path) -> None:
    folder = folder_of_bytes(tmp_path / "b", "abacus")
    code = (
        "import sys\nfrom pixdraft.runtime.bundle import open_bundle\n"
        f"try: open_bundle({str(folder)!r})\nexcept ValueError as error: print(error)\n"
        "print(*sorted({'torch', 'onnxruntime', 'executorch', 'coremltools'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{folder / NAME} is for 'abacus', this pixdraft runs executorch, executorch-coreml, coreml, onnx: "
        "update pixdraft",
        "",
    ]
