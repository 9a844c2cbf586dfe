"""`pixdraft export`: from a model to a bundle that a phone can trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixdraft.commands import tables
from pixdraft.commands.options import AsJson

if TYPE_CHECKING:
    from pixdraft.export.auto import Tried
    from pixdraft.export.bundle import Made
    from pixdraft.export.gate.report import Report
    from pixdraft.export.sensitivity import Layer


def _judging(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="The gate", **more)


def export(
    model: Annotated[
        str, typer.Argument(help="A bundled model's name, a model folder, or llamagen-xl-random.", show_default=False)
    ],
    target: Annotated[str, typer.Option(help="executorch, executorch-coreml, coreml or onnx.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The bundle's folder.", metavar="FOLDER", show_default=False)],
    quant: Annotated[
        str | None, typer.Option(help="Quantisation: one of the target's, or auto for the smallest that passes.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A quantisation by layer, as --sensitivity writes it.", metavar="FILE")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Measure each layer alone, write FOLDER.recipe.json, and stop.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there.")] = False,
    threshold: Annotated[list[str] | None, _judging("Move a bound; may be repeated.", metavar="CHECK=NUMBER")] = None,
    min_delegated: Annotated[
        float | None, _judging("Least share of operators that the backend takes over.", min=0, max=1)
    ] = None,
    threads: Annotated[int, _judging("Threads of the engine that judges.", min=1, max=1024)] = 1,
    as_json: AsJson = False,
) -> None:
    """Export a draft with its decoder, judge what was written, and keep it only if it does what the model does."""
    from pixdraft.commands.progress import progress
    from pixdraft.export import preflight
    from pixdraft.export.auto import smallest
    from pixdraft.export.bundle import Job, make
    from pixdraft.export.errors import GateFailed
    from pixdraft.export.exporters import exporter
    from pixdraft.export.gate import thresholds
    from pixdraft.export.lock import alone
    from pixdraft.export.recipe import FLOAT, Recipe
    from pixdraft.export.source import load

    made_by, folder = exporter(target), out.resolve()
    asked = preflight.choose(made_by, quant, recipe, sensitivity=sensitivity)
    changes = [*(threshold or []), *([] if min_delegated is None else [f"delegated={min_delegated}"])]
    thresholds.of(asked or Recipe(made_by.schemes[0])).with_changes(changes)
    preflight.check_destination(folder, force or sensitivity)
    preflight.check_packages(made_by)
    try:
        with alone(folder), progress(as_json) as show:
            show("loading", 0, None)
            source = load(model)

            def job_of(chosen: Recipe) -> Job:
                bounds = thresholds.of(chosen).with_changes(changes)
                return Job(source, made_by, chosen, folder, bounds, force, threads)

            tried: list[Tried] = []
            if asked is None:
                made, tried = smallest(job_of, made_by.schemes, show)
            elif sensitivity:
                from pixdraft.export.sensitivity import measure, mixed

                job = job_of(asked)
                layers = measure(job, show)
                written = folder.with_name(f"{folder.name}.recipe.json")
                mixed(job, layers, made_by.finer.get(asked.scheme, FLOAT)).write(written)
            else:
                made = make(job_of(asked), show)
    except GateFailed as error:
        _tell_failure(error.report, as_json=as_json)
        raise
    if sensitivity:
        _tell_layers(layers, written, as_json=as_json)
    else:
        _tell_bundle(made, tried, as_json=as_json)


def _tell_failure(report: Report, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"ok": False, "checks": report.to_dict()}, indent=2))
    else:
        tables.checks(report)


def _tell_layers(layers: list[Layer], written: Path, *, as_json: bool) -> None:
    if as_json:
        rows = [{"layer": x.layer, "top1": x.top1, "tv": x.tv, "u": x.u, "saved": x.saved} for x in layers]
        typer.echo(json.dumps({"recipe": str(written), "layers": rows}, indent=2))
    else:
        tables.sensitivity(layers)
        typer.echo(f"{written} spares the worst: export with --recipe {written}")


def _tell_bundle(made: Made, tried: list[Tried], *, as_json: bool) -> None:
    manifest = made.manifest
    if as_json:
        facts = {
            "ok": True,
            "bundle": str(made.folder),
            "bytes": made.size,
            "parts": made.parts,
            "target": manifest.target,
            "scheme": manifest.quantisation.scheme,
            "overrides": manifest.quantisation.overrides,
            "delegation": manifest.delegation,
            "checks": made.report.to_dict(),
            "tried": [
                {"scheme": t.recipe.scheme, "overrides": t.recipe.overrides, "bytes": t.size, "passed": t.report.passed}
                for t in tried
            ],
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    tables.checks(made.report)
    tables.delegation(manifest.delegation)
    if tried:
        tables.tried(tried)
    quantised = manifest.quantisation
    typer.echo(
        f"{made.folder}: {manifest.model.name} for {manifest.target}, {quantised.scheme}, {made.size / 1e6:.1f} MB: "
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in made.parts.items())
        + (f"; decoder {quantised.decoder}" if quantised.decoder else "")
    )
