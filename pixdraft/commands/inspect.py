"""`pixdraft inspect`: what a bundle is, without running it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from pixdraft.commands import tables
from pixdraft.commands.options import AsJson, Bundle

if TYPE_CHECKING:
    from pixdraft.runtime.manifest import Manifest


def inspect(bundle: Bundle, as_json: AsJson = False) -> None:
    """Show what a bundle is for, what made it, what it holds and what its gate measured; it is not run."""
    import msgspec

    from pixdraft.export.gate.report import Report
    from pixdraft.runtime.errors import BundleError
    from pixdraft.runtime.manifest import read

    manifest = read(bundle, verify=False)
    sizes = {
        name: path.stat().st_size if (path := bundle / name).is_file() else None for name in sorted(manifest.files)
    }
    try:
        read(bundle)
        fault = None
    except BundleError as error:
        fault = str(error)
    if as_json:
        typer.echo(
            json.dumps({"usable": fault is None, "fault": fault, "bytes": sizes} | msgspec.to_builtins(manifest))
        )
        return
    tables.facts(_facts(manifest, sizes, fault))
    if checks := manifest.parity.get("checks"):
        tables.checks(Report.of(checks))
    tables.delegation(manifest.delegation)


def _facts(manifest: Manifest, sizes: dict[str, int | None], fault: str | None) -> dict[str, str]:
    q, s, model = manifest.quantisation, manifest.shapes, manifest.model
    overrides = "".join(f", {layer} {scheme}" for layer, scheme in q.overrides.items())
    made_on: dict[str, Any] = manifest.parity.get("machine", {})
    return {
        "bundle": f"{model.name} for {manifest.target}",
        "quantised": f"{q.scheme}{overrides}; decoder {q.decoder or 'as it was'}",
        "usable": "here, now: every file is what the manifest says" if fault is None else f"not here: {fault}",
        "model": f"{model.model_hash} (tokenizer {model.tokenizer_hash}), guidance {model.guidance:g}",
        "shape": f"d {s.dim}, {s.layers} layers, {s.heads} heads, {s.vocab_size:,} codes, {s.image_tokens} tokens, "
        f"{s.condition_length} condition tokens, {s.capacity} cache slots, {s.picture_size} px",
        "asks by": f"{model.statistic}; thresholds for {', '.join(model.thresholds)}",
        "needs": ", ".join(f"{name} {least} or newer" for name, least in manifest.minimum.items()),
        "made with": ", ".join(f"{name} {version}" for name, version in manifest.tools.items()),
        "judged by": ", ".join(f"{name} {value}" for name, value in manifest.parity.get("engine", {}).items()),
        "made on": ", ".join(str(made_on[key]) for key in ("platform", "processor") if made_on.get(key)),
    } | {f"  {name}": "missing" if size is None else f"{size:,} bytes" for name, size in sizes.items()}
