"""The device's model: a LlamaGen decoder of one layer (or two) whose head is the Inter-Head of CIAR (arXiv 2603.25463).

For the state h of a position: centre logits c = W_c h and half-widths r = softplus(W_r h); the logit interval
[c - r, c + r] becomes probability bounds by InterFuse. Beside them stand a scalar risk head, which predicts the total
variation between draft and target, and the device's half of phi, the message that conditions the cloud.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.config import TransformerConfig
from pixdraft.models.transformer import Cache, Transformer

RADIUS_BIAS = -2.0
RISK_WIDTH = 64


def fuse(center: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """InterFuse, the torch twin of `decoding.intervals.fuse`: bounds [..., V] of the probabilities.

    l = sigmoid(a - r), u = sigmoid(a + r), a_i = c_i - logsumexp of the other centres.
    """
    top = center.amax(-1, keepdim=True)
    weights = (center - top).exp()
    total = weights.sum(-1, keepdim=True)
    # 1 - s_i from the other terms: only the largest entry can lose all its digits in `total - weights`. No scatter:
    # phones' backends leave it behind. Where several are largest, each has the rest (weight 1) among its others.
    largest = center >= top
    ties = largest.to(center.dtype).sum(-1, keepdim=True) - 1.0
    others_of_top = weights.masked_fill(largest, 0.0).sum(-1, keepdim=True) + ties
    others = torch.where(largest, others_of_top, total - weights)
    a = center - top - others.clamp_min(1e-30).log()
    return torch.sigmoid(a - radius), torch.sigmoid(a + radius)


class DraftRow(NamedTuple):
    """Tensors of one pass, see `runtime.backends.DraftOutput`: [B, S, V], [B, S, V], [B, S, d], [B, S], [B, S, b]."""

    center: Tensor
    radius: Tensor
    feature: Tensor
    risk: Tensor
    message: Tensor


class RiskHead(nn.Module):
    """Predicts TV(p, q) in [0, 1]: a small MLP on the state, the draft's entropy and its largest probability.

    The rejection probability of speculative sampling is exactly TV(p, q), so the conditional mean of TV is the best
    statistic there can be of what the device sees.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(dim + 2, RISK_WIDTH), nn.Linear(RISK_WIDTH, 1)

    def forward(self, feature: Tensor, center: Tensor) -> Tensor:
        """Predicted TV [...] of states [..., d] and centre logits [..., V]."""
        # No log of a probability: in half precision small ones are 0, and 0 * log 0 is no number.
        below = center - center.amax(-1, keepdim=True)
        weights = below.exp()
        total = weights.sum(-1, keepdim=True)
        entropy = total.log() - (weights * below).sum(-1, keepdim=True) / total
        seen = torch.cat([feature, entropy, total.reciprocal()], dim=-1)
        return torch.sigmoid(self.up(F.silu(self.down(seen)))).squeeze(-1)


class DraftTransformer(nn.Module):
    """The draft with all its heads.

    Args:
        config: the draft's shape (its `layers` are 1 or 2, the rest is the target's).
        condition: as for `Transformer`.
        bottleneck: width of the message to the cloud.
    """

    def __init__(self, config: TransformerConfig, condition: nn.Module, bottleneck: int = 32) -> None:
        super().__init__()
        self.config = config
        self.bottleneck = bottleneck
        self.decoder = Transformer(config, condition)
        self.radius = nn.Linear(config.dim, config.vocab_size)
        nn.init.zeros_(self.radius.weight)
        nn.init.constant_(self.radius.bias, RADIUS_BIAS)
        self.risk = RiskHead(config.dim)
        self.phi_down = nn.Linear(3 * config.dim, bottleneck, bias=False)

    @staticmethod
    def shape(target: TransformerConfig, layers: int = 1) -> TransformerConfig:
        """The draft's shape for a target's."""
        return replace(target, layers=layers)

    def start_from(self, target: Transformer) -> None:
        """Copy what has the target's shape: embeddings, condition, the last norm, the head and its first layers.

        The centre starts at the target's LM head, the radius at softplus(-2) everywhere (ciar.md, section 1).
        """
        own = self.decoder.state_dict()
        taken = {name: value for name, value in target.state_dict().items() if name in own}
        self.decoder.load_state_dict(taken)

    def intervals(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Centre and radius [..., V] of states [..., d]."""
        return self.decoder.output(feature), F.softplus(self.radius(feature))

    def phi_inputs(self, feature: Tensor, center: Tensor, radius: Tensor) -> Tensor:
        """[f ; l^T E ; u^T E], E the token embeddings, [..., 3 d]."""
        lower, upper = fuse(center, radius)
        table = self.decoder.tok_embeddings.weight
        return torch.cat([feature, lower @ table, upper @ table], dim=-1)

    def heads(self, feature: Tensor) -> DraftRow:
        """All outputs of states [..., d]; the message is the device's half of phi, z = silu(W1 [f ; l^T E ; u^T E])."""
        center, radius = self.intervals(feature)
        message = F.silu(self.phi_down(self.phi_inputs(feature, center, radius)))
        return DraftRow(center, radius, feature, self.risk(feature, center), message)

    def prefill(self, condition: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
        """State of the last condition position, [B, 1, d], and the padding mask that later steps need."""
        prompt, valid = self.decoder.cls_embedding(condition)
        return self.decoder.core(prompt, valid, 0, cache)[:, -1:], valid

    def step(self, tokens: Tensor, position: int, valid: Tensor, cache: Cache) -> Tensor:
        """States [B, n, d] after image tokens [B, n] at `position` and on."""
        first = self.config.condition_length + position
        return self.decoder.core(self.decoder.tok_embeddings(tokens), valid, first, cache)


class Conditioning(nn.Module):
    """The cloud's half of phi: f^I = W2 z, added to the token's embedding. Zero at the start: the untouched cloud."""

    def __init__(self, bottleneck: int, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(bottleneck, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, message: Tensor) -> Tensor:
        return self.up(message)
