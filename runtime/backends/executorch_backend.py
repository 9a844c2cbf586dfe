"""A bundle's .pte files run by ExecuTorch on the CPU (XNNPACK), without torch."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.executorch_library import library
from pixdraft.runtime.backends.exported import Seconds
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, SPARE, Manifest

STEP, BLOCK, PICTURE = "step", "block", "forward"
"""Methods: of the draft for one row and for several, and of the decoder."""

BACKEND = "XNNPACK"
BOOKKEEPING = "bookkeeping"
"""What has no name: ExecuTorch's own views of tensors and arithmetic on their sizes."""

_DELEGATE, _KERNEL = "DELEGATE_CALL", "native_call_"


class Program:
    """A loaded .pte file.

    Args:
        path: of the file.
        threads: that its methods may compute with.
        pooled: hold weights that several methods share once.
        timed: measure the time of operators, for `seconds`; it costs microseconds a run.

    Raises:
        BundleError: ExecuTorch refuses the file.
    """

    def __init__(self, path: Path, threads: int = 1, pooled: bool = False, timed: bool = False) -> None:
        self.path = path
        self._library = library()
        self._handle = self._library.pixdraft_open(str(path).encode(), threads, pooled, timed)
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

    def clear(self) -> None:
        """Forget the time of the runs so far."""
        self._library.pixdraft_clear(self._handle)

    def seconds(self) -> Seconds:
        """Median seconds of a run since `clear`, by operator as `export.delegation` counts them.

        What the delegate took over is one entry; empty where the program is not timed.
        """
        delegated: dict[str, float] = {}
        left: dict[str, float] = {}
        name = ctypes.c_char_p()
        for place in itertools.count():
            spent = self._library.pixdraft_seconds(self._handle, place, ctypes.byref(name))
            if spent < 0 or name.value is None:
                break
            told = name.value.decode()
            times, operator = (delegated, BACKEND) if told == _DELEGATE else (left, _operator(told))
            times[operator] = times.get(operator, 0.0) + spent
        return {"delegated": delegated, "left": left}

    def _refused(self) -> BundleError:
        told = self._library.pixdraft_error().decode()
        return BundleError(f"ExecuTorch cannot run {self.path} ({told}): export the bundle again")


def _operator(told: str) -> str:
    """``sum`` of native_call_sum.IntList_out, ``llama.custom_sdpa`` of native_call_llama::custom_sdpa.out."""
    if not told.startswith(_KERNEL):
        return BOOKKEEPING
    library, _, rest = told.removeprefix(_KERNEL).rpartition("::")
    short = rest.partition(".")[0]
    return short if library in ("", "aten") else f"{library}.{short}"


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
        timed: tell where the time goes, see `pixdraft.runtime.backends.exported.Timed`.

    Raises:
        BundleError: a file cannot be run.
    """

    def __init__(self, draft: Path, decoder: Path, rows: int, dim: int, threads: int = 1, timed: bool = False) -> None:
        self.sizes = tuple(range(1, rows + 1))
        self.ran = {
            "engine": "ExecuTorch",
            "executorch": version("executorch"),
            "backend": BACKEND,
            "threads": threads,
        }
        self._programs = {
            "draft": Program(draft, threads, pooled=True, timed=timed),
            "decoder": Program(decoder, threads, timed=timed),
        }
        self._methods = {name: self._programs["draft"].method(name) for name in (STEP, BLOCK)}
        self._x = {name: np.zeros((most, dim), np.float32) for name, most in ((STEP, 1), (BLOCK, rows))}
        self._at = np.zeros((2, 1), np.int64)  # slot, place
        for method in self._methods.values():
            for i, part in enumerate(self._at):
                method.bind(1 + i, part)
        self._rows = {STEP: 0, BLOCK: 0}
        self._outputs: dict[int, DraftOutput] = {}
        self._decoder = self._programs["decoder"].method(PICTURE)
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
        if flat.size != 3 * side**2:
            raise BundleError(f"{self._programs['decoder'].path} gives no square picture: export the bundle again")
        return flat.reshape(3, side, side).copy()

    def clear(self) -> None:
        """See `Timed.clear`."""
        for program in self._programs.values():
            program.clear()

    def seconds(self) -> dict[str, Seconds]:
        """See `Timed.seconds`; nothing where the engine is not timed."""
        return {model: program.seconds() for model, program in self._programs.items()}


def open_engine(folder: Path, manifest: Manifest, threads: int = 1, timed: bool = False) -> ExecutorchEngine:
    """The engine of a bundle.

    Raises:
        BundleError: executorch or a C++ compiler is missing, or ExecuTorch refuses a file.
    """
    rows = manifest.facts.get("rows")
    if not isinstance(rows, int) or not 2 <= rows <= SPARE:
        raise BundleError(f"{folder / NAME} names no rows of a block: export the bundle again")
    draft, decoder = folder / manifest.draft, folder / manifest.decoder
    return ExecutorchEngine(draft, decoder, rows, manifest.shapes.dim, threads, timed)


open_timed = partial(open_engine, timed=True)
