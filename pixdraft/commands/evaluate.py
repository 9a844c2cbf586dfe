"""`pixdraft evaluate`: how good the pictures are, and how well the device knows when to ask."""

from __future__ import annotations

import typer


def evaluate() -> None:
    """Placeholder."""
    raise typer.Exit(1)
