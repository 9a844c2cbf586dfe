"""Every target and quantisation of a draft: made, judged by its gate, timed; one line each in one table.

Bundles stay in a folder of their own, so that a stopped run goes on. A bundle that fails its gate is a line too. Steps
are compared in one process, torch eager among them, round after round (`trials.step_times`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pixdraft.export.bundle import Job, make, size_of
from pixdraft.export.description import code, tools
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.exporters import TARGETS, exporter
from pixdraft.export.gate import thresholds
from pixdraft.export.gate.report import Measure
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source, load
from pixdraft.runtime.benchmark import Settings
from pixdraft.runtime.benchmark import run as bench
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import written_beside
from pixdraft.trials.agreement import agreement
from pixdraft.trials.provenance import provenance
from pixdraft.trials.step_times import step_times
from pixdraft.trials.tables import Column, markdown, number, percent, text

NAME = "exports"
Show = Callable[[str], None]
"""Called with what is done now."""


@dataclass(frozen=True)
class Kind:
    """One line of the table: a model for a target at a quantisation."""

    model: str
    target: str
    scheme: str

    def __str__(self) -> str:
        return f"{self.model} {self.target} {self.scheme}"


def kinds(models: Sequence[str], only: Sequence[str]) -> list[Kind]:
    """All kinds of the models, or those whose ``target``, ``scheme`` or ``target:scheme`` is named.

    Raises:
        ExportError: a name fits none.
    """
    found = [Kind(m, target, scheme) for m in models for target in TARGETS for scheme in exporter(target).schemes]
    known = {word for kind in found for word in (kind.target, kind.scheme, f"{kind.target}:{kind.scheme}")}
    if unknown := [word for word in only if word not in known]:
        raise ExportError(f"--only {unknown[0]} fits no export: write executorch, int8 or executorch:8da4w, say")
    return [k for k in found if not only or {k.target, k.scheme, f"{k.target}:{k.scheme}"} & set(only)]


def run(
    models: Sequence[str], only: Sequence[str], bundles: Path, out: Path, settings: Settings, command: str, show: Show
) -> dict[str, Any]:
    """Make and measure all kinds; leave ``exports.json``, ``.md`` and ``exports.samples.json`` in a folder.

    Args:
        models: what `export.source.load` takes.
        only: kinds to keep, see `kinds`; none for all.
        bundles: where they are made and stay.
        out: of the tables.
        settings: of the benchmarks.
        command: that makes the same again.
        show: progress.

    Returns:
        lines: one a kind, see `line`. steps: medians by model, see `step_times`. decisions: see `agreement`.

    Raises:
        ExportError: an export cannot be made at all.
    """
    chosen = kinds(models, only)
    lines: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    decisions: dict[str, Any] = {}
    for model in models:
        show(f"{model}: loading")
        source = load(model)
        here: list[dict[str, Any]] = []
        made = [(kind, made_or_found(kind, source, bundles, show)) for kind in chosen if kind.model == model]
        runnable = {}
        for kind, (report, folder) in made:
            show(f"{kind}: timing")
            measured = _benchmark(folder, settings) if report["passed"] else {"why": "it did not pass its gate"}
            here.append(line(kind, report, measured))
            if "why" not in measured:
                samples[str(kind)] = measured
                runnable[f"{kind.target} {kind.scheme}"] = folder
        show(f"{model}: steps in turn")
        taken = step_times(source, runnable, settings.threads)
        samples[f"{model} steps"] = taken.pop("samples")
        steps[model] = taken
        if source.model is not None:
            show(f"{model}: the same pictures by each")
            decisions[model] = agreement(source, runnable, settings.threads)
        lines += [row | _compared(row, taken, decisions.get(model)) for row in here]
    result = {"lines": lines, "steps": steps, "decisions": decisions, "made": provenance(command)}
    _write(result, samples, out)
    return result


def made_or_found(kind: Kind, source: Source, bundles: Path, show: Show) -> tuple[dict[str, Any], Path]:
    """The gate's report of a bundle and its folder, made now unless that was done with this code and these weights."""
    made_by, recipe = exporter(kind.target), Recipe(kind.scheme)
    folder = bundles / Path(kind.model).name / f"{kind.target}-{kind.scheme}"
    bounds = thresholds.of(recipe)
    facts = [code(), source.fingerprint, source.prompts, tools(made_by), asdict(recipe)]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    kept = folder.with_name(f"{folder.name}.report.json")
    if kept.exists() and (held := json.loads(kept.read_text(encoding="utf-8"))).pop("key") == key:
        # Bounds may have moved since: a bundle stays as it was judged while it passes, a failure while it fails.
        judged = bounds.judge(Measure(row["name"], row["value"], row["why"]) for row in held["checks"])
        if judged.passed == held["passed"]:
            return held, folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    job = Job(source, made_by, recipe, folder, bounds, force=True)
    try:
        done = make(job, lambda what, at, total: show(f"{kind}: {what}" + (f" {at}/{total}" if total else "")))
        rows, size, facts_of = done.report, done.size, done.manifest.delegation
        passed = True
    except GateFailed as failed:
        rows, size, facts_of, passed = failed.report, size_of(job.content), {}, False
        shutil.rmtree(folder, ignore_errors=True)
    report = {"passed": passed, "bytes": size, "checks": rows.to_dict(), "delegation": facts_of}
    with written_beside(kept) as file:
        file.write_text(json.dumps({"key": key, **report}, indent=1), encoding="utf-8")
    return report, folder


def line(kind: Kind, report: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """One line: size, what the gate measured, and times in milliseconds where the target runs here.

    Returns:
        model, target, scheme, passed, failed (names), bytes, draft_bytes; of the gate top1, tv, u, statistic, auroc,
        asked, calls, accept, psnr, eager, mirror, delegated; of `pixdraft bench` cold_ms, first_ms, step_ms (the middle
        of the picture), step_p99_ms, block_ms, decode_ms, picture_s, peak_mb, floor_x, memory_x, loop_share; why not,
        otherwise.
    """
    values = {row["name"]: row["value"] for row in report["checks"]}
    failed = [row["name"] for row in report["checks"] if row["passed"] is False]
    found = asdict(kind) | {"passed": report["passed"], "failed": failed, "bytes": report["bytes"]}
    names = ("eager", "mirror", "psnr", "top1", "tv", "u", "statistic", "auroc", "asked", "stands", "calls", "accept")
    found |= {name: values.get(name) for name in (*names, "delegated")}
    if "why" in measured:
        return found | {"why": measured["why"]}
    middle = list(measured["steps"].values())[len(measured["steps"]) // 2]
    return found | {
        "draft_bytes": measured["bundle"]["draft_bytes"],
        "cold_ms": 1e3 * measured["load"]["cold"],
        "warm_ms": 1e3 * measured["load"]["warm"]["p50"],
        "first_ms": 1e3 * measured["first_step"],
        "step_ms": 1e3 * middle["p50"],
        "step_p99_ms": 1e3 * middle["p99"],
        "block_ms": 1e3 * measured["block"]["p50"],
        "decode_ms": 1e3 * measured["decode"]["p50"],
        "picture_s": measured["picture"]["p50"],
        "peak_mb": (measured["memory"]["peak"] - measured["memory"]["before"]) / 1e6,
        "floor_x": measured["floor"]["ratio"],
        "memory_x": measured["floor"]["memory_ratio"],
        "loop_share": measured["loop"]["share_of_step"],
    }


def _benchmark(folder: Path, settings: Settings) -> dict[str, Any]:
    try:
        return bench(folder, settings)
    except BundleError as error:
        return {"why": str(error).replace(str(folder), "the bundle")}


def _compared(row: dict[str, Any], steps: dict[str, Any], decisions: dict[str, Any] | None) -> dict[str, Any]:
    """What the comparisons within one process say of a line."""
    name = f"{row['target']} {row['scheme']}"
    found = {"eager_x": steps["ratio"][name]} if name in steps["ratio"] else {}
    if decisions and name in decisions["by"]:
        found["same"] = decisions["by"][name]["same"]
    return found


COLUMNS = (
    Column("model", "model", left=True),
    Column("target", "target", left=True),
    Column("scheme", "scheme", left=True),
    Column("gate", "passed", lambda passed: "passed" if passed else "FAILED", left=True),
    Column("MB", "bytes", lambda size: f"{size / 1e6:,.2f}"),
    Column("PSNR", "psnr", number(1)),
    Column("top-1", "top1", number(3)),
    Column("TV", "tv", number(4)),
    Column("U", "u", number(4)),
    Column("AUROC lost", "auroc", number(4)),
    Column("pictures the same", "same", percent),
    Column("delegated", "delegated", percent),
    Column("cold ms", "cold_ms", number(0)),
    Column("step ms", "step_ms", number(3)),
    Column("p99", "step_p99_ms", number(3)),
    Column("x eager", "eager_x", number(1)),
    Column("x floor", "floor_x", number(2)),
    Column("x memory", "memory_x", number(2)),
    Column("loop", "loop_share", percent),
    Column("block ms", "block_ms", number(2)),
    Column("decoder ms", "decode_ms", number(1)),
    Column("picture s", "picture_s", number(2)),
    Column("peak MB", "peak_mb", number(0)),
)


def table(result: dict[str, Any]) -> str:
    """The lines for a terminal."""
    return text(result["lines"], COLUMNS)


def _reasons(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in lines:
        if "why" in row:
            yield f"- {row['model']}, {row['target']} {row['scheme']}: not timed, {row['why']}\n"


def _write(result: dict[str, Any], samples: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with written_beside(out / f"{NAME}.json") as file:
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    with written_beside(out / f"{NAME}.samples.json") as file:
        file.write_text(json.dumps(_rounded(samples), separators=(",", ":")) + "\n", encoding="utf-8")
    with written_beside(out / f"{NAME}.md") as file:
        reasons = "".join(_reasons(result["lines"]))
        file.write_text(markdown(result["lines"], COLUMNS) + ("\n" + reasons if reasons else ""), encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Samples to a tenth of a microsecond, which is finer than any clock here tells."""
    if isinstance(value, float):
        return round(value, 7) if abs(value) < 1e4 else value
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
