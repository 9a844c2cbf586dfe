"""One module a target. An exporter turns a `Source` into files that one backend runs; it neither judges nor packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pixdraft.export.errors import ExportError
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source

if TYPE_CHECKING:
    from pixdraft.export.graph import DraftGraph

TARGETS = ("executorch", "executorch-coreml", "coreml", "onnx")
BLOCK = 8
"""Rows of the block pass where a backend wants fixed shapes; beside it stands a pass of one row."""


@dataclass(frozen=True)
class Artefact:
    """What an exporter wrote.

    Attributes:
        draft, decoder: of the two models, paths below the folder it was given (files or package folders).
        facts: what the backend needs to know to run them, and nothing else does (plain JSON values).
        delegation: operators that the backend takes over and those it leaves, if the target has such a thing:
            ``{"draft": {"delegated": {op: count}, "left": {op: count}}, "decoder": {...}}``. The gate adds their time.
        decoder_scheme: how the decoder is quantised, where the recipe left that open too.
    """

    draft: str
    decoder: str
    facts: dict[str, Any] = field(default_factory=dict)
    delegation: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    decoder_scheme: str = ""


class Exporter(Protocol):
    """A target.

    Attributes:
        target: its name on the command line.
        schemes: quantisations that it knows, plainest first; the first is the unquantised one.
        finer: by scheme, what a layer takes that does not bear it and that goes into one file with it; a scheme that is
            not named has none but `recipe.FLOAT`.
        decoders: those that it knows for the decoder.
        packages: distributions that it needs to export; name and version go into the manifest.
        minimum: distributions that a device needs to run the result, with the least version.
    """

    target: str
    schemes: tuple[str, ...]
    finer: dict[str, str]
    decoders: tuple[str, ...]
    packages: tuple[str, ...]
    minimum: dict[str, str]

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        """Write draft and decoder into an empty folder.

        Raises:
            ExportError: the recipe names a scheme or a layer that this target does not know.
        """


class Mirrored(Protocol):
    """A target whose quantised weights can be run in torch eager too; the gate then knows a tighter bound."""

    def mirror(self, source: Source, recipe: Recipe) -> DraftGraph:
        """The draft over the weights that `Exporter.export` would write, its activations handled alike."""


def mirror(made_by: Exporter, source: Source, recipe: Recipe) -> DraftGraph | None:
    """The mirror of an exporter that has one."""
    make: Callable[[Source, Recipe], DraftGraph] | None = getattr(made_by, "mirror", None)
    return None if make is None else make(source, recipe)


def exporter(target: str) -> Exporter:
    """The exporter of a target, whose packages are imported only when it exports.

    Raises:
        ExportError: there is no such target.
    """
    if target not in TARGETS:
        raise ExportError(f"--target {target} is not known: choose one of {', '.join(TARGETS)}")
    made: Exporter = import_module(f"pixdraft.export.exporters.{target.replace('-', '_')}").EXPORTER
    return made
