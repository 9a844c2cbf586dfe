"""`pixdraft check`: whether a bundle does on this machine what it did where it was made."""

from __future__ import annotations

import json

import typer

from pixdraft.commands import tables
from pixdraft.commands.options import AsJson, Bundle, Threads


def check(
    bundle: Bundle,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Look at every hash, run the bundle's own checks here, compare with what its maker saw; exit 1 if one fails."""
    from pixdraft.commands.progress import progress
    from pixdraft.export.check import check as run

    with progress(as_json) as show:
        show("checking", 0, None)
        report = run(bundle, threads)
    if as_json:
        typer.echo(json.dumps({"ok": report.passed, "checks": report.to_dict()}, indent=2))
    else:
        tables.checks(report)
    if not report.passed:
        raise typer.Exit(1)
