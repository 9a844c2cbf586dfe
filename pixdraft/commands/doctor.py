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
        from pixdraft.commands import tables

        rows = [(f.check, (f.state, _STYLES[f.state]), f.detail, f.mend) for f in findings]
        tables.show(("check", "state", "found", "mend"), rows)
    if broken:
        raise typer.Exit(1)
