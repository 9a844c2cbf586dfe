"""What is looked at before any work: packages, the recipe, the destination, memory and disk."""

from __future__ import annotations

import os
import re
import shutil
from importlib import metadata
from pathlib import Path

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import Exporter
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.manifest import NAME

AUTO = "auto"
"""Instead of a scheme: the smallest that passes the gate."""
GB = 1e9
LONGEST_NAME = 255 - len(".lock") - len(".recipe.json")
"""Bytes of a folder's name: what systems allow, less what is added to name the files beside it."""
TOOLS_BYTES = 1.5e9
"""Memory that torch and an exporter's packages take before they have seen a weight."""
COPIES = 6
"""Copies of the weights that an exporter holds at its worst: the model, its graph, what it folds, what it writes."""


def choose(exporter: Exporter, quant: str | None, recipe: Path | None, *, sensitivity: bool) -> Recipe | None:
    """The recipe that the command line asks for; None to look for the smallest.

    Raises:
        ExportError: options that do not go together, or a scheme that is not the target's.
    """
    schemes = ", ".join(exporter.schemes)
    if quant is None and recipe is None:
        raise ExportError(f"--quant is missing: choose one of {schemes}, or auto")
    if sensitivity and (quant == AUTO or recipe is not None):
        raise ExportError(f"--sensitivity writes a recipe, of one quantisation: give --quant, one of {schemes}")
    if quant == AUTO and recipe is not None:
        raise ExportError("--quant auto looks for a recipe by itself: leave --recipe out, or --quant")
    if quant == AUTO:
        return None
    chosen = Recipe(str(quant)) if recipe is None else Recipe.read(recipe)
    if quant is not None and quant != chosen.scheme:
        raise ExportError(f"--quant {quant} is not the scheme of {recipe}, {chosen.scheme}: leave --quant out")
    chosen.check(exporter.target, exporter.schemes, None)
    chosen.check_decoder(exporter.target, exporter.decoders)
    return chosen


def check_packages(exporter: Exporter, extra: str = "export") -> None:
    """Refuse where a package of the exporter is missing, or of a version that pixdraft does not allow.

    Raises:
        ExportError: naming the package and the pip command.
    """
    from packaging.requirements import Requirement

    wanted = {}
    for line in metadata.requires("pixdraft") or []:
        requirement = Requirement(line)
        wanted[_normal(requirement.name)] = requirement.specifier
    for package in exporter.packages:
        specifier = wanted.get(_normal(package))
        install = f"pip install '{package}{specifier or ''}'"
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise ExportError(
                f"the target {exporter.target} needs {package}, which is not installed: "
                f"pip install 'pixdraft[{extra}]', or {install}"
            ) from None
        if specifier is not None and not specifier.contains(found.partition("+")[0], prereleases=True):
            raise ExportError(f"{package} {found} is not among the versions that work together: {install}")


def check_destination(folder: Path, force: bool) -> None:
    """Refuse a folder that holds something, unless it is a bundle that may be replaced, and a name that is too long.

    Raises:
        ExportError: naming the folder.
    """
    if len(os.fsencode(folder.name)) > LONGEST_NAME:
        raise ExportError(
            f"--out {folder.name[:20]}... has a name of {len(folder.name)} characters: give it one of "
            f"{LONGEST_NAME} bytes at most"
        )
    try:
        folder.exists()
    except OSError as error:
        raise ExportError(f"--out {folder} cannot be there ({error.strerror}): name another folder") from error
    if folder.is_file():
        raise ExportError(f"{folder} is a file: name another folder with --out")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / NAME).is_file():
        raise ExportError(f"{folder} holds other files than a bundle's: name another folder with --out")
    if not force:
        raise ExportError(f"{folder} is there already: name another folder with --out, or replace it with --force")


def check_room(source: Source, folder: Path) -> None:
    """Refuse where memory or disk would run out.

    Raises:
        ExportError: naming what is needed and what is free.
    """
    weights = sum(p.numel() * p.element_size() for m in (source.network, source.tokenizer) for p in m.parameters())
    memory, free = TOOLS_BYTES + COPIES * weights, free_memory()
    if free is not None and free < memory:
        raise ExportError(
            f"the export needs some {memory / GB:.1f} GB of memory, {free / GB:.1f} GB are free: close other programs"
        )
    disk = 3 * weights  # what is written, the tables, what lies beside while it is written
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if (left := shutil.disk_usage(place).free) < disk:
        raise ExportError(
            f"the export needs some {disk / GB:.1f} GB on the disk of {folder}, {left / GB:.1f} GB are free: "
            "name another place with --out"
        )


def free_memory() -> float | None:
    """Bytes that are free or can be freed; None where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE):
            return float(found[1]) * 1024
    except OSError:
        pass
    try:  # macOS tells what is built in; what others hold of it can be paged out
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
