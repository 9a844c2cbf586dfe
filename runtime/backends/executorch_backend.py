"""A bundle's .pte files run by ExecuTorch on the CPU (XNNPACK), without torch."""

from __future__ import annotations

import ctypes
import weakref
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.executorch_library import library
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, Manifest

STEP, BLOCK, PICTURE = "step", "block", "forward"
"""Methods: of the draft for one row and for several, and of the decoder."""


class Program:
    """A loaded .pte file.

    Args:
        path: of the file.
        threads: that its methods may compute with.
        pooled: hold weights that several methods share once.

    Raises:
        BundleError: ExecuTorch refuses the file.
    """

    def __init__(self, path: Path, threads: int = 1, pooled: bool = False) -> None:
        self.path = path
        self._library = library()
        self._handle = self._library.pixdraft_open(str(path).encode(), threads, pooled)
        if not self._handle:
            raise self._refused()
        weakref.finalize(self, self._library.pixdraft_close, self._handle)

    def method(self, name: str) -> Method:
        """Load a method.

        Raises:
            BundleError: the program has no such method, or wants operators that are not there.
        """
        number = self._library.pixdraft_method(self._handle, name.encode())
        if number < 0:
            raise self._refused()
        return Method(self, number)

    def _refused(self) -> BundleError:
        told = self._library.pixdraft_error().decode()
        return BundleError(f"ExecuTorch cannot run {self.path} ({told}): export the bundle again")


class Method:
    """A method of a program; inputs and outputs are arrays that it reads and writes in place.

    Args:
        program: it belongs to.
        number: of the method.
    """

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number
        self._call = program._library.pixdraft_execute
        self._inputs: dict[int, NDArray[Any]] = {}

    def bind(self, place: int, array: NDArray[Any]) -> None:
        """Let an input be read from a contiguous array, now and in every later run.

        Raises:
            BundleError: the method takes no such input.
        """
        sizes = (ctypes.c_int32 * array.ndim)(*array.shape)
        arguments = (self._program._handle, self._number, place, array.ctypes.data, sizes, array.ndim)
        if self._program._library.pixdraft_bind(*arguments):
            raise self._program._refused()
        self._inputs[place] = array  # it must outlive the method

    def run(self) -> None:
        """Run it on what lies in the inputs.

        Raises:
            BundleError: it fails.
        """
        if self._call(self._program._handle, self._number):
            raise self._program._refused()

    def output(self, place: int) -> NDArray[np.float32]:
        """An output of the last run, flat, in place: later runs write over it.

        Raises:
            BundleError: there is no such output, or it never ran.
        """
        data = ctypes.c_void_p()
        count = self._program._library.pixdraft_output(self._program._handle, self._number, place, ctypes.byref(data))
        if count < 0:
            raise self._program._refused()
        return np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), (count,))


class ExecutorchEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    The two methods of the draft share weights and the KV cache. Inputs and outputs are arrays over ExecuTorch's own
    memory, made once for each row count: a step copies its embedding and nothing else.

    Args:
        draft, decoder: the .pte files.
        rows: the most that a run takes.
        dim: width of the embeddings.
        threads: that it may compute with.

    Raises:
        BundleError: a file cannot be run.
    """

    def __init__(self, draft: Path, decoder: Path, rows: int, dim: int, threads: int = 1) -> None:
        self.sizes = tuple(range(1, rows + 1))
        self.ran = {
            "engine": "ExecuTorch",
            "executorch": version("executorch"),
            "backend": "XNNPACK",
            "threads": threads,
        }
        program = Program(draft, threads, pooled=True)
        self._methods = {name: program.method(name) for name in (STEP, BLOCK)}
        self._x = {name: np.zeros((most, dim), np.float32) for name, most in ((STEP, 1), (BLOCK, rows))}
        self._at = np.zeros((2, 1), np.int64)  # slot, place
        for method in self._methods.values():
            for i, part in enumerate(self._at):
                method.bind(1 + i, part)
        self._rows = {STEP: 0, BLOCK: 0}
        self._outputs: dict[int, DraftOutput] = {}
        self._decoder = Program(decoder, threads).method(PICTURE)
        self._pixels: NDArray[np.float32] | None = None

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        rows = len(x)
        name = STEP if rows == 1 else BLOCK
        method = self._methods[name]
        if rows != self._rows[name]:
            method.bind(0, self._x[name][:rows])
            self._rows[name] = rows
        self._x[name][:rows] = x
        self._at[0, 0], self._at[1, 0] = slot, place
        method.run()
        if (outputs := self._outputs.get(rows)) is None:
            flat = DraftOutput(*(method.output(i) for i in range(len(DraftOutput._fields))))
            shaped = {name: part.reshape(rows, -1) for name, part in flat._asdict().items() if name != "risk"}
            outputs = self._outputs[rows] = flat._replace(**shaped)
        return outputs

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        self._decoder.bind(0, np.ascontiguousarray(tokens, np.int64)[None])
        self._decoder.run()
        flat = self._decoder.output(0)
        side = int((flat.size // 3) ** 0.5)
        return flat.reshape(3, side, side).copy()


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> ExecutorchEngine:
    """The engine of a bundle.

    Raises:
        BundleError: executorch or a C++ compiler is missing, or ExecuTorch refuses a file.
    """
    rows = manifest.facts.get("rows")
    if not isinstance(rows, int) or rows < 2:
        raise BundleError(f"{folder / NAME} names no rows of a block: export the bundle again")
    draft, decoder = folder / manifest.draft, folder / manifest.decoder
    return ExecutorchEngine(draft, decoder, rows, manifest.shapes.dim, threads)
