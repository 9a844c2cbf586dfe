"""The LlamaGen decoder (arXiv 2406.06525), with the parameter names of its checkpoints.

One core runs everywhere: training and full passes without a cache, the cloud and the device with one. A cache is an
adapter: it writes keys and values at explicit positions and attends to all that it holds, so that writing at a
position is the rollback, and every exported backend can bring its own way to write and to attend.

Shapes: B rows, S positions of this pass, L positions of the table (condition and image), d model width, D head width.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.config import TransformerConfig


class Cache(Protocol):
    """Keys and values of earlier positions, for every layer."""

    def attend(self, layer: int, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Write k, v [B, heads, S, D] at `positions` [S], and let q of that shape attend to all written so far.

        `mask` as `attention_mask` gives it; a cache of an exported graph gets None and masks by position. Returns
        [B, heads, S, D].
        """


class StaticCache:
    """A cache of fixed size, as phones want it; attention sees all L positions and the mask hides the rest.

    Args:
        config: the decoder's shape.
        rows: batch rows B.
    """

    def __init__(self, config: TransformerConfig, rows: int, dtype: torch.dtype = torch.float32) -> None:
        shape = (config.layers, rows, config.heads, config.length, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)

    def attend(self, layer: int, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `Cache.attend`. Only the filled part is looked at: positions of one pass are consecutive."""
        first = int(positions[0])
        end = first + k.shape[2]
        self.keys[layer, :, :, first:end] = k
        self.values[layer, :, :, first:end] = v
        keys, values = self.keys[layer, :, :, :end], self.values[layer, :, :, :end]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; the norm itself in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


def rope_table(config: TransformerConfig) -> Tensor:
    """Cosines and sines of 2-D RoPE, float32 [L, D / 2, 2]; the rows of condition positions are ZERO.

    The first half of a head turns with the token's row, the second with its column. Zero rows make the keys and
    queries of condition tokens vanish: every image token attends to all of them alike, as LlamaGen was trained.
    """
    half = config.head_dim // 2
    frequencies = config.rope_base ** -(torch.arange(0, half, 2).float() / half)
    angles = torch.outer(torch.arange(config.grid).float(), frequencies)
    rows = angles[:, None].expand(config.grid, config.grid, -1)
    columns = angles[None].expand(config.grid, config.grid, -1)
    image = torch.cat([rows, columns], dim=-1).flatten(0, 1)
    table = torch.stack([image.cos(), image.sin()], dim=-1)
    return torch.cat([torch.zeros(config.condition_length, *table.shape[1:]), table])


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn the interleaved pairs (2i, 2i + 1) of x [B, S, heads, D] by `table` [S, D / 2, 2]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = (part[:, None].to(x.dtype) for part in table.unbind(-1))
    return torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.layer = config.heads, layer
        self.wqkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> Tensor:
        q, k, v = self.wqkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = rotate(q, table), rotate(k, table)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if cache is None:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            mixed = cache.attend(self.layer, positions, q, k, v, mask)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    """Pre-norm attention and feed-forward, each over a skip."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(config, layer), FeedForward(config)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)

    def forward(self, x: Tensor, table: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, mask, positions, cache)
        return x + self.feed_forward(self.ffn_norm(x))


def attention_mask(valid: Tensor, first: int, count: int) -> Tensor:
    """Which keys each position of a pass may see, bool [B, 1, count, first + count].

    Args:
        valid: condition tokens that are no padding, bool [B, P].
        first, count: the pass covers table positions first .. first + count.

    Causal; padding is hidden, but every position sees itself (a row of nothing would be NaN).
    """
    end = first + count
    queries = torch.arange(first, end, device=valid.device)[:, None]
    keys = torch.arange(end, device=valid.device)[None]
    seen = F.pad(valid, (0, max(0, end - valid.shape[1])), value=True)[:, :end]
    return (((keys <= queries) & seen[:, None]) | (keys == queries))[:, None]


class Transformer(nn.Module):
    """The decoder between embeddings and the last norm, with token embeddings and the head beside it.

    Args:
        config: the shape.
        condition: module that embeds conditions (see `pixdraft.models.conditions`), named as in LlamaGen's files.
    """

    freqs: Tensor

    def __init__(self, config: TransformerConfig, condition: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.cls_embedding = condition
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(TransformerBlock(config, i) for i in range(config.layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.register_buffer("freqs", rope_table(config), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and not name.startswith("cls_embedding."):
                nn.init.normal_(parameter, std=0.02)

    def core(self, x: Tensor, valid: Tensor, first: int = 0, cache: Cache | None = None) -> Tensor:
        """Hidden states after the last norm, [B, S, d], of embeddings x [B, S, d] at table positions first ...."""
        count = x.shape[1]
        positions = torch.arange(first, first + count, device=x.device)
        table = self.freqs[first : first + count]
        mask = attention_mask(valid, first, count)
        for layer in self.layers:
            x = layer(x, table, mask, positions, cache)
        return self.norm(x)

    def hidden(
        self, condition: Tensor, tokens: Tensor, drop: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        """A full pass: states that predict image tokens 0 .. n, [B, n + 1, d].

        Args:
            condition: [B, ...] as the condition module takes it.
            tokens: image tokens [B, n].
            drop: rows that get the unconditional embedding, bool [B].
            extra: f^I, added to the tokens' embeddings, [B, n, d].
        """
        prompt, valid = self.cls_embedding(condition, drop)
        image = self.tok_embeddings(tokens)
        if extra is not None:
            image = image + extra
        states = self.core(torch.cat([prompt, image.to(prompt.dtype)], dim=1), valid)
        return states[:, self.config.condition_length - 1 :]

    def forward(self, condition: Tensor, tokens: Tensor, drop: Tensor | None = None) -> Tensor:
        """Logits of image tokens 0 .. n, [B, n + 1, V]."""
        logits: Tensor = self.output(self.hidden(condition, tokens, drop))
        return logits
