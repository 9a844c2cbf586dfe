"""`pixdraft check`: does a bundle still do, on this machine, what it did where it was made? From the bundle alone."""

from __future__ import annotations

from pathlib import Path

from pixdraft.export.engines import open_draft
from pixdraft.export.errors import ExportError
from pixdraft.export.gate import artefact, golden
from pixdraft.export.gate.report import Report, Row
from pixdraft.export.gate.thresholds import judged
from pixdraft.runtime.bundle import check_golden_tokens
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, Manifest, read

STALE = "the golden values belong to other files than the bundle's: export the bundle again"


def check(folder: Path, threads: int = 1) -> Report:
    """Files and versions, then the golden file, then the artefact's own checks within the bounds of its gate.

    A bundle whose files are not what the manifest says is not run.

    Raises:
        BundleError: the folder is no bundle at all.
    """
    if not (folder / NAME).is_file():
        read(folder)
    try:
        manifest = read(folder)
    except BundleError as error:
        return Report((Row("files", None, None, False, str(error)),))
    rows = [Row("files", None, None, True, f"{len(manifest.files)} files, format and versions")]
    try:
        check_golden_tokens(folder, manifest)
        values = golden.read(folder / manifest.golden)
    except BundleError as error:
        return Report((*rows, Row("golden", None, None, False, str(error))))
    if values.fingerprint != golden.fingerprint(manifest):
        return Report((*rows, Row("golden", None, None, False, STALE)))
    try:
        draft = open_draft(folder, manifest, threads)
    except (BundleError, ExportError) as error:
        return Report((*rows, Row("opens", None, None, False, str(error))))
    try:
        golden.check_fit(values, manifest, draft.words)
    except BundleError as error:
        return Report((*rows, Row("golden", None, None, False, str(error))))
    rows.append(Row("golden", None, None, True, f"of these files, {len(values.cases)} pictures"))
    try:
        measures = [*artefact.measure(draft, values), *artefact.compared_with_export(draft, values)]
    except (BundleError, ExportError) as error:
        return Report((*rows, Row("runs", None, None, False, str(error))))
    bounds = _bounds(manifest)
    for found in measures:
        if found.name in bounds:
            rows.append(judged(found, bounds[found.name]))
        else:
            why = f"{NAME} gives no bound for it: export the bundle again"
            rows.append(Row(found.name, found.value, None, False, why))
    return Report(tuple(rows))


def _bounds(manifest: Manifest) -> dict[str, float]:
    """The bounds that the gate took, by check."""
    bounds = manifest.parity.get("bounds", {})
    return {name: float(bound) for name, bound in bounds.items() if bound is not None}
