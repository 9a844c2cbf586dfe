"""Opening a bundle: the engine of its target and no other, and no torch on the way."""

from __future__ import annotations

import io
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bundles import TABLES, folder_of_bytes, signed
from pixdraft.runtime import bundle
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.bundle import open_bundle
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.runtime.manifest import NAME, Manifest


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
    signed(folder)
    with pytest.raises(BundleError, match=r"tables\.npz cannot be read as arrays .*: export the bundle again"):
        open_bundle(folder)


def test_tables_hold_no_code(tmp_path: Path) -> None:
    np.savez(tmp_path / "tables.npz", prompt=np.array([{"any": "object"}], dtype=object))
    with pytest.raises(BundleError, match="cannot be read as arrays"):
        read_arrays(tmp_path / "tables.npz", ["prompt"])


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


NAN = np.full((8, 4), np.nan)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slots": None}, "the bundle's tables lack 'slots'"),
        ({"tokens": np.zeros(8)}, "table 'tokens' is no table of numbers"),
        ({"tokens": np.array(3.0)}, "table 'tokens' is no table of numbers"),
        ({"tokens": np.array([["a"] * 4] * 8)}, "table 'tokens' is no table of numbers"),
        ({"tokens": np.zeros((8, 4), int)}, "table 'tokens' is no table of numbers"),
        ({"slots": np.zeros((0, 4))}, "table 'slots' is no table of numbers"),
        ({"tokens": np.zeros((8, 3))}, "table 'tokens' is of another width than the first"),
        ({"tokens": NAN}, r"tables\.npz: the table 'tokens' holds a number that is none"),
        ({"tokens": np.zeros((7, 4))}, r"manifest\.json: shapes\.vocab_size is 8, the table 'tokens' has 7 rows"),
        ({"slots": np.zeros((3, 4))}, r"shapes\.condition_length is 2, the table 'slots' has 3 rows"),
        ({name: np.zeros((len(TABLES[name]), 5)) for name in TABLES}, r"shapes\.dim is 4, the tables are 5 wide"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, opened: object, changes: dict[str, Any], said: str) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    tables = {name: table for name, table in (TABLES | changes).items() if table is not None}
    np.savez(folder / "tables.npz", **tables)
    signed(folder)
    with pytest.raises(BundleError, match=f"{said}.*: export .*again"):
        open_bundle(folder)


def test_golden_tokens_of_another_picture(tmp_path: Path, opened: list[object]) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    np.savez(folder / "golden.npz", tokens=np.zeros(9, int))
    signed(folder)
    with pytest.raises(
        BundleError,
        match=r"manifest\.json: shapes\.image_tokens is 4, the golden tokens are 9: export the bundle again",
    ):
        open_bundle(folder)
    np.savez(folder / "golden.npz", chunks=np.zeros(9, int))
    signed(folder)
    with pytest.raises(BundleError, match=r"golden\.npz lacks 'tokens'"):
        open_bundle(folder)
    assert not opened


def test_a_model_with_other_outputs(tmp_path: Path, opened: object) -> None:
    folder = folder_of_bytes(tmp_path / "b", "ones")
    signed(folder, shapes={"bottleneck": 7})
    with pytest.raises(BundleError, match="messages of 3, its manifest says 8 and 7: export the bundle again"):
        open_bundle(folder).open(np.array([0, 2]))


def header(path: Path, shape: tuple[int, ...], kind: str = "|u1", zeros: int = 0, packing: int = 0) -> None:
    """An npz file with an array ``x`` that says it has this shape, and so many bytes behind it."""
    with zipfile.ZipFile(path, "w", packing) as packed, packed.open("x.npy", "w", force_zip64=True) as file:
        described = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, described)  # type: ignore[no-untyped-call]
        for _ in range(zeros >> 20):
            file.write(bytes(1 << 20))


@pytest.mark.parametrize(
    ("shape", "zeros", "packing", "said"),
    [
        ((1 << 50,), 0, zipfile.ZIP_STORED, "less than it says"),
        ((1 << 62, 1 << 62), 0, zipfile.ZIP_STORED, "less than it says"),
        ((-1,), 0, zipfile.ZIP_STORED, "less than it says"),
        ((128 << 20,), 128 << 20, zipfile.ZIP_DEFLATED, "x would take more memory than a bundle's arrays do"),
        ((1,), 1 << 20, zipfile.ZIP_LZMA, "packed in a way that numpy never does"),
    ],
)
def test_arrays_that_claim_what_they_have_not(
    tmp_path: Path, shape: tuple[int, ...], zeros: int, packing: int, said: str
) -> None:
    header(tmp_path / "x.npz", shape, zeros=zeros, packing=packing)
    with pytest.raises(BundleError, match=rf"x\.npz cannot be read as arrays \(.*{said}\): export the bundle again"):
        read_arrays(tmp_path / "x.npz", ["x"])
    assert read_arrays(tmp_path / "x.npz", ["y"]) == {}, "what nobody asks for is not looked at"
