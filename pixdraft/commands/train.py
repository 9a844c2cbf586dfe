"""`pixdraft train ...`: the recipes that made the bundled model, one verb a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The recipes of the bundled model, in this order: data, tokenizer, decoder, target, draft, eagle, weights.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="Where the run keeps pictures, checkpoints, logs.", file_okay=False)]
_HERE = Path("runs/emoji")


@app.command()
def data(folder: Folder = _HERE) -> None:
    """Fetch the picture packages with npm at their pinned versions, and render every sprite once."""
    from pixdraft.training import recipes

    recipes.data(folder)


@app.command()
def tokenizer(folder: Folder = _HERE) -> None:
    """Train the VQ tokenizer; a run that was stopped goes on where it was."""
    from pixdraft.training import recipes

    recipes.tokenizer(folder)


@app.command()
def decoder(folder: Folder = _HERE) -> None:
    """Sharpen the tokenizer's decoder; what the tokens mean stays. At any time before `weights`, or never."""
    from pixdraft.training import recipes

    recipes.decoder(folder)


@app.command()
def target(
    folder: Folder = _HERE,
    begin_from: Annotated[
        str | None, typer.Option(help="A model whose target is trained further: `emoji`, or a model folder.")
    ] = None,
) -> None:
    """Train the full model, which the cloud serves; a run that was stopped goes on where it was."""
    from pixdraft.training import recipes

    recipes.target(folder, begin_from)


@app.command()
def draft(folder: Folder = _HERE) -> None:
    """Train the device's model with its Inter-Head; a run that was stopped goes on where it was."""
    from pixdraft.training import recipes

    recipes.draft(folder)


@app.command()
def eagle(folder: Folder = _HERE) -> None:
    """Train the target's drafter for the policy eagle2. At any time between `target` and `weights`, or never."""
    from pixdraft.training import recipes

    recipes.eagle(folder)


@app.command()
def weights(
    folder: Folder = _HERE,
    into: Annotated[Path | None, typer.Option(help="Where the model goes (FOLDER/emoji).", metavar="FOLDER")] = None,
) -> None:
    """Write the model folder that `generate` and `serve` read: fp16 weights, hashes, thresholds, model card."""
    from pixdraft.training import recipes

    typer.echo(recipes.weights(folder, into))
