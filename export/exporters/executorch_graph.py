"""The draft in the operators that ExecuTorch's XNNPACK delegate takes, so that a step is three calls of it.

The same function as `export.graph.DraftGraph`, and its linear layers under the same names, but

- queries and keys come out of the projection with the pairs that RoPE turns lying in two halves: rows of the weight
  are only reordered, and q . k does not care;
- a mean over a row is a product with a constant vector, since XNNPACK has no such sum;
- softplus is log(1 + exp(x)), and InterFuse is written without logarithms: for s = softmax(c) and g = exp(r) = 1 + e^x,
  l = s / (s + (1 - s) g) and u = s g / (s g + 1 - s), which is sigmoid(logit(s) -+ r);
- attention and the cache are ExecuTorch's own LLM operators, which look at the filled slots only.

What is left to its portable kernels is a sum and a maximum over V, for the risk head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.export.graph import DraftGraph
from pixdraft.models.transformer import Attention, RMSNorm, TransformerBlock

# Above it softplus(x) is x, and below exp(x) of float32 still has room for a product with another one.
_STEEPEST = 40.0
_LEAST = 1e-30


class Part(nn.Linear):
    """Rows or columns of a linear layer of the draft.

    Args:
        layer: the draft's name of it.
        weight: [outputs, inputs]. bias: [outputs], or None.
    """

    def __init__(self, layer: str, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        self.layer = layer
        self.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=False)
        if bias is not None:
            self.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)


class Norm(nn.Module):
    """See `models.transformer.RMSNorm`; the mean of squares is a linear layer whose bias is epsilon."""

    mean: Tensor
    eps: Tensor

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight = norm.weight
        width = len(norm.weight)
        self.register_buffer("mean", torch.full((1, width), 1.0 / width))
        self.register_buffer("eps", torch.full((1,), norm.eps))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(F.linear(x * x, self.mean, self.eps)) * self.weight


class CachedAttention(nn.Module):
    """Attention over a cache that it holds, [1, slots, heads, D] each for keys and values.

    Args:
        name: of the draft's attention.
        attention: that it does the work of.
        slots: of the cache.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, name: str, attention: Attention, slots: int) -> None:
        super().__init__()
        weight = attention.wqkv.weight
        dim = weight.shape[1]
        self.heads, self.width = attention.heads, dim // attention.heads
        both, value = weight.split([2 * dim, dim])
        pairs = both.unflatten(0, (2 * self.heads, self.width // 2, 2))
        self.even = Part(f"{name}.wqkv", pairs[:, :, 0].flatten(0, 1))
        self.odd = Part(f"{name}.wqkv", pairs[:, :, 1].flatten(0, 1))
        self.value = Part(f"{name}.wqkv", value)
        self.wo = Part(f"{name}.wo", attention.wo.weight)
        for kept in ("keys", "values"):
            self.register_buffer(kept, torch.zeros(1, slots, self.heads, self.width), persistent=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, slot: int) -> Tensor:
        even, odd = (part(x).view(1, -1, 2 * self.heads, self.width // 2) for part in (self.even, self.odd))
        turned = torch.cat([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1)
        query, key = turned[:, :, : self.heads], turned[:, :, self.heads :]
        return self.wo(self.attend(query, key, self.value(x).view(1, -1, self.heads, self.width), slot))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, slot: int) -> Tensor:
        """Write rows [1, S, heads, D] from `slot` on, attend to all slots so far; returns [S, d]."""
        torch.ops.llama.update_cache(key, self.keys, slot)
        torch.ops.llama.update_cache(value, self.values, slot)
        mixed: Tensor = torch.ops.llama.custom_sdpa(query, self.keys, self.values, slot, None, 0.0, True)
        return mixed.view(-1, self.heads * self.width)


class Block(nn.Module):
    """See `models.transformer.TransformerBlock`."""

    def __init__(self, name: str, block: TransformerBlock, slots: int) -> None:
        super().__init__()
        self.attention = CachedAttention(f"{name}.attention", block.attention, slots)
        self.attention_norm, self.ffn_norm = Norm(block.attention_norm), Norm(block.ffn_norm)
        ffn = block.feed_forward
        self.w1, self.w2, self.w3 = (
            Part(f"{name}.feed_forward.{part}", getattr(ffn, part).weight) for part in ("w1", "w2", "w3")
        )

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, slot: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine, slot)
        normed = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(normed)) * self.w3(normed))


class XnnGraph(nn.Module):
    """The draft for XNNPACK: forward(x [S, d], slot [1], place [1]), otherwise as of `DraftGraph`.

    Args:
        graph: the draft; its weights are copied where their rows are reordered or cut.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, graph: DraftGraph) -> None:
        super().__init__()
        dim, codes = graph.config.dim, graph.config.vocab_size
        self.slots = graph.capacity
        self.layers = nn.ModuleList(
            Block(f"layers.{i}", cast(TransformerBlock, b), self.slots) for i, b in enumerate(graph.layers)
        )
        self.norm = Norm(graph.norm)
        self.output = Part("output", graph.output.weight)
        self.radius = Part("radius", graph.radius.weight, graph.radius.bias)
        self.message_feature = Part("message.feature", graph.message.feature.weight)
        lower, upper = graph.message.bounds.weight.split(codes, dim=1)
        self.message_lower, self.message_upper = Part("message.bounds", lower), Part("message.bounds", upper)
        down, up = graph.risk.down, graph.risk.up
        self.risk_feature = Part("risk.down", down.weight[:, :dim], down.bias)
        # Entropy and largest probability: two columns are not worth a quantisation. The first gets -entropy.
        seen = down.weight[:, dim:] * torch.tensor([-1.0, 1.0])
        self.risk_seen = Part("", seen)
        self.risk_up = Part("risk.up", up.weight, up.bias)
        cosine, sine = graph.freqs.unbind(-1)
        self.register_buffer("cosine", cosine[:, None].contiguous())
        self.register_buffer("sine", sine[:, None].contiguous())

    def forward(self, x: Tensor, slot: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        """See `DraftGraph.forward`: in its order, risk [S, 1]."""
        rows = place + torch.arange(x.shape[0])
        cosine, sine = (torch.index_select(table, 0, rows) for table in (self.cosine, self.sine))
        first = slot.item()
        torch._check(first >= 0)
        torch._check(first < self.slots)
        for layer in self.layers:
            x = layer(x, cosine, sine, first)
        feature = self.norm(x)
        center = self.output(feature)
        wide = torch.exp(torch.clamp(self.radius(feature), max=_STEEPEST)) + 1.0
        share = center.softmax(-1)
        rest, raised = 1.0 - share, share * wide
        lower, upper = share / (share + rest * wide), raised / (raised + rest)
        message = self.message_feature(feature) + self.message_lower(lower) + self.message_upper(upper)
        negative = (share * torch.log(torch.clamp(share, min=_LEAST))).sum(-1, keepdim=True)
        seen = torch.cat([negative, share.amax(-1, keepdim=True)], dim=-1)
        risk = torch.sigmoid(self.risk_up(F.silu(self.risk_feature(feature) + self.risk_seen(seen))))
        return center, torch.log(wide), feature, risk, F.silu(message)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The linear layers and their names here; each tells its name in the draft."""
        return ((name, module) for name, module in self.named_modules() if isinstance(module, Part))
