"""`pixdraft doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import typer

from pixdraft.commands.options import AsJson

_STYLES = {"ok": "green", "absent": "dim", "note": "yellow", "broken": "bold red"}


def doctor(as_json: AsJson = False) -> None:
    """Look at Python, packages, backends, bundled models and the loopback; exit 1 if something needed is broken."""
    from pixdraft.checks import every_finding

    findings = every_finding()
    broken = [finding for finding in findings if finding.state == "broken"]
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"ok": not broken, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("check", "state", "found", "mend"):
            table.add_column(title, no_wrap=title == "check")
        for finding in findings:
            style = _STYLES[finding.state]
            table.add_row(finding.check, f"[{style}]{finding.state}[/]", finding.detail, finding.mend)
        Console().print(table)
    if broken:
        raise typer.Exit(1)
