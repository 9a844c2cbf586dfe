"""A bundle's Core ML packages run by Core ML itself, on macOS, through coremltools."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, SPARE, Manifest


class CoreMLEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    All functions of the draft's package work on one state, the KV cache, which one of them makes.

    Args:
        functions: models of the draft's package by the rows that each takes.
        decoder: the model of the decoder's package.
        ran: what runs them, for a benchmark to say.
    """

    def __init__(self, functions: dict[int, Any], decoder: Any, ran: dict[str, Any]) -> None:
        self.ran = ran
        self.sizes = tuple(sorted(functions))
        self._functions = functions
        self._decoder = decoder
        self._state = functions[self.sizes[0]].make_state()

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        inputs = {"x": x[None], "slot": np.array([slot], np.int32), "place": np.array([place], np.int32)}
        made = self._functions[len(x)].predict(inputs, state=self._state)
        return DraftOutput(*(np.asarray(made[name], np.float32) for name in DraftOutput._fields))

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        made = self._decoder.predict({"tokens": tokens[None].astype(np.int32)})
        return np.asarray(made["pixels"], np.float32)


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> CoreMLEngine:
    """The engine of a bundle; Core ML chooses by itself how many threads and which processors it takes.

    Raises:
        BundleError: this is no macOS, coremltools is missing, or Core ML refuses a package.
    """
    if platform.system() != "Darwin":
        raise BundleError(f"{folder} runs on macOS and iOS only: check it here with `pixdraft check {folder}`")
    functions = manifest.facts.get("functions")
    if (
        not isinstance(functions, dict)
        or not all(isinstance(rows, int) and 1 <= rows <= SPARE for rows in functions.values())
        or 1 not in functions.values()
    ):
        raise BundleError(f"{folder / NAME} names no functions of the draft: export the bundle again")
    try:
        import coremltools as ct
    except ImportError as error:
        raise BundleError(f"the bundle needs coremltools ({error}): pip install 'pixdraft[coreml]'") from error
    try:
        draft = {
            rows: ct.models.MLModel(str(folder / manifest.draft), function_name=n) for n, rows in functions.items()
        }
        decoder = ct.models.MLModel(str(folder / manifest.decoder))
        ran = {"engine": "Core ML", "macos": platform.mac_ver()[0], "compute units": decoder.compute_unit.name}
        return CoreMLEngine(draft, decoder, ran)
    except (RuntimeError, ValueError) as error:
        raise BundleError(f"Core ML cannot run {folder} ({error}): export it again with another --quant") from error
