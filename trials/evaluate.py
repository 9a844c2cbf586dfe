"""`pixdraft evaluate model`: the parts, where their inputs come from, and the files they leave."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pixdraft.trials.provenance import provenance

SHEET = 40  # prompts of a contact sheet
HELD_OUT = 100  # pictures of held-out names for the statistics


def _pictures(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
    from pixdraft.trials.pictures import evaluate

    return evaluate(model, folder, folder / "drawn", count, workers=workers)


def _sheet(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
    from pixdraft.trials.draw_many import draw_many
    from pixdraft.trials.pictures import METHODS, prompts
    from pixdraft.trials.sheets import sheet

    captions, _, seeds = prompts(folder, SHEET)
    shown = [m for m in METHODS if m.label in ("cloud", "ciar")]
    rows = [draw_many(model, m, captions, seeds, folder / "sheet", workers).pixels for m in shown]
    sheet(rows, out / "sheet.png")
    return {"lines": [m.label for m in shown], "prompts": captions, "seeds": seeds}


def _guidance(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
    from pixdraft.trials.guidance import sweep
    from pixdraft.trials.pictures import Judge

    return {"pictures": count, "rows": sweep(folder, Judge(folder), count)}


def _uncertainty(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
    from pixdraft.training import recipes
    from pixdraft.training.train_heads import collect, train_risk
    from pixdraft.trials.uncertainty import compare

    target = recipes.load_target(folder)
    condition, tokens = recipes.corpus(folder, target).load(recipes.STATES)
    drafts = recipes.load_drafts(folder, target)
    states = {n: collect(target, d, condition, tokens, recipes.GUIDANCE) for n, d in drafts.items()}
    for layers, draft in drafts.items():
        draft.risk.load_state_dict(train_risk(draft, states[layers]).state_dict())
    held_condition, held_tokens = recipes.held_out_corpus(folder, target).load(HELD_OUT)
    rows = compare(target, drafts, states, held_condition, held_tokens, recipes.GUIDANCE)
    return {"pictures": HELD_OUT, "guidance": recipes.GUIDANCE, "rows": rows}


def _phi(folder: Path, model: str, count: int, workers: int, out: Path) -> dict[str, Any]:
    from pixdraft.training import recipes

    return {"unit": "nats a token", "rows": recipes.load_heads(folder)["phi_rows"]}


PARTS: dict[str, Callable[[Path, str, int, int, Path], dict[str, Any]]] = {
    "pictures": _pictures,
    "sheet": _sheet,
    "guidance": _guidance,
    "uncertainty": _uncertainty,
    "phi": _phi,
}


def main(
    folder: Path, model: str, pictures: int, workers: int, out: Path, parts: tuple[str, ...] = ("pictures", "sheet")
) -> dict[str, Any]:
    """Run the parts one by one; each writes ``OUT/PART.json`` with the command and the machine it stands on.

    A part with raw rows leaves them in ``OUT/PART.rows.jsonl``, one picture a line.

    Args:
        folder: of the recipes; the sprites must be there, and for the other parts than
            "pictures" and "sheet" the trained stages.
        model: a bundled model's name or a model folder.
        pictures: to draw by each method.
        workers: processes that draw.
        out: where results go.
        parts: names in `PARTS`.

    Returns:
        The results by part.

    Raises:
        ValueError: an unknown part.
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"there is no part {unknown[0]!r}: the known ones are {', '.join(PARTS)}")
    out.mkdir(parents=True, exist_ok=True)
    results = {}
    for part in parts:
        words = f"pixdraft evaluate model RUN_FOLDER --model {model} --pictures {pictures} --part {part}"
        results[part] = PARTS[part](folder, model, pictures, workers, out)
        _keep_raw(out / f"{part}.rows.jsonl", results[part].pop("raw", []))
        beside = out / f"{part}.part.json"
        beside.write_text(json.dumps(results[part] | {"made": provenance(words)}, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, out / f"{part}.json")
    return results


def _keep_raw(file: Path, rows: list[dict[str, Any]]) -> None:
    if rows:
        beside = file.with_suffix(".part")
        beside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.replace(beside, file)
