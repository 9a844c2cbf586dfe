"""Writes small Core ML packages by hand, so that the interpreter is tested without any of Core ML's tools."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {
    "BOOL": (1, 8),
    "STRING": (2, 0),
    "FLOAT16": (10, 16),
    "FLOAT32": (11, 32),
    "INT8": (21, 8),
    "INT16": (22, 16),
    "INT32": (23, 32),
    "INT4": (25, 4),
    "UINT8": (31, 8),
    "UINT16": (32, 16),
    "UINT4": (35, 4),
    "UINT2": (36, 2),
    "UINT1": (37, 1),
    "UINT6": (38, 6),
    "UINT3": (39, 3),
}
Results = dict[str, tuple[str, tuple[int | None, ...]]]
STORED = {"FLOAT16": "<f2", "FLOAT32": "<f4", "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "UINT16": "<u2"}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value)


def data(at: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(at << 3 | 2) + varint(len(content)) + content


def entry(at: int, key: str, content: bytes) -> bytes:
    return data(at, data(1, key) + data(2, content))


def tensor_type(kind: str, shape: tuple[int | None, ...]) -> bytes:
    sizes = (data(2, b"") if size is None else data(1, number(1, size)) for size in shape)
    inner = number(1, KINDS[kind][0]) + number(2, len(shape)) + b"".join(data(3, size) for size in sizes)
    return data(1, inner)


def packed_bits(values: np.ndarray, bits: int) -> bytes:
    places = (np.asarray(values).reshape(-1, 1).astype(np.int64) >> np.arange(bits)) & 1
    return np.packbits(places.astype(np.uint8), bitorder="little").tobytes()


def stored(kind: str, value: Any) -> bytes:
    """Elements as bytes."""
    if kind in STORED:
        return np.ascontiguousarray(value, STORED[kind]).tobytes()
    return packed_bits(np.asarray(value), KINDS[kind][1])


def immediate(kind: str, value: Any) -> bytes:
    """A ``Value`` that lies in the program."""
    shape = () if isinstance(value, str) else np.shape(value)
    if kind == "FLOAT32":
        tensor = data(1, data(1, np.asarray(value, "<f4").tobytes()))
    elif kind == "INT32":
        tensor = data(2, data(1, b"".join(varint(int(v)) for v in np.ravel(value))))
    elif kind == "BOOL":
        tensor = data(3, data(1, b"".join(varint(int(v)) for v in np.ravel(value))))
    elif kind == "STRING":
        tensor = data(4, data(1, str(value)))
    else:
        tensor = data(7, data(1, stored(kind, value)))
    return data(2, tensor_type(kind, shape)) + data(3, data(1, tensor))


@dataclass
class Function:
    """One function in the making; values have names, and every operation names the types of its results."""

    inputs: Results = field(default_factory=dict)
    states: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    operations: list[bytes] = field(default_factory=list)

    def const(self, name: str, kind: str, value: Any) -> str:
        return self._const(name, kind, () if isinstance(value, str) else np.shape(value), immediate(kind, value))

    def _const(self, name: str, kind: str, shape: tuple[int | None, ...], value: bytes) -> str:
        output = data(3, data(1, name) + data(2, tensor_type(kind, shape)))
        label = entry(5, "name", immediate("STRING", name))
        self.operations.append(data(1, "const") + output + label + entry(5, "val", value))
        return name

    def op(self, kind: str, results: Results, **inputs: Any) -> None:
        """Inputs are names, tuples of names, or (kind, value) pairs in a list of one."""
        parts = data(1, kind) + entry(5, "name", immediate("STRING", "_".join(results) or kind))
        for name, given in inputs.items():
            values = given if isinstance(given, tuple) else (given,)
            bindings = (data(1, v) if isinstance(v, str) else data(2, immediate(*v[0])) for v in values)
            parts += entry(2, name, b"".join(data(1, binding) for binding in bindings))
        parts += b"".join(data(3, data(1, n) + data(2, tensor_type(*kind))) for n, kind in results.items())
        self.operations.append(parts)

    def message(self) -> bytes:
        named = [(name, tensor_type(*kind)) for name, kind in self.inputs.items()]
        named += [(name, data(5, data(1, tensor_type(*kind)))) for name, kind in self.states.items()]
        block = b"".join(data(2, name) for name in self.outputs) + b"".join(data(3, o) for o in self.operations)
        head = b"".join(data(1, data(1, name) + data(2, kind)) for name, kind in named)
        return head + data(2, "CoreML8") + entry(3, "CoreML8", block)


@dataclass
class PackageWriter:
    """A package in the making."""

    functions: dict[str, Function] = field(default_factory=dict)
    weights: bytearray = field(default_factory=lambda: bytearray(struct.pack("<II56x", 0, 2)))

    def function(self, name: str = "main") -> Function:
        return self.functions.setdefault(name, Function())

    def blob(self, function: Function, name: str, kind: str, value: Any, offset: int | None = None) -> int:
        """A constant in the file of weights, new there or at the offset of an earlier one; returns the offset."""
        if offset is None:
            content = stored(kind, value)
            offset = len(self.weights)
            self.weights += struct.pack("<IIQQ40x", 0xDEADBEEF, 0, len(content), offset + 64)
            self.weights += content + bytes(-len(content) % 64)
        place = data(5, data(1, "@model_path/weights/weight.bin") + number(2, offset))
        shape = np.shape(value)
        function._const(name, kind, shape, data(2, tensor_type(kind, shape)) + place)
        return offset

    def save(self, path: Path, default: str = "main") -> Path:
        program = number(1, 1) + b"".join(entry(2, name, f.message()) for name, f in self.functions.items())
        folder = path / "Data" / "com.apple.CoreML"
        (folder / "weights").mkdir(parents=True)
        (folder / "weights" / "weight.bin").write_bytes(bytes(self.weights))
        (folder / "model.mlmodel").write_bytes(number(1, 9) + data(2, data(21, default)) + data(502, program))
        item = {"path": "com.apple.CoreML/model.mlmodel"}
        manifest = {"rootModelIdentifier": "1", "itemInfoEntries": {"1": item}}
        (path / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return path
