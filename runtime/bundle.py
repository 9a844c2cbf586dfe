"""A draft from a bundle: everything is checked first, and of the engines only the one of its target is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from pixdraft.runtime.backends.exported import TABLES, Engine, ExportedDraft, Tables, Timed, check_tables
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
    manifest = read(folder)
    check_golden_tokens(folder, manifest)
    return assemble(folder, manifest, open_engine(folder, manifest, threads))


def assemble(folder: Path, manifest: Manifest, engine: Engine) -> ExportedDraft:
    """A draft over an engine that is open already.

    Raises:
        BundleError: see `read_tables`.
    """
    return ExportedDraft(manifest.info, read_tables(folder, manifest), engine)


def read_tables(folder: Path, manifest: Manifest) -> Tables:
    """The tables of a bundle.

    Raises:
        BundleError: they cannot be read, or are not of the manifest's shapes.
    """
    path, shapes = folder / manifest.tables, manifest.shapes
    tables = read_arrays(path, TABLES)
    check_tables(tables)
    if wrong := [name for name, table in tables.items() if not np.isfinite(table).all()]:
        raise BundleError(f"{path}: the table {wrong[0]!r} holds a number that is none: export the bundle again")
    rows = {"slots": ("condition_length", shapes.condition_length), "tokens": ("vocab_size", shapes.vocab_size)}
    for name, (field, wanted) in rows.items():
        if (found := len(tables[name])) != wanted:
            raise disagreement(folder, field, wanted, f"the table {name!r} has {found} rows")
    if (found := tables["tokens"].shape[1]) != shapes.dim:
        raise disagreement(folder, "dim", shapes.dim, f"the tables are {found} wide")
    return tables


def check_golden_tokens(folder: Path, manifest: Manifest) -> None:
    """Look at the one golden value that every engine's pictures must agree with.

    Raises:
        BundleError: the golden tokens cannot be read, or are not those of a picture of the manifest's.
    """
    tokens, wanted = read_arrays(folder / manifest.golden, ("tokens",)).get("tokens"), manifest.shapes.image_tokens
    if tokens is None or tokens.ndim != 1:
        raise BundleError(f"{folder / manifest.golden} lacks 'tokens': export the bundle again")
    if len(tokens) != wanted:
        raise disagreement(folder, "image_tokens", wanted, f"the golden tokens are {len(tokens)}")


def disagreement(folder: Path, field: str, value: int, found: str) -> BundleError:
    """What to raise where a shape of the manifest is not what lies beside it."""
    return BundleError(f"{folder / NAME}: shapes.{field} is {value}, {found}: export the bundle again")


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
