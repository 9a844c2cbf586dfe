"""Which guidance to train the draft for: a sweep over scales, since no other model's number carries over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pixdraft.models.tokenizer import to_bytes
from pixdraft.training import recipes
from pixdraft.training.corpus import draw_tokens
from pixdraft.training.vocabulary import CaptionSampler
from pixdraft.trials.pictures import Judge, prompts

SCALES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def sweep(folder: Path, judge: Judge, count: int, scales: tuple[float, ...] = SCALES) -> list[dict[str, Any]]:
    """Retrieval and Frechet distance of `count` pictures of the recipe's target at each scale."""
    target, tokenizer = recipes.load_target(folder), recipes.load_tokenizer(folder)
    captions, names, _ = prompts(folder, count)
    encoder = CaptionSampler().encoder
    condition = torch.stack([torch.from_numpy(encoder.encode(c)).long() for c in captions])
    rows = []
    for scale in scales:
        tokens = torch.cat([draw_tokens(target, part, scale, seed=7) for part in condition.split(100)])
        with torch.inference_mode():
            pixels = torch.cat([to_bytes(tokenizer.decode(part)) for part in tokens.split(100)]).numpy()
        rows.append({"guidance": scale, **judge.measure(pixels, names)})
    return rows
