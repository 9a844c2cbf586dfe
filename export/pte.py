"""A Core ML package out of a .pte file, read as it stands: with none of ExecuTorch's exporter, so without torch.

A .pte file is a flatbuffer with segments behind it. What is handed to a backend is a blob of it; Core ML's holds a
package and the names of its inputs and outputs.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from pixdraft.export.errors import ExportError

BACKEND = "CoreMLBackend"
"""ExecuTorch's name of it."""

# Places of fields in ExecuTorch's schema/program.fbs. A field's place never changes: new ones are added at the end.
_PLANS, _DELEGATE_DATA, _SEGMENTS = 1, 3, 4
_INPUTS, _OUTPUTS, _CHAINS, _DELEGATES = 3, 4, 5, 7
_INSTRUCTIONS = 2
_DELEGATE_CALL = 2
_IN_SEGMENT = 1

# As `executorch.backends.apple.coreml.compiler.CoreMLBackend` names what it packs.
_CONTENT, _PACKAGE, _TOLD = "lowered_module", "model.mlpackage", "metadata.json"


@dataclass(frozen=True)
class Lowered:
    """A method that is one call of Core ML.

    Attributes:
        package: the extracted ``.mlpackage``.
        inputs, outputs: the package's names, in the order of the method's inputs and outputs.
    """

    package: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def extract(path: Path, folder: Path) -> Lowered:
    """The package of a .pte file with one method, all of which Core ML does.

    Args:
        path: of the file.
        folder: that the package is written into; it must be empty.

    Raises:
        ExportError: executorch is missing, the file is damaged, or Core ML does not do all of its work.
    """
    try:
        data = path.read_bytes()
        if data[4:6] != b"ET" or data[8:12] != b"eh00":
            raise ExportError(f"{path} is no ExecuTorch program: export it again")
        inputs, called, outputs, blob = _call(path, data)
    except (OSError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} is damaged ({error}): export it again") from error
    given, made = _unpacked(path, blob, folder)
    names = dict(zip(called, (*given, *made), strict=False))
    taken, left = called[: len(given)], called[len(given) :]
    if len(names) != len(given) + len(made) or set(taken) != set(inputs) or set(left) != set(outputs):
        raise ExportError(f"{path}: inputs and outputs are not those of its Core ML model: export it again")
    package = folder / _CONTENT / _PACKAGE
    return Lowered(package, tuple(names[i] for i in inputs), tuple(names[o] for o in outputs))


def _call(path: Path, data: bytes) -> tuple[list[int], list[int], list[int], bytes]:
    """Values that the method takes, that the call is given, that the method returns; and the backend's blob."""
    program = _Table(data, *struct.unpack_from("<I", data))
    plans = program.tables(_PLANS)
    chains = [chain for plan in plans for chain in plan.tables(_CHAINS)]
    steps = [step for chain in chains for step in chain.tables(_INSTRUCTIONS)]
    if len(plans) != 1 or len(steps) != 1 or steps[0].number(0, "B") != _DELEGATE_CALL:
        raise ExportError(f"{path}: Core ML does not do all of it in one call: export it again")
    call = steps[0].table(1)
    delegate = plans[0].tables(_DELEGATES)[call.number(0, "i")]
    if (name := delegate.text(0)) != BACKEND:
        raise ExportError(f"{path} is for {name}, not for {BACKEND}: export it again")
    where = delegate.table(1)
    number = where.number(1, "I")
    if where.number(0, "B") == _IN_SEGMENT:
        segment = program.tables(_SEGMENTS)[number]
        start = struct.unpack_from("<Q", data, 24)[0] + segment.number(0, "Q")
        blob = data[start : start + segment.number(1, "Q")]
    else:
        blob = program.tables(_DELEGATE_DATA)[number].data(0)
    return plans[0].numbers(_INPUTS), call.numbers(1), plans[0].numbers(_OUTPUTS), blob


def _unpacked(path: Path, blob: bytes, folder: Path) -> tuple[list[str], list[str]]:
    """Write a blob's files; returns the names of its model's inputs and outputs, in the order of a call."""
    try:
        from executorch.backends.apple.coreml import executorchcoreml
    except ImportError as error:
        raise ExportError(f"{path} needs executorch ({error}): pip install 'pixdraft[executorch]'") from error
    try:
        executorchcoreml.unflatten_directory_contents(blob, str(folder))
        told = json.loads((folder / _CONTENT / _TOLD).read_text(encoding="utf-8"))
        return list(told["inputNames"]), list(told["outputNames"])
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path} holds no Core ML model ({error}): export it again") from error


class _Table:
    """A table of a flatbuffer.

    Args:
        data: of the whole file.
        at: where the table lies.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        table = at - self._read("i", at)
        size = self._read("H", table)
        self._fields = struct.unpack_from(f"<{(size - 4) // 2}H", data, table + 4)

    def number(self, field: int, kind: str) -> int:
        """A number of the kind that `struct` has this letter for; 0 where it is not there."""
        at = self._place(field)
        return self._read(kind, at) if at else 0

    def table(self, field: int) -> _Table:
        """The table in a field."""
        return _Table(self._data, self._follow(field))

    def tables(self, field: int) -> list[_Table]:
        """All tables in a field."""
        first, count = self._list(field)
        places = range(first, first + 4 * count, 4)
        return [_Table(self._data, place + self._read("I", place)) for place in places]

    def numbers(self, field: int) -> list[int]:
        """The whole numbers of 32 bits in a field."""
        first, count = self._list(field)
        return list(struct.unpack_from(f"<{count}i", self._data, first))

    def data(self, field: int) -> bytes:
        """The bytes in a field."""
        first, count = self._list(field)
        return self._data[first : first + count]

    def text(self, field: int) -> str:
        """The text in a field."""
        return self.data(field).decode("utf-8")

    def _list(self, field: int) -> tuple[int, int]:
        """Where the entries of a list begin, and how many there are."""
        if not self._place(field):
            return 0, 0
        at = self._follow(field)
        return at + 4, self._read("I", at)

    def _follow(self, field: int) -> int:
        at = self._place(field)
        if not at:
            raise struct.error("a field is missing")
        return at + self._read("I", at)

    def _place(self, field: int) -> int:
        away = self._fields[field] if field < len(self._fields) else 0
        return self._at + away if away else 0

    def _read(self, kind: str, at: int) -> int:
        found: int = struct.unpack_from(f"<{kind}", self._data, at)[0]
        return found
