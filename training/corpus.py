"""Pictures that the target itself draws, with guidance: what a draft meets at work, unlike the scenes it came from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pixdraft.models.transformer import StaticCache, Transformer
from pixdraft.training.scenes import SceneStream
from pixdraft.training.vocabulary import CaptionSampler


def guided(logits: Tensor, scale: float) -> Tensor:
    """u + s (c - u) over rows [2 B, ...], prompts first: [B, ...]."""
    with_prompt, without = logits.chunk(2)
    return without + scale * (with_prompt - without)


@torch.inference_mode()
def draw_tokens(target: Transformer, condition: Tensor, scale: float, seed: int) -> Tensor:
    """Sample whole pictures from the guided target, at temperature 1.

    Args:
        target: the decoder.
        condition: [B, P].
        scale: of guidance.
        seed: of the draw.

    Returns:
        Tokens, int64 [B, T].
    """
    config = target.config
    rows = condition.shape[0]
    rng = torch.Generator().manual_seed(seed)
    cache = StaticCache(config, 2 * rows)
    drop = torch.arange(2 * rows) >= rows
    x, valid = target.cls_embedding(condition.repeat(2, 1), drop)
    tokens = torch.zeros(rows, config.image_tokens, dtype=torch.long)
    first = 0
    for i in range(config.image_tokens):
        state = target.core(x, valid, first, cache)[:, -1]
        first += x.shape[1]
        probabilities = guided(target.output(state), scale).softmax(-1)
        tokens[:, i] = torch.multinomial(probabilities, 1, generator=rng)[:, 0]
        x = target.tok_embeddings(tokens[:, i : i + 1]).repeat(2, 1, 1)
    return tokens


@torch.no_grad()
def guided_distribution(
    target: Callable[[Tensor, Tensor, Tensor], Tensor], condition: Tensor, tokens: Tensor, scale: float
) -> Tensor:
    """The guided target's distribution at every position of given pictures [B, T], float32 [B, T, V]."""
    rows = condition.shape[0]
    drop = torch.arange(2 * rows) >= rows
    with torch.autocast("cpu", torch.bfloat16):
        logits = target(condition.repeat(2, 1), tokens[:, :-1].repeat(2, 1), drop)
    return guided(logits.float(), scale).softmax(-1)


def fingerprint(model: nn.Module) -> str:
    """SHA-256 (hex) of a network's parameters: what was made with it must not be mixed with another's."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Corpus:
    """Pictures that the target drew of a stream's captions, kept in chunks so that drawing resumes.

    Args:
        folder: of the chunks; its description must match, or the chunks are another target's.
        target: the decoder.
        stream: whose captions to draw.
        scale: of guidance.
    """

    CHUNK = 100

    def __init__(self, folder: Path, target: Transformer, stream: SceneStream, scale: float) -> None:
        self.folder, self.target, self.stream, self.scale = folder, target, stream, scale
        self.captions = CaptionSampler()
        self.print = fingerprint(target)

    def names(self, count: int) -> list[str]:
        """What the first `count` pictures show."""
        return [self.stream.scene(i).name for i in range(count)]

    def _chunk(self, number: int) -> tuple[Tensor, Tensor]:
        file = self.folder / f"{number:04d}.pt"
        if file.exists():
            kept = torch.load(file, weights_only=True)
            if kept["scale"] == self.scale and kept["print"] == self.print:
                return kept["condition"], kept["tokens"]
        scenes = [self.stream.scene(number * self.CHUNK + i) for i in range(self.CHUNK)]
        rng = np.random.Generator(np.random.PCG64([self.stream.seed, number]))
        condition = torch.from_numpy(self.captions.batch(scenes, rng)).long()
        tokens = draw_tokens(self.target, condition, self.scale, self.stream.seed * 100_003 + number)
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".part")
        torch.save({"scale": self.scale, "print": self.print, "condition": condition, "tokens": tokens}, beside)
        os.replace(beside, file)
        return condition, tokens

    def load(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` pictures, drawn where they are missing: word ids [count, P] and tokens [count, T]."""
        from rich.progress import track

        chunks = -(-count // self.CHUNK)
        parts = [self._chunk(i) for i in track(range(chunks), description="pictures of the target")]
        return torch.cat([c for c, _ in parts])[:count], torch.cat([t for _, t in parts])[:count]
