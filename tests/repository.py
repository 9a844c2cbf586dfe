"""The repository as the tests see it: where it is, and which files are its own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Sub-package to folder, "" for `pixdraft` itself: {"": "pixdraft", "decoding": "decoding", ...}.
FOLDERS: dict[str, str] = {
    name.removeprefix("pixdraft").lstrip("."): folder
    for name, folder in PYPROJECT["tool"]["setuptools"]["package-dir"].items()
}
_OTHER = ("tests", "scripts", "docs", "benchmarks", ".ci")


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the distribution: its full name and its file."""
    for name, folder in sorted(FOLDERS.items()):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = [part for part in path.relative_to(ROOT / folder).with_suffix("").parts if part != "__init__"]
            yield ".".join(["pixdraft", *([name] if name else []), *inner]), path


def python_files() -> Iterator[Path]:
    """Every Python file of the repository, the tests' too."""
    yield from (path for _, path in modules())
    for folder in _OTHER:
        yield from sorted((ROOT / folder).rglob("*.py"))


def text_files() -> Iterator[Path]:
    """Every file of the repository that is written by hand: code, scripts, documents, settings."""
    yield from python_files()
    for folder in _OTHER:
        yield from (p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in {"", ".md", ".json"} and p.is_file())
    yield from (p for p in sorted(ROOT.iterdir()) if p.is_file() and (p.suffix or p.name in {"NOTICE", ".gitignore"}))
