"""A draft that ExecuTorch hands to Core ML, run by the interpreter: the packages are taken out of the .pte files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.export.errors import ExportError
from pixdraft.export.mil.interpreter import MilProgram
from pixdraft.export.mil.values import Array
from pixdraft.export.pte import extract
from pixdraft.runtime.backends import DraftOutput


class DelegatedEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    The draft's method takes a block of rows; fewer are padded, and what padding writes into the cache is written over
    before anything attends to it.

    Args:
        draft, decoder: the .pte files.
        half: round every float16 result as a phone does, see `MilProgram`.

    Raises:
        ExportError: a file cannot be read or run, or is no draft or decoder.
    """

    def __init__(self, draft: Path, decoder: Path, half: bool = True) -> None:
        self._draft = _Method(draft, half, 3, len(DraftOutput._fields))
        self._decoder = _Method(decoder, half, 1, 1)
        _, self._rows, self._dim = self._draft.shape
        self.sizes = tuple(range(1, self._rows + 1))
        self.ran: dict[str, Any] = {
            "engine": "pixdraft's interpreter of Core ML programs",
            "rounds to float16": half,
            "a run's rows": self._rows,
        }

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        rows = np.zeros((1, self._rows, self._dim), np.float32)
        rows[0, : len(x)] = x
        return DraftOutput._make(part[: len(x)] for part in self._draft.run(rows, [slot], [place]))

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        return self._decoder.run(tokens[None])[0]


class _Method:
    """The method of a .pte file, called as an app calls it: by place, not by name.

    Args:
        path: of the file.
        half: see `MilProgram`.
        inputs, outputs: how many it must have.
    """

    def __init__(self, path: Path, half: bool, inputs: int, outputs: int) -> None:
        folder = Path(tempfile.mkdtemp(prefix="pixdraft-"))  # the program reads its weights when they are needed
        weakref.finalize(self, shutil.rmtree, folder)
        lowered = extract(path, folder)
        if (len(lowered.inputs), len(lowered.outputs)) != (inputs, outputs):
            raise ExportError(f"{path} is no draft or decoder of pixdraft: export it again")
        self._inputs, self._outputs = lowered.inputs, lowered.outputs
        self._program = MilProgram(lowered.package, half=half)
        self.shape = self._program.function.inputs[self._inputs[0]].shape
        if inputs > 1 and len(self.shape) != 3:
            raise ExportError(f"{path} is no draft of pixdraft: export it again")

    def run(self, *inputs: Any) -> list[Array]:
        """Outputs in the method's order."""
        made = self._program.run(**dict(zip(self._inputs, inputs, strict=True)))
        return [made[name] for name in self._outputs]
