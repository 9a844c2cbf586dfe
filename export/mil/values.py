"""Types and constants of ML programs: how the tensors of a package lie in its files, and as numpy arrays.

Weights lie in a blob file: a header of 64 bytes, then entries, each a record of 64 bytes (mark, kind, size and place
of the data) and its data. Elements below a byte are packed from the lowest bit up.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.export.errors import ExportError
from pixdraft.export.mil.wire import Message

Array = NDArray[Any]

# Numbers of `DataType` in the format: its name there, numpy's type of a stored element, and its width in bits.
_TYPES: dict[int, tuple[str, str, int]] = {
    1: ("BOOL", "?", 8),
    2: ("STRING", "O", 0),
    10: ("FLOAT16", "<f2", 16),
    11: ("FLOAT32", "<f4", 32),
    12: ("FLOAT64", "<f8", 64),
    21: ("INT8", "i1", 8),
    22: ("INT16", "<i2", 16),
    23: ("INT32", "<i4", 32),
    24: ("INT64", "<i8", 64),
    25: ("INT4", "i1", 4),
    31: ("UINT8", "u1", 8),
    32: ("UINT16", "<u2", 16),
    33: ("UINT32", "<u4", 32),
    34: ("UINT64", "<u8", 64),
    35: ("UINT4", "u1", 4),
    36: ("UINT2", "u1", 2),
    37: ("UINT1", "u1", 1),
    38: ("UINT6", "u1", 6),
    39: ("UINT3", "u1", 3),
}
_RECORD = struct.Struct("<IIQQ")
_MARK = 0xDEADBEEF
UNKNOWN = -1
"""A dimension that a program leaves open."""


@dataclass(frozen=True)
class TensorType:
    """What a tensor holds.

    Attributes:
        kind: the element's name in the format (``FLOAT16``, ``INT32``, ...).
        shape: `UNKNOWN` where a dimension is open.
    """

    kind: str
    shape: tuple[int, ...]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type of an element as the interpreter holds it: float32 for both widths of floats."""
        stored = next(stored for name, stored, _ in _TYPES.values() if name == self.kind)
        return np.dtype(np.float32) if self.kind == "FLOAT16" else np.dtype(stored)

    @classmethod
    def read(cls, message: Message) -> TensorType:
        """From a ``ValueType``: a tensor, or the tensor that a state holds.

        Raises:
            ExportError: it is a list, a dictionary or of an element type that the interpreter does not know.
        """
        if message.has(5):
            return cls.read(message.message(5).message(1))
        tensor = message.message(1)
        if not message.has(1) or tensor.number(1) not in _TYPES:
            raise ExportError("the program holds a value that is no tensor of a known type: export it for iOS 18")
        shape = tuple(d.message(1).number(1) if d.has(1) else UNKNOWN for d in tensor.messages(3))
        return cls(_TYPES[tensor.number(1)][0], shape)


@dataclass(frozen=True)
class Constant:
    """A constant of a program, still in its file.

    Attributes:
        type: of the tensor.
        content: its bytes, or the file and offset of its blob.
    """

    type: TensorType
    content: bytes | tuple[Path, int]

    @classmethod
    def read(cls, message: Message, folder: Path) -> Constant:
        """From a ``Value``; `folder` is where the program's file lies, which names of blob files are relative to."""
        kind = TensorType.read(message.message(2))
        if message.has(5):
            blob = message.message(5)
            return cls(kind, (folder / blob.text(1).removeprefix("@model_path/"), blob.number(2)))
        return cls(kind, message.message(3).data(1))

    def value(self) -> Array | str:
        """The constant, floats as float32.

        Raises:
            ExportError: the file of weights is missing or damaged.
        """
        stored, bits = next((stored, bits) for name, stored, bits in _TYPES.values() if name == self.type.kind)
        if isinstance(self.content, bytes):
            if self.type.kind == "STRING":
                return Message(self.content).message(4).text(1)
            flat = _immediate(Message(self.content), stored, bits, self.type)
        else:
            flat = _unpacked(_blob(*self.content), stored, bits, self.type)
        return flat.astype(self.type.dtype).reshape(self.type.shape)

    def size(self) -> int:
        """Bytes of a blob; 0 for what lies in the program itself."""
        return 0 if isinstance(self.content, bytes) else len(_blob(*self.content))


def _immediate(tensor: Message, stored: str, bits: int, kind: TensorType) -> Array:
    """A constant that lies in the program; each kind of number has its own field (floats, ints, bools, ...)."""
    for field, dtype in ((1, "<f4"), (6, "<f8")):
        if tensor.has(field):
            return tensor.message(field).fixed(1, dtype)
    for field in (2, 3, 5):
        if tensor.has(field):
            return np.array(tensor.message(field).numbers(1))
    return _unpacked(np.frombuffer(tensor.message(7).data(1), np.uint8), stored, bits, kind)


def _blob(path: Path, offset: int) -> Array:
    """Bytes of the blob whose record lies at `offset`, uint8 and not yet read."""
    try:
        content = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} cannot be read ({error}): export the package again") from error
    record = bytes(content[offset : offset + _RECORD.size])
    if len(record) == _RECORD.size:
        mark, _, size, start = _RECORD.unpack(record)
        if mark == _MARK and start + size <= len(content):
            return content[start : start + size]
    raise ExportError(f"{path} is damaged at byte {offset}: export the package again")


def _unpacked(data: Array, stored: str, bits: int, kind: TensorType) -> Array:
    """Elements of bytes as they are stored."""
    if bits >= 8:
        return data.view(stored)
    places = np.unpackbits(data, bitorder="little")[: bits * int(np.prod(kind.shape))].reshape(-1, bits)
    values = places @ (1 << np.arange(bits, dtype=np.uint8))
    if stored == "i1":  # two's complement: the highest bit counts below zero
        return values.astype(np.int8) - (places[:, -1].astype(np.int8) << bits)
    return values.astype(np.uint8)
