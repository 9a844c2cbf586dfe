"""`pixdraft evaluate relaxation`: a map of one picture, and over many: do smooth regions accept more?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pixdraft.runtime.files import written_beside
from pixdraft.trials.methods import MethodError, check
from pixdraft.trials.pictures import prompts
from pixdraft.trials.provenance import provenance
from pixdraft.trials.relaxation import End, Relaxed, correlate, draw
from pixdraft.trials.relaxation_map import draw_map

METHOD = "sjd:init=uniform+csd:lam=0.5,delta=0.65"  # the default of the command line
NAME = "relaxation"
SURE = 2.0  # standard errors from "nothing" to a verdict
CLAIMS = {  # value where smoothness says nothing, and the claim that a greater one speaks for
    "entropy": (0.0, "smooth regions have a higher entropy"),
    "tv": (0.0, "smooth regions have a higher total variation between draft and target"),
    "accepted": (0.5, "smooth regions accept more"),
    "relaxed": (0.5, "the relaxation acts more in smooth regions"),
}


Asked = list[tuple[str, int]]


def asked(data: Path, count: int, prompt: str | None, seed: int) -> Asked:
    """Prompt and seed of each picture: the model's own, the first with what is given; `data` holds the sprites."""
    if prompt is not None and count == 1:
        return [(prompt, seed)]
    captions, _, seeds = prompts(data, count)
    return [(prompt or captions[0], seed), *zip(captions[1:], seeds[1:], strict=True)]


def run(method: str, asked: Asked, model: str, out: Path, command: str) -> dict[str, Any]:
    """Draw each prompt; map the first. Leaves ``OUT/relaxation.json``, ``.rows.jsonl`` and ``.png``.

    Args:
        method: of the policy sjd, see `trials.methods`.
        asked: prompt and seed of every picture, one or more.
        model: a bundled model's name or a model folder.
        out: folder.
        command: that makes it, kept with the result.

    Raises:
        MethodError: the method cannot run, or is not of the policy sjd.
    """
    from rich.console import Console
    from rich.progress import track

    from pixdraft.models.registry import find, load_target
    from pixdraft.runtime.backends.torch_backend import draft_info

    folder = find(model)
    how = check(method, folder)
    if how.policy != "sjd":
        raise MethodError(f"the method {method!r} judges no guesses of the target's own: take one of the policy sjd")
    out.mkdir(parents=True, exist_ok=True)
    target = load_target(model)
    words = track(asked, description="pictures", console=Console(stderr=True))
    pictures = [draw(target, how.ask_for(prompt, seed).fitted(draft_info(folder))) for prompt, seed in words]
    found = correlate(pictures)
    result = {
        "method": method,
        "model": folder.info.name,
        "pictures": len(pictures),
        "shown": {"prompt": asked[0][0], "seed": asked[0][1]},
        "passes": float(np.mean([picture.passes for picture in pictures])),
        "smoothness": found,
        "verdicts": verdicts(found),
        "made": provenance(command),
    }
    with written_beside(out / f"{NAME}.rows.jsonl") as file:
        rows = (_row(*named, picture) for named, picture in zip(asked, pictures, strict=True))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draw_map(pictures[0], "{}, seed {}".format(*asked[0]), out / f"{NAME}.png")
    with written_beside(out / f"{NAME}.json") as file:
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def verdicts(found: Mapping[str, Any]) -> list[str]:
    """One sentence a claim: confirmed or refuted where the mean is `SURE` errors from nothing, else undecided."""
    sentences = []
    for name, (nothing, claim) in CLAIMS.items():
        mean, error = found[name]["mean"], found[name]["error"]
        if mean is None or error is None:
            sentences.append(f"{claim}: undecided (too few pictures)")
            continue
        away = mean - nothing
        word = "undecided" if abs(away) < SURE * error else "confirmed" if away > 0 else "refuted"
        measure = "of two positions the smoother one" if nothing else "rank correlation with smoothness"
        sentences.append(f"{claim}: {word} ({measure} {mean:.3f} ± {error:.3f}; {nothing:g} would say nothing)")
    return sentences


def _row(prompt: str, seed: int, picture: Relaxed) -> dict[str, Any]:
    """A picture as JSON types: numbers of each position, null where no draft was judged."""
    tv = [None if np.isnan(value) else round(value, 5) for value in picture.tv.tolist()]
    return {
        "prompt": prompt,
        "seed": seed,
        "passes": picture.passes,
        "tokens": picture.tokens.tolist(),
        "entropy": np.round(picture.entropy, 5).tolist(),
        "tv": tv,
        "end": [End(end).name.lower() for end in picture.end],
        "roughness": np.round(picture.roughness, 3).tolist(),
    }
