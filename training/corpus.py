"""Pictures that the target itself draws, with guidance: what a draft meets at work, unlike the scenes it came from."""

from __future__ import annotations

import torch
from torch import Tensor

from pixdraft.models.transformer import StaticCache, Transformer


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
def guided_distribution(target: Transformer, condition: Tensor, tokens: Tensor, scale: float) -> Tensor:
    """The guided target's distribution at every position of given pictures [B, T], float32 [B, T, V]."""
    rows = condition.shape[0]
    drop = torch.arange(2 * rows) >= rows
    with torch.autocast("cpu", torch.bfloat16):
        logits = target(condition.repeat(2, 1), tokens[:, :-1].repeat(2, 1), drop)
    return guided(logits.float(), scale).softmax(-1)
