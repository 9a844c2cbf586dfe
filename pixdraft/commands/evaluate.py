"""`pixdraft evaluate`: how good the pictures are, and how well the device knows when to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixdraft.commands.options import Model


def evaluate(
    folder: Annotated[
        Path,
        typer.Argument(help="Of the recipes (`pixdraft train`): pictures to compare with, drafts.", file_okay=False),
    ] = Path("runs/emoji"),
    model: Model = "emoji",
    pictures: Annotated[int, typer.Option(help="To draw by each policy.", min=1)] = 1000,
    workers: Annotated[int, typer.Option(help="Processes that draw at once.", min=1)] = 2,
    part: Annotated[
        list[str] | None,
        typer.Option(help="pictures, sheet, guidance or uncertainty; may be repeated (pictures and sheet)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the tables go, as JSON.", file_okay=False)] = Path("benchmarks"),
) -> None:
    """Draw by every policy, and measure: retrieval, Frechet distance, cloud calls, bytes, each statistic's AUROC."""
    from pixdraft.trials.evaluate import main

    parts = tuple(part or ("pictures", "sheet"))
    main(folder, model, pictures, workers, out, parts)
    for name in parts:
        typer.echo(out / f"{name}.json")
