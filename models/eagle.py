"""The drafter of EAGLE-2: one decoder layer that goes on from the target's states, and shares its embeddings and head.

Of the token at position t and the target's state f_(t-1), from which that token was drawn, it guesses the state f_t:

    f^_t = layer(fc [E(x_t) ; f_(t-1)])        p_(t+1) = softmax(head(f^_t))

EAGLE (ICML 2024, arXiv 2401.15077), kept in EAGLE-2 (EMNLP 2024, arXiv 2406.16858); for LlamaGen: LANTERN (arXiv
2410.03355). States are those after the last norm, which the head reads. The prompt reaches the drafter through them:
its sequence is image tokens only, each at its own place of the table.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from pixdraft.models.config import TransformerConfig
from pixdraft.models.transformer import Cache, TransformerBlock, rope_table


class Eagle(nn.Module):
    """The drafter's own part: fc (2 d to d) and one decoder layer.

    Args:
        target: shape of the target; the drafter is as wide.
    """

    freqs: Tensor

    def __init__(self, target: TransformerConfig) -> None:
        super().__init__()
        self.config = replace(target, layers=1)
        self.fc = nn.Linear(2 * target.dim, target.dim)
        self.layers = nn.ModuleList([TransformerBlock(self.config, 0)])
        self.register_buffer("freqs", rope_table(target)[target.condition_length :], persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(
        self,
        embedded: Tensor,
        states: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Guessed states [B, n, d] of the tokens that are given.

        Args:
            embedded: embeddings of n tokens, [B, n, d].
            states: of the target, or guessed, at the position before each, [B, n, d].
            positions: image positions of the tokens [n], ascending; by default 0 .. n - 1. A cache takes them there.
            mask: what each sees of the cache and of the others, bool [n, K]; by default those up to itself.
            cache: of tokens before these.
        """
        count = embedded.shape[1]
        if positions is None:
            positions = torch.arange(count, device=embedded.device)
        if mask is None:
            mask = positions[:, None] >= torch.arange(int(positions[0]) + count, device=embedded.device)
        x = self.fc(torch.cat([embedded, states], dim=-1))
        for layer in self.layers:
            x = layer(x, self.freqs[positions], mask, positions, cache)
        return x
