"""The command line: one module of `pixdraft.commands` a verb, and one boundary that turns errors into sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import pixdraft
from pixdraft.commands import bench, check, doctor, evaluate, export, generate, inspect, serve, train, words
from pixdraft.errors import bounded

DEBUG = "--debug"


class Verbs(TyperGroup):
    """The group of verbs; whatever one of them raises ends as one sentence and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run a command line; exits unless ``standalone_mode=False``."""
        words = list(sys.argv[1:] if args is None else args)
        debug = DEBUG in words
        if debug:  # it may stand anywhere
            words = [DEBUG, *(word for word in words if word != DEBUG)]
        if named.get("standalone_mode") is False:
            return super().main(words, *rest, **named)
        named["standalone_mode"] = False
        sys.exit(bounded(lambda: super(Verbs, self).main(words, *rest, **named), debug=debug))


app = typer.Typer(cls=Verbs, name="pixdraft", no_args_is_help=True, rich_markup_mode="rich", add_completion=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pixdraft {pixdraft.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Pictures drawn by a small model on a device, with a full model in the cloud asked about the unsure tokens."""


app.command()(generate.generate)
app.command()(serve.serve)
app.command()(export.export)
app.command()(check.check)
app.command()(inspect.inspect)
app.command()(bench.bench)
app.add_typer(train.app, name="train")
app.add_typer(evaluate.app, name="evaluate")
app.command()(words.words)
app.command()(doctor.doctor)


def main() -> None:
    """The console script."""
    app()
