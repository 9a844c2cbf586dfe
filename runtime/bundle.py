"""A draft from a bundle: everything is checked first, and of the engines only the one of its target is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pixdraft.runtime.backends.exported import Engine, ExportedDraft, Timed
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.runtime.manifest import NAME, Manifest, read

ENGINES = {
    "executorch": "pixdraft.runtime.backends.executorch_backend",
    "executorch-coreml": "pixdraft.runtime.backends.executorch_coreml_backend",
    "coreml": "pixdraft.runtime.backends.coreml_backend",
    "onnx": "pixdraft.runtime.backends.onnx_backend",
}
"""The module of each target: ``open_engine(folder, manifest, threads) -> Engine``, and ``open_timed`` if it can."""


def open_bundle(folder: Path | str, threads: int = 1) -> ExportedDraft:
    """The draft of a bundle, ready to draw.

    Args:
        folder: of the bundle.
        threads: that the engine may compute with.

    Raises:
        BundleError: the folder is no bundle, is damaged, of a newer format, or cannot be run here.
    """
    folder = Path(folder)
    return assemble(folder, manifest := read(folder), open_engine(folder, manifest, threads))


def assemble(folder: Path, manifest: Manifest, engine: Engine) -> ExportedDraft:
    """A draft over an engine that is open already."""
    return ExportedDraft(manifest.info, read_arrays(folder / manifest.tables), engine)


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> Engine:
    """What runs the two models of a bundle.

    Raises:
        BundleError: nothing here runs its target.
    """
    engine: Engine = _module(folder, manifest).open_engine(folder, manifest, threads)
    return engine


def open_timed(folder: Path, manifest: Manifest, threads: int = 1) -> Timed | None:
    """The same engine with a clock in it, where the target has such a thing.

    Raises:
        BundleError: nothing here runs its target.
    """
    opens: Callable[[Path, Manifest, int], Timed] | None
    opens = getattr(_module(folder, manifest), "open_timed", None)
    return None if opens is None else opens(folder, manifest, threads)


def _module(folder: Path, manifest: Manifest) -> ModuleType:
    if (module := ENGINES.get(manifest.target)) is None:
        raise BundleError(
            f"{folder / NAME} is for {manifest.target!r}, this pixdraft runs {', '.join(ENGINES)}: update pixdraft"
        )
    return import_module(module)
