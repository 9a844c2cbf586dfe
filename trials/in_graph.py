"""Whether top-k and U belong into the exported graph: the pass as shipped and numpy, against a pass with a tail.

Both ways do what the device's session does with a row: temperature, the most probable codes, a draw, a statistic. They
take turns in one run with one thread, a burst each a round, so that whatever slows the machine down slows both. No time
is told where the numbers are not the same.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import exporter
from pixdraft.export.preflight import check_packages
from pixdraft.export.source import XL_SHAPE, Source, load
from pixdraft.runtime.files import written_beside
from pixdraft.runtime.machine import versions
from pixdraft.trials.in_graph_passes import FEW, FEW_U, WHOLE, Built, build
from pixdraft.trials.in_graph_ways import BOUNDS, Draw, Row, Taken, check, from_graph, on_host, walk
from pixdraft.trials.provenance import provenance

NAME = "in_graph"
SCHEMES = {"onnx": ("int8", "fp32", "fp16", "int8b", "int4"), "executorch": ("8da4w", "fp32", "8da8w")}
"""Quantisations by target; the first is taken where none is named."""
HOST, GRAPH = "host", "graph"
SERIES = {"risk": FEW, "interval": FEW_U}
"""Statistics of `decoding.statistics` that are timed, and the variant that gives them in the graph."""
COUNTS = 0.05
"""Share of a whole step from which on a difference counts."""

Samples = dict[str, dict[str, list[float]]]
"""Milliseconds by way, of the ``pass`` and of what comes ``after`` it, step after step."""


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        models: names of bundled models or model folders, or `XL_SHAPE`.
        schemes: pairs of target and quantisation.
        draw: how tokens are drawn.
        steps: of a burst, from the middle of the picture on.
        rounds: bursts of each way.
        warm: rounds before them that are not kept.
    """

    models: tuple[str, ...] = (XL_SHAPE, "emoji")
    schemes: tuple[tuple[str, str], ...] = tuple((target, known[0]) for target, known in SCHEMES.items())
    draw: Draw = field(default_factory=Draw)
    steps: int = 20
    rounds: int = 20
    warm: int = 2

    def __post_init__(self) -> None:
        for target, scheme in self.schemes:
            if target not in SCHEMES:
                raise ValueError(f"there is no target {target!r} here: choose among {', '.join(SCHEMES)}")
            if scheme not in SCHEMES[target]:
                raise ValueError(f"{target} is not timed as {scheme!r}: choose one of {', '.join(SCHEMES[target])}")
        if not 0 < self.draw.temperature < math.inf:
            raise ValueError(f"temperature is {self.draw.temperature}: the graph divides by it, so give one above 0")
        if self.steps < 1 or self.rounds < 1 or self.warm < 0:
            raise ValueError(f"steps is {self.steps}, rounds {self.rounds}, warm {self.warm}: give at least 1, 1 and 0")


def setting(
    models: Iterable[str], targets: Iterable[str], quant: str | None, temperature: float, steps: int, rounds: int
) -> Setting:
    """A setting by names; no models or targets are all of them, and no `quant` is each target's first.

    Raises:
        ValueError: something is unknown or out of range.
    """
    schemes = tuple((target, quant or SCHEMES.get(target, ("",))[0]) for target in tuple(targets) or tuple(SCHEMES))
    return Setting(tuple(models) or Setting.models, schemes, Draw(temperature), steps, rounds)


def measure(built: Built, rows: list[Row], given: Setting) -> dict[str, Samples]:
    """Samples by statistic, burst after burst."""
    np.empty(16 << 20, np.uint8)  # as the session does it, see `runtime.session`: arrays over V cost no page faults
    ways: list[tuple[str, str, str, Callable[..., Taken]]] = []
    for statistic, few in SERIES.items():
        ways += [(statistic, HOST, WHOLE, on_host), (statistic, GRAPH, few, from_graph)]
    samples: dict[str, Samples] = {
        statistic: {way: {"pass": [], "after": []} for way in (HOST, GRAPH)} for statistic in SERIES
    }
    for number in range(given.warm + given.rounds):
        # Every other round backwards: then neither way always follows the other.
        for statistic, way, variant, after in ways[:: -1 if number % 2 else 1]:
            one, kept = built.passes[variant], samples[statistic][way]
            for row in rows:
                began = time.perf_counter()
                outputs = one.run(row.x, row.slot, row.place)
                ran = time.perf_counter()
                after(outputs, statistic, given.draw, row.u)
                done = time.perf_counter()
                if number >= given.warm:
                    kept["pass"].append(round(1000 * (ran - began), 5))
                    kept["after"].append(round(1000 * (done - ran), 5))
    return samples


def judge(samples: Samples, steps: int) -> dict[str, Any]:
    """Medians in milliseconds, ratios graph / host of whole steps, and a verdict.

    ratio: of the medians. quick: of the lower quartiles, which a busy machine disturbs least. by_round: quartiles of
    the ratios of single rounds. Only where all of them are beyond `COUNTS`, a way is called faster.
    """
    medians, quick, rounds = {}, {}, {}
    for way, parts in samples.items():
        whole = np.add(parts["pass"], parts["after"])
        medians[way] = {name: float(np.median(values)) for name, values in {**parts, "whole": whole}.items()}
        quick[way] = float(np.percentile(whole, 25))
        rounds[way] = np.median(whole.reshape(-1, steps), axis=1)
    ratio, low = medians[GRAPH]["whole"] / medians[HOST]["whole"], quick[GRAPH] / quick[HOST]
    by_round = [float(q) for q in np.percentile(rounds[GRAPH] / rounds[HOST], (25, 75))]
    seen = (ratio, low, *by_round)
    if max(seen) < 1 - COUNTS:
        verdict = "the graph is faster"
    else:
        verdict = "the host is faster" if min(seen) > 1 + COUNTS else "no clear difference"
    return {"median_ms": medians, "ratio": ratio, "quick": low, "by_round": by_round, "verdict": verdict}


def run(given: Setting, out: Path, command: str) -> dict[str, Any]:
    """Export, compare, time, and leave ``OUT/in_graph.json`` with all samples.

    A backend that is not installed is left out, and the result says so.

    Raises:
        NumbersDifferError: a tail computes something else.
        ValueError: no backend is there, or a model cannot be used.
    """
    missing: dict[str, str] = {}
    for target, _ in given.schemes:
        try:
            check_packages(exporter(target))
        except ExportError as error:
            missing[target] = str(error)
    if len(missing) == len(given.schemes):
        raise ExportError(next(iter(missing.values())))
    there = [(target, scheme) for target, scheme in given.schemes if target not in missing]
    cases: list[dict[str, Any]] = []
    for model in given.models:
        source = load(model)
        cases += [_case(source, model, target, scheme, given) for target, scheme in there]
    result = {
        "kept": given.draw.kept,
        "temperature": given.draw.temperature,
        "steps": given.steps,
        "rounds": given.rounds,
        "threads": 1,
        "bounds": BOUNDS,
        "cases": cases,
        "missing": missing,
        "engines": versions(("onnxruntime", "executorch", "torchao", "onnx")),
        "made": provenance(command),
    }
    out.mkdir(parents=True, exist_ok=True)
    with written_beside(out / f"{NAME}.json") as file:
        file.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return result


def _case(source: Source, model: str, target: str, scheme: str, given: Setting) -> dict[str, Any]:
    draw = Draw(given.draw.temperature, min(given.draw.kept, source.info.vocab_size))
    with tempfile.TemporaryDirectory() as folder:
        built = build(target, source, scheme, Path(folder), draw.kept, draw.temperature)
        rows, errors = walk(source, built, draw, given.steps)
        check(errors, f"{model} by {target} {scheme}")
        samples = measure(built, rows, given)
    return {
        "model": model,
        "target": target,
        "scheme": scheme,
        "dim": source.network.config.dim,
        "codes": source.info.vocab_size,
        "errors": errors,
        "left": built.left,
        "statistics": {name: judge(ways, given.steps) for name, ways in samples.items()},
        "samples_ms": samples,
    }


def table(result: dict[str, Any]) -> str:
    """A result as lines of text: milliseconds of the pass + of what comes after it, by both ways."""
    lines = [f"{'model':<20}{'by':<18}{'statistic':<10}{'host, ms':>16}{'graph, ms':>16}{'ratio':>7}"]
    for case in result["cases"]:
        for name, told in case["statistics"].items():
            host, graph = ("{pass:.3f} + {after:.3f}".format(**told["median_ms"][way]) for way in (HOST, GRAPH))
            by = f"{case['target']} {case['scheme']}"
            numbers = f"{host:>16}{graph:>16}{told['ratio']:>7.3f}"
            lines.append(f"{case['model']:<20}{by:<18}{name:<10}{numbers}  {told['verdict']}")
    lines += [f"{target} is left out: {why}" for target, why in result["missing"].items()]
    return "\n".join(lines)
