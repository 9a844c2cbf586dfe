"""An exported Core ML draft run by the interpreter: what the gate sees on a system without Core ML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.export.errors import ExportError
from pixdraft.export.mil.interpreter import MilProgram, load_functions
from pixdraft.runtime.backends import DraftOutput


class MilEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    Args:
        draft, decoder: the two packages.
        half: round every float16 result as a phone does, see `MilProgram`; off, what differs comes from the weights.

    Raises:
        ExportError: a package cannot be read or run, or is no draft or decoder.
    """

    def __init__(self, draft: Path, decoder: Path, half: bool = True) -> None:
        self._by_rows = {_rows(program, draft): program for program in load_functions(draft, half).values()}
        self.sizes = tuple(sorted(self._by_rows))
        if self.sizes[:1] != (1,):
            raise ExportError(f"{draft} has no function of one row: export it again")
        self._decoder = MilProgram(decoder, half=half)
        self.ran: dict[str, Any] = {"engine": "pixdraft's interpreter of Core ML programs", "rounds to float16": half}

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        made = self._by_rows[len(x)].run(x=x[None], slot=[slot], place=[place])
        return DraftOutput(**made)

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        return self._decoder.run(tokens=tokens[None])["pixels"]


def _rows(program: MilProgram, path: Path) -> int:
    if set(program.function.inputs) != {"x", "slot", "place"} or set(program.function.outputs) != set(
        DraftOutput._fields
    ):
        raise ExportError(f"{path} is no draft of pixdraft: export it again")
    return program.function.inputs["x"].shape[1]
