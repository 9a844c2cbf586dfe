"""A draft from a bundle: everything is checked first, and of the engines only the one of its target is imported."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from pixdraft.runtime.backends.exported import Engine, ExportedDraft
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.runtime.manifest import NAME, Manifest, read

ENGINES = {
    "executorch": "pixdraft.runtime.backends.executorch_backend",
    "executorch-coreml": "pixdraft.runtime.backends.executorch_coreml_backend",
    "coreml": "pixdraft.runtime.backends.coreml_backend",
    "onnx": "pixdraft.runtime.backends.onnx_backend",
}
"""The module of each target; it holds ``open_engine(folder, manifest, threads) -> Engine``."""


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
    if (module := ENGINES.get(manifest.target)) is None:
        raise BundleError(
            f"{folder / NAME} is for {manifest.target!r}, this pixdraft runs {', '.join(ENGINES)}: update pixdraft"
        )
    engine: Engine = import_module(module).open_engine(folder, manifest, threads)
    return engine
