"""A package as it is read: constants of every type, what is counted, and packages that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mil_programs import PackageWriter, data, number
from pixdraft.export.errors import ExportError
from pixdraft.export.mil import STATE_WRITE, MilProgram, Package, count_operators, weight_bytes

VALUES: dict[str, list[float]] = {
    "BOOL": [True, False, True],
    "FLOAT16": [0.5, -2.0, 65504.0],
    "FLOAT32": [1e-30, -1.5, 3e38],
    "INT8": [-128, 0, 127],
    "INT16": [-32768, 5, 32767],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT4": [-8, -1, 7, 3, 0],
    "UINT8": [0, 200, 255],
    "UINT16": [0, 65535],
    "UINT4": [15, 0, 9],
    "UINT2": [3, 0, 2, 1, 3],
    "UINT1": [1, 0, 0, 1, 1, 0, 1, 0, 1],
    "UINT6": [63, 1, 32, 5, 17],
    "UINT3": [7, 0, 5, 2, 1],
}


def constant_of(path: Path) -> np.ndarray:
    return MilProgram(path).run()["value"]


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("shape", ["vector", "matrix", "number"])
def test_constants_in_the_program(tmp_path: Path, kind: str, shape: str) -> None:
    value = np.array(VALUES[kind])
    value = {"vector": value, "matrix": value[None], "number": np.asarray(value[0])}[shape]
    writer = PackageWriter()
    main = writer.function()
    main.outputs = (main.const("value", kind, value),)
    found = constant_of(writer.save(tmp_path / "a.mlpackage"))
    assert found.shape == value.shape
    assert found.dtype == np.float32 or not kind.startswith("FLOAT")
    np.testing.assert_array_equal(found, value.astype(np.float32) if kind.startswith("FLOAT") else value)


@pytest.mark.parametrize("kind", sorted(set(VALUES) - {"BOOL", "INT32"}))
def test_constants_in_the_file_of_weights(tmp_path: Path, kind: str) -> None:
    value = np.array([VALUES[kind], VALUES[kind][::-1]])
    writer = PackageWriter()
    main = writer.function()
    writer.blob(main, "other", "FLOAT32", np.ones(5))
    writer.blob(main, "value", kind, value)
    main.outputs = ("value",)
    found = constant_of(writer.save(tmp_path / "a.mlpackage"))
    np.testing.assert_array_equal(found, value.astype(np.float32) if kind.startswith("FLOAT") else value)


def two_functions(path: Path) -> Path:
    """Both functions share one weight, the second has another one beside it."""
    writer = PackageWriter()
    offset = None
    for name in ("step", "block"):
        function = writer.function(name)
        function.inputs["x"] = ("FLOAT32", (1, 4))
        function.states["kept"] = ("FLOAT16", (1, 3))
        shared = np.eye(3, 4)
        offset = writer.blob(function, "w", "FLOAT16", shared, offset)
        if name == "block":
            writer.blob(function, "unshared", "FLOAT16", np.zeros(7))
        function.op("linear", {"y": ("FLOAT32", (1, 3))}, x="x", weight="w")
        function.op("write_state", {}, input="kept", data="y")
        function.outputs = ("y",)
    return writer.save(path, default="step")


def test_operators_and_bytes_are_counted(tmp_path: Path) -> None:
    path = two_functions(tmp_path / "a.mlpackage")
    assert count_operators(path) == {
        "step": {"linear": 1, STATE_WRITE: 1},
        "block": {"linear": 1, STATE_WRITE: 1},
    }
    assert weight_bytes(path) == weight_bytes(path, "step") == 24
    assert weight_bytes(path, "block") == 24 + 14


def test_functions_by_name(tmp_path: Path) -> None:
    package = Package.read(two_functions(tmp_path / "a.mlpackage"))
    assert package.default == "step"
    assert package.function() is package.function("step")
    assert set(package.function("block").states) == {"kept"}
    with pytest.raises(ExportError, match=r"no function 'verify': choose one of step, block"):
        package.function("verify")


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is no Core ML package"):
        Package.read(tmp_path)


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    path = two_functions(tmp_path / "a.mlpackage")
    (path / "Data/com.apple.CoreML/model.mlmodel").write_bytes(number(1, 4) + data(500, b""))
    with pytest.raises(ExportError, match="holds no ML program"):
        Package.read(path)


def test_a_damaged_program(tmp_path: Path) -> None:
    path = two_functions(tmp_path / "a.mlpackage")
    model = path / "Data/com.apple.CoreML/model.mlmodel"
    model.write_bytes(model.read_bytes()[:-3])
    with pytest.raises(ExportError, match="is damaged"):
        Package.read(path)


@pytest.mark.parametrize("keep", [0, 70, 100])
def test_a_damaged_file_of_weights(tmp_path: Path, keep: int) -> None:
    path = two_functions(tmp_path / "a.mlpackage")
    weights = path / "Data/com.apple.CoreML/weights/weight.bin"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ExportError, match=r"weight\.bin .*: export the package again"):
        MilProgram(path, "step")


def test_a_record_that_is_none(tmp_path: Path) -> None:
    path = two_functions(tmp_path / "a.mlpackage")
    weights = path / "Data/com.apple.CoreML/weights/weight.bin"
    content = bytearray(weights.read_bytes())
    content[64] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(ExportError, match="is damaged at byte 64"):
        weight_bytes(path)
