"""Methods x prompts x seeds on one target: draw, measure, and put figures beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pixdraft.trials.draw_many import Method, draw_all
from pixdraft.trials.judging import Judging
from pixdraft.trials.methods import check
from pixdraft.trials.plan import Plan
from pixdraft.trials.provenance import provenance
from pixdraft.trials.published import beside
from pixdraft.trials.quality import Measured, Metric, Pictures
from pixdraft.trials.reports import write
from pixdraft.trials.shards import Drawn, joined
from pixdraft.trials.summary import summary

SEED_STEP = 1_000_000  # between the seeds of one prompt: more prompts later never meet another picture's seed
OWN = {  # of a paper's figures those that a figure here may stand beside, and its name here
    "steps": "steps",
    "step_x": "step_x",
    "latency_x": "latency_x",
    "cloud_share": "cloud_share",
    "clip": "clip",
    "hpsv2": "hpsv2",
    "f1": "fid_f1",
}


def compare(plan: Plan, model: str, data: Path, out: Path, workers: int, command: str) -> dict[str, Any]:
    """Run a plan. It leaves ``OUT/NAME.json``, ``.txt``, ``.md``, ``.rows.jsonl`` and, with distances, ``.png``.

    Pictures stay in ``DATA/compared``, so that a stopped comparison goes on, and plans share equal methods.

    Args:
        plan: what to compare.
        model: a bundled model's name or a model folder.
        data: folder of the recipes; the sprites must be there, unless the plan brings captions.
        out: where results go.
        workers: processes that draw; more than one share the machine, and each picture's time shows it.
        command: that makes it, kept with the result.

    Returns:
        What the JSON file holds: the plan, rows by method, rows of references, what the papers say, what was used.

    Raises:
        PlanError: no metric can use the pictures to compare with, or one lacks them; nothing was drawn.
        MethodError: this version or this model cannot run a method; nothing was drawn.
        LocalError, FeatureError: a metric's package or folder is missing; nothing was drawn.
    """
    from pixdraft.models.registry import find

    plan.check_pictures()
    folder = find(model)
    methods = {label: check(text, folder) for label, text in plan.methods.items()}
    judging = Judging(plan, model, data)
    work = data / "compared" / f"{folder.info.name}-{folder.hash('target')[:8]}"
    drawn = _draw(methods, judging.prompts, plan.seeds, model, work, workers)
    prompts, seeds = _pictures(judging.prompts, plan.seeds)
    names = judging.names and judging.names * plan.seeds
    sets = {label: Pictures(pictures.pixels, prompts, names) for label, pictures in drawn.items()}
    references = judging.references(len(prompts))
    found, used = _measure(judging.metrics(drawn[plan.baseline].pixels.shape[1]), references | sets, plan.baseline)
    rows = [{"method": label, **summary(drawn[label].rows), **found[label].means} for label in methods]
    relate(rows, plan.baseline)
    result = {
        "plan": plan.to_dict(),
        "model": folder.info.name,
        "pictures": len(prompts),
        "workers": max(pictures.workers for pictures in drawn.values()),
        "metrics": used,
        "rows": rows,
        "references": [{"method": label, **found[label].means} for label in references],
        "papers": papers(rows, methods, plan.baseline),
        "made": provenance(command),
    }
    raw = [
        {"method": label, "prompt": prompt, "seed": seed}
        | {name: values[i] for name, values in found[label].each.items()}
        | drawn[label].rows[i]
        for label in methods
        for i, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
    ]
    write(result, raw, out)
    return result


def relate(rows: list[dict[str, Any]], baseline: str) -> None:
    """Add to each row how many times fewer steps and how many times less time it takes than the baseline."""
    base = next(row for row in rows if row["method"] == baseline)
    for row in rows:
        row["step_x"] = base["steps"] / row["steps"]
        row["latency_x"] = base["seconds_median"] / row["seconds_median"]


def papers(rows: Iterable[Mapping[str, Any]], methods: Mapping[str, Method], baseline: str) -> list[dict[str, Any]]:
    """What was published of each method but the baseline, as "paper_..." beside the same of its own row.

    Papers compare with plain decoding; where the baseline is something else, the row's own ratios are left out.
    """
    plain = methods[baseline].policy == "cloud"
    lines = []
    for row in rows:
        if row["method"] == baseline:
            continue
        for figure in beside(methods[row["method"]]):
            values = asdict(figure) | {"fid_x": figure.fid_x}
            said = {key: values.pop(key) for key in ("model", "source", "standing")}
            theirs = {key: value for key, value in values.items() if value is not None}
            own = {key: row.get(name) for key, name in OWN.items() if key in theirs and (plain or key[-2:] != "_x")}
            if plain and "fid_x" in theirs:
                own["distance_x"] = row.get("fid_x", row.get("frechet_x"))
            lines.append({"method": row["method"], **said, **{f"paper_{k}": v for k, v in theirs.items()}, **own})
    return lines


def _draw(
    methods: Mapping[str, Method], prompts: list[str], seeds: int, model: str, work: Path, workers: int
) -> dict[str, Drawn]:
    """Pictures of every method by label; methods that are equal are drawn once."""
    different = list({method.label: method for method in methods.values()}.values())
    parts = []
    for number in range(seeds):
        asked, own = _pictures(prompts, 1, number)
        parts.append(draw_all(model, different, asked, own, work / f"seed-{number}", workers))
    together = dict(zip((method.label for method in different), map(joined, zip(*parts, strict=True)), strict=True))
    return {label: together[method.label] for label, method in methods.items()}


def _pictures(prompts: list[str], seeds: int, first: int = 0) -> tuple[list[str], list[int]]:
    """Prompt and seed of every picture."""
    numbers = range(first, first + seeds)
    return prompts * seeds, [SEED_STEP * number + i for number in numbers for i in range(len(prompts))]


def _measure(
    metrics: Iterable[Metric], sets: Mapping[str, Pictures], baseline: str
) -> tuple[dict[str, Measured], list[dict[str, Any]]]:
    """What all metrics say together of each set, and what they used."""
    found = {label: Measured({}) for label in sets}
    used = []
    for metric in metrics:
        for label, more in metric.measure(sets, baseline).items():
            found[label] = Measured(found[label].means | more.means, found[label].each | more.each)
        used.append(metric.used)
    return found, used
