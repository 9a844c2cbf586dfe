"""The model card that goes with the weights: data, stages, losses, licences."""

from __future__ import annotations

import json
from typing import Any

from pixdraft.training.packages import PACKAGES
from pixdraft.training.sprites import held_out_names, names

_CARD = """# emoji: the bundled model

A small autoregressive picture model of the LlamaGen architecture: 64 px, 16 x 16 tokens, 1,024 codes; a VQ
tokenizer, a target of {layers} (the cloud's) and a draft of one layer with an Inter-Head (the device's).

Made for: trying, testing and measuring edge-cloud decoding without fetching anything. It draws {names} everyday
emoji in three styles on {grounds}; it is no general picture model and knows no people, text or scenes.

## Data
Scenes rendered without end from a seed (`pixdraft train data`), no two alike: an emoji at a random scale and place,
often mirrored, on a named ground with a gradient and grain; the caption says style, name and ground. The stages below
follow one another: the target learned first on rougher scenes (smaller, more grain), then on these.
Held out of all training, {held} of the names: {held_names}.

| pictures | version | licence |
|---|---|---|
{packages}

## Stages
| stage | settings | last row of its log |
|---|---|---|
{stages}

KL of the target's distribution on a device's prefix to the one on the clean prefix, nats a token, mean of the last
20 steps: {phi}.

## Licence
The weights are Apache-2.0 as the project is; they were learned from the pictures above, see NOTICE for their
attribution.

## Files (SHA-256)
{{hashes}}
"""


def model_card(
    recipes: dict[str, dict[str, Any]], logs: dict[str, dict[str, float]], phi: list[dict[str, float]]
) -> str:
    """The card as Markdown, with ``{hashes}`` left to fill."""
    held = held_out_names()
    tail = phi[-20:]
    means = {key: sum(row[key] for row in tail) / len(tail) for key in tail[0]}
    return _CARD.format(
        layers="six layers",
        names=len(names()) - len(held),
        grounds="16 named grounds",
        held=len(held),
        held_names=", ".join(held),
        packages="\n".join(f"| {p.package} | {p.version} | {p.licence} |" for p in PACKAGES),
        stages="\n".join(f"| {s} | `{json.dumps(recipes[s])}` | `{json.dumps(logs[s])}` |" for s in recipes),
        phi=", ".join(f"{key} {value:.4f}" for key, value in means.items()),
    )
