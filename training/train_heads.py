"""Stage 4: the heads that say how unsure the draft is, on its frozen states, so that losses compare on equal terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.inter_head import RADIUS_BIAS, DraftTransformer, RiskHead
from pixdraft.models.transformer import Transformer
from pixdraft.training.corpus import guided_distribution
from pixdraft.training.loop import generator
from pixdraft.training.losses import BOUND_LOSSES, InterDRO, risk

NOISE = 0.2  # width of the uniform noise on hidden states while a head learns


@dataclass(frozen=True)
class States:
    """What heads learn from, position by position.

    Attributes:
        feature: states of the draft, float16 [N, d].
        q: the guided target's distribution there, float16 [N, V].
    """

    feature: Tensor
    q: Tensor

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Some positions, as float32."""
        return self.feature[index].float(), self.q[index].float()


@torch.no_grad()
def collect(
    target: Transformer, draft: DraftTransformer, condition: Tensor, tokens: Tensor, guidance: float, batch: int = 25
) -> States:
    """States of the draft and distributions of the target over given pictures [N, T]."""
    features, distributions = [], []
    for start in range(0, len(tokens), batch):
        rows = slice(start, start + batch)
        q = guided_distribution(target, condition[rows], tokens[rows], guidance)
        states = draft.decoder.hidden(condition[rows], tokens[rows, :-1])
        features.append(states.flatten(0, 1).half())
        distributions.append(q.flatten(0, 1).half())
    return States(torch.cat(features), torch.cat(distributions))


def _learn(
    head: nn.Module,
    rate: float,
    steps: int,
    size: int,
    states: States,
    seed: int,
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor],  # of states, noise for them, and q
) -> None:
    optimiser = torch.optim.AdamW(head.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20) * (1.0 - 0.95 * step / steps)
        rng = generator(seed, step)
        feature, q = states.take(torch.randint(0, len(states.feature), (size,), generator=rng))
        noise = NOISE * (torch.rand(feature.shape, generator=rng) - 0.5)
        loss = loss_of(feature, noise, q)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()


def train_bounds(
    draft: DraftTransformer, states: States, name: str, weights: InterDRO, steps: int = 250, size: int = 1024
) -> nn.Linear:
    """A radius head under the loss `name` of `losses.BOUND_LOSSES`; the draft itself is left alone.

    The pinball loss starts wider (bias -1): it shrinks what is too wide faster than it widens what is too narrow.
    """
    head = nn.Linear(draft.config.dim, draft.config.vocab_size)
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, -1.0 if name == "pinball" else RADIUS_BIAS)
    output = draft.decoder.output

    def loss_of(feature: Tensor, noise: Tensor, q: Tensor) -> Tensor:
        with torch.no_grad():
            center = output(feature)
        return BOUND_LOSSES[name](q, center, F.softplus(head(feature + noise)), weights)

    _learn(head, 2e-3, steps, size, states, 21, loss_of)
    return head


def train_risk(draft: DraftTransformer, states: States, steps: int = 1500, size: int = 1024) -> RiskHead:
    """A risk head on the draft's states."""
    head = RiskHead(draft.config.dim)
    output = draft.decoder.output

    def loss_of(feature: Tensor, noise: Tensor, q: Tensor) -> Tensor:
        with torch.no_grad():
            center = output(feature)
        return risk(q, center, head(feature + noise, center))

    _learn(head, 2e-3, steps, size, states, 22, loss_of)
    return head
