"""The files of a comparison: a table as text and Markdown, all of it as JSON, raw rows, and a plot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pixdraft.runtime.files import written_beside
from pixdraft.trials import tables
from pixdraft.trials.manifold import NEIGHBOURS
from pixdraft.trials.plots import Point, pareto

COSTS = {"steps": "passes of the target a picture", "cloud_share": "share of the tokens that the cloud handles"}
DISTANCES = {"frechet": "Frechet distance", "fid": "FID"}
ENDINGS = (".rows.jsonl", ".txt", ".md", ".json", ".png")
FEW = 50  # pictures: below it a distance between two sets of features is mostly their number

Show = Callable[[Sequence[tables.Row], Sequence[tables.Column]], str]


def write(result: Mapping[str, Any], raw: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Leave ``OUT/NAME.json``, ``.txt``, ``.md``, ``.rows.jsonl`` and ``.png``, each whole or not at all.

    Args:
        result: of `trials.compare.compare`.
        raw: one row a picture.
        out: folder.

    Raises:
        OutputError: the place cannot be written to.
    """
    name = result["plan"]["name"]
    out.mkdir(parents=True, exist_ok=True)
    for ending, content in {
        ".rows.jsonl": "".join(json.dumps(row) + "\n" for row in raw),
        ".txt": report(result, tables.text),
        ".md": report(result, tables.markdown),
        ".json": json.dumps(result, indent=1, ensure_ascii=False) + "\n",
    }.items():
        with written_beside(out / f"{name}{ending}") as file:
            file.write_text(content, encoding="utf-8")
    plot(result, out / f"{name}.png")


def report(result: Mapping[str, Any], show: Show) -> str:
    """Title, table, the papers' figures and what was used.

    Args:
        result: of `trials.compare.compare`.
        show: `tables.text` or `tables.markdown`.
    """
    plan = result["plan"]
    parts = [_title(plan), show([*result["rows"], *result["references"]], tables.COLUMNS), *notes(result)]
    if result["papers"]:
        parts += ["Beside the papers, whose models and pictures are others:", show(result["papers"], tables.PAPERS)]
    seeds = f"{plan['seeds']} of each prompt" if plan["seeds"] > 1 else "one of each prompt"
    parts.append(f"{result['pictures']} pictures a method, {seeds}, by the model {result['model']}.")
    parts += [f"Measured by {', '.join(f'{k} {v}' for k, v in used.items())}." for used in result["metrics"]]
    parts += [f"Papers: {source}." for source in dict.fromkeys(line["source"] for line in result["papers"])]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def notes(result: Mapping[str, Any]) -> list[str]:
    """What to bear in mind while reading the table: few pictures, times of processes that share the cores."""
    said = []
    pictures = result["pictures"]
    if any(key in result["rows"][0] for key in DISTANCES) and pictures < FEW:
        said.append(f"Only {pictures} pictures a method: distance, precision and recall mean little below {FEW}.")
    elif pictures <= NEIGHBOURS and any("neighbours" in used for used in result.get("metrics", ())):
        said.append(
            f"Too few pictures a method ({pictures}): distance, precision, recall and the plot are left out below "
            f"{NEIGHBOURS + 1}, and mean little below {FEW}."
        )
    if (workers := result.get("workers", 1)) > 1:
        said.append(
            f"{workers} processes drew at once and shared the cores: to compare times, delete what they drew, and draw "
            "with --workers 1."
        )
    return said


def plot(result: Mapping[str, Any], file: Path) -> None:
    """Draw the methods' distance over what the plan names as their cost; no file where no distance was measured."""
    plan = result["plan"]
    distance = next((key for key in ("fid", "frechet") if key in result["rows"][0]), None)
    if distance is None:
        file.unlink(missing_ok=True)  # an older run's must not stand beside this one's table
        return
    points = [Point(row["method"], row[plan["pareto"]], row[distance]) for row in result["rows"]]
    pareto(points, _title(plan), COSTS[plan["pareto"]], DISTANCES[distance], file)


def _title(plan: Mapping[str, Any]) -> str:
    return str(plan["title"] or plan["name"])
