"""Options that more than one verb takes, and what they mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Option(help="A bundled model's name, or a model folder.", metavar="NAME|FOLDER")]
Bundle = Annotated[
    Path, typer.Argument(help="Folder that `pixdraft export` wrote.", metavar="BUNDLE", show_default=False)
]
TokenEnv = Annotated[
    str | None,
    typer.Option(help="Environment variable that holds the cloud's bearer token.", metavar="NAME"),
]
Threads = Annotated[int, typer.Option(help="Threads of the engine.", min=1, max=1024)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def writable(path: Path, option: str) -> None:
    """Make sure that a result can be kept where an option says, before the work; makes the folder.

    Raises:
        BadParameter: it cannot; the option is named.
    """
    from pixdraft.runtime.errors import OutputError
    from pixdraft.runtime.files import check_writable

    try:
        check_writable(path)
    except OutputError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def bearer(name: str | None) -> str | None:
    """The token in the environment variable `name`; None for no name. A flag would show it to every process."""
    if name is None:
        return None
    token = os.environ.get(name, "")
    if not token:
        raise typer.BadParameter(f"the variable {name} is not set, or empty: export it first", param_hint="--token-env")
    return token
