"""The same prompts and seeds by every engine: are the decisions the same, token by token?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.export.source import Source
from pixdraft.models.registry import load_target
from pixdraft.runtime.backends import DraftModel
from pixdraft.runtime.backends.torch_backend import TorchDraft
from pixdraft.runtime.bundle import open_bundle
from pixdraft.runtime.picture import Picture
from pixdraft.runtime.policies import create
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession

PICTURES = 10
RATE = 0.3


def agreement(
    source: Source, bundles: Mapping[str, Path], threads: int = 1, pictures: int = PICTURES
) -> dict[str, Any]:
    """Draw by `ciar` with torch and with each bundle, the full model in this process, and compare the traces.

    Args:
        source: of all the bundles, with its full model.
        bundles: folders by name.
        threads: of the bundles' engines.
        pictures: prompts to draw, the seed of each its place.

    Returns:
        model, prompts; by: for each bundle
            same: share of the pictures whose every token and every decision is torch's.
            first: of each picture, the position of the first difference; None where there is none.
            tokens, decisions: share of all positions with torch's token, and with its decision.
    """
    target = load_target(str(source.model))
    prompts = source.prompts[:pictures]

    def drawn(draft: DraftModel) -> list[Picture]:
        session = DeviceSession(draft, LocalCloud(target))
        asked = (DrawRequest(prompt, seed, create("ciar", rate=RATE)) for seed, prompt in enumerate(prompts))
        return [asyncio.run(session.draw(request)) for request in asked]

    theirs = drawn(TorchDraft(source.info, source.network, source.tokenizer))
    by = {name: compared(theirs, drawn(open_bundle(folder, threads))) for name, folder in bundles.items()}
    return {"model": source.info.name, "prompts": list(prompts), "rate": RATE, "by": by}


def compared(theirs: list[Picture], ours: list[Picture]) -> dict[str, Any]:
    """How far pictures of the same requests agree, see `agreement`."""
    tokens = np.array([a.tokens == b.tokens for a, b in zip(theirs, ours, strict=True)])
    decisions = np.array(
        [
            [x.decision == y.decision for x, y in zip(a.records, b.records, strict=True)]
            for a, b in zip(theirs, ours, strict=True)
        ]
    )
    both = tokens & decisions
    first = [None if row.all() else int(row.argmin()) for row in both]
    return {
        "same": float(both.all(1).mean()),
        "first": first,
        "tokens": float(tokens.mean()),
        "decisions": float(decisions.mean()),
    }
