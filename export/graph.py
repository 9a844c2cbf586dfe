"""The draft as one function over embeddings, the same for every backend; only the cache differs.

    forward(x [1, S, d], slot [1], place [1]) -> center, radius, feature, risk, message

Two facts keep the graph small. RoPE rows of condition positions are zero, so padding of the prompt can be left out:
its n valid tokens take the cache slots 0 .. n - 1, image token i takes slot n + i with RoPE row P + i, and causal
order by slot is all the masking there is. And phi's product with the token embeddings is linear, so it is folded
into two [V, bottleneck] matrices instead of two V x d products a step.

A row after the last wanted one may be padding: what it writes is overwritten before anything attends to it. So a
graph of fixed S serves any number of tokens, and rewinding `slot` is the rollback.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.inter_head import DraftRow, DraftTransformer, fuse
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Cache

OUTPUTS = DraftRow._fields
"""Names of the outputs, in order: center, radius [S, V], feature [S, d], risk [S], message [S, bottleneck]."""


class Message(nn.Module):
    """The device's half of phi with the embeddings folded in: silu(W f + l A + u B), A and B [V, bottleneck]."""

    def __init__(self, draft: DraftTransformer) -> None:
        super().__init__()
        dim, width = draft.config.dim, draft.bottleneck
        by_feature, by_lower, by_upper = draft.phi_down.weight.detach().split(dim, dim=1)
        table = draft.decoder.tok_embeddings.weight.detach()
        self.feature = nn.Linear(dim, width, bias=False)
        self.bounds = nn.Linear(2 * draft.config.vocab_size, width, bias=False)
        folded = torch.cat([by_lower.double() @ table.double().T, by_upper.double() @ table.double().T], dim=1)
        with torch.no_grad():
            self.feature.weight.copy_(by_feature)
            self.bounds.weight.copy_(folded)
        self.requires_grad_(False)

    def forward(self, feature: Tensor, center: Tensor, radius: Tensor) -> Tensor:
        """Messages [S, bottleneck]."""
        lower, upper = fuse(center, radius)
        return F.silu(self.feature(feature) + self.bounds(torch.cat([lower, upper], dim=-1)))


class DraftGraph(nn.Module):
    """The exported draft. Its linear layers keep the names of `models.inter_head.DraftTransformer` where they are its.

    Args:
        draft: the network, in eval mode; its parameters are shared, not copied.
        capacity: cache slots; at least P + T, and a block more where the graph's S is fixed.
    """

    freqs: Tensor

    def __init__(self, draft: DraftTransformer, capacity: int) -> None:
        super().__init__()
        config = draft.config
        if capacity < config.length:
            raise ValueError(f"capacity {capacity} is below the {config.length} positions of a picture")
        self.config = config
        self.capacity = capacity
        self.layers = draft.decoder.layers
        self.norm = draft.decoder.norm
        self.output = draft.decoder.output
        self.radius = draft.radius
        self.risk = draft.risk
        self.message = Message(draft)
        # Padding after the last image token needs rows too; which ones does not matter.
        table = draft.decoder.freqs
        spare = table[-1:].expand(capacity - config.length, -1, -1)
        self.register_buffer("freqs", torch.cat([table, spare]), persistent=False)

    def forward(self, x: Tensor, slot: Tensor, place: Tensor, cache: Cache) -> DraftRow:
        """Rows of the positions after each of x.

        Args:
            x: embeddings, float32 [1, S, d].
            slot: cache slot of the first row, whole number [1].
            place: RoPE row of the first row, whole number [1].
            cache: what writes and attends; it gets slots as positions, and no mask.
        """
        steps = torch.arange(x.shape[1], device=x.device, dtype=slot.dtype)
        table = torch.index_select(self.freqs, 0, place + steps)
        slots = slot + steps
        for layer in self.layers:
            x = layer(x, table, None, slots, cache)
        feature = self.norm(x)[0]
        center, radius = self.output(feature), F.softplus(self.radius(feature))
        return DraftRow(center, radius, feature, self.risk(feature, center), self.message(feature, center, radius))


class EagerCache:
    """A cache for running a `DraftGraph` in eager mode: the reference that exported graphs are held against."""

    def __init__(self, graph: DraftGraph) -> None:
        config = graph.config
        shape = (config.layers, 1, config.heads, graph.capacity, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def attend(self, layer: int, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `models.transformer.Cache.attend`."""
        self.keys[layer, :, :, positions] = k
        self.values[layer, :, :, positions] = v
        seen = torch.arange(self.keys.shape[3])[None] <= positions[:, None]
        return F.scaled_dot_product_attention(q, self.keys[layer], self.values[layer], attn_mask=seen)


class PictureGraph(nn.Module):
    """The exported decoder of pictures: pixels [3, H, W] in about [-1, 1] of tokens, whole numbers [1, T].

    Args:
        tokenizer: in eval mode; its parameters are shared, but the codes are normalised here, once.
    """

    units: Tensor

    def __init__(self, tokenizer: VQTokenizer) -> None:
        super().__init__()
        self.register_buffer("units", tokenizer.quantize.units().detach(), persistent=False)
        self.post_quant_conv = tokenizer.post_quant_conv
        self.decoder = tokenizer.decoder

    def forward(self, tokens: Tensor) -> Tensor:
        """Pixels of tokens."""
        side = int(tokens.shape[1] ** 0.5)
        codes = F.embedding(tokens, self.units).transpose(1, 2).unflatten(2, (side, side))
        pixels: Tensor = self.decoder(self.post_quant_conv(codes))
        return pixels[0]
