"""Stage 5: phi, the message that makes the cloud read a device's prefix as it would read its own (CIAR, section 3).

The cloud is frozen. At low-risk positions the device's own draws replace the target's; phi learns to bring the
target's distribution on that prefix back to the one on the clean prefix: KL(q(clean) || q(device prefix + f^I)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pixdraft.models.inter_head import Conditioning, DraftTransformer
from pixdraft.models.transformer import Transformer
from pixdraft.training.corpus import guided, guided_distribution
from pixdraft.training.loop import generator


@dataclass(frozen=True)
class PhiRecipe:
    """Settings of stage 5; `kept` is the share of positions that the device draws by itself."""

    steps: int = 150
    batch: int = 12
    guidance: float = 2.0
    kept: float = 0.7
    rate: float = 2e-3
    seed: int = 14


class Phi(nn.Module):
    """Both halves together, of one bottleneck width; learns beside others of other widths."""

    def __init__(self, dim: int, bottleneck: int) -> None:
        super().__init__()
        self.down = nn.Linear(3 * dim, bottleneck, bias=False)
        self.conditioning = Conditioning(bottleneck, dim)


@torch.no_grad()
def device_prefix(
    draft: DraftTransformer, condition: Tensor, tokens: Tensor, kept: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pictures in which the device's draws stand at its `kept` share of least risky positions.

    Returns:
        Tokens [B, T] and where they are the device's, bool [B, T].
    """
    states = draft.decoder.hidden(condition, tokens[:, :-1])
    center = draft.decoder.output(states)
    predicted = draft.risk(states, center)
    drawn = torch.multinomial(center.softmax(-1).flatten(0, 1), 1, generator=rng).view_as(tokens)
    own = predicted <= predicted.quantile(kept)
    return torch.where(own, drawn, tokens), own


def _inputs(draft: DraftTransformer, condition: Tensor, prefix: Tensor) -> Tensor:
    """[f ; l^T E ; u^T E] of every position of a prefix, [B, T, 3 d]."""
    with torch.no_grad():
        states = draft.decoder.hidden(condition, prefix[:, :-1])
        return draft.phi_inputs(states, *draft.intervals(states))


def _conditioned(target: Transformer, condition: Tensor, prefix: Tensor, extra: Tensor | None, scale: float) -> Tensor:
    """Guided log-probabilities of the target on a prefix with f^I [B, T - 1, d], [B, T, V]."""
    rows = condition.shape[0]
    drop = torch.arange(2 * rows) >= rows
    both = None if extra is None else extra.repeat(2, 1, 1)
    with torch.autocast("cpu", torch.bfloat16):
        states = target.hidden(condition.repeat(2, 1), prefix[:, :-1].repeat(2, 1), drop, both)
        logits = target.output(states)
    return guided(logits.float(), scale).log_softmax(-1)


def _divergence(q: Tensor, log_p: Tensor) -> Tensor:
    return (q * ((q + 1e-9).log() - log_p)).sum(-1).mean()


def train_phi(
    target: Transformer,
    draft: DraftTransformer,
    batch_of: Callable[[int], tuple[Tensor, Tensor]],
    recipe: PhiRecipe,
    widths: tuple[int, ...] = (32, 256),
) -> tuple[dict[int, Phi], list[dict[str, float]]]:
    """Train one phi for each width on the same prefixes.

    Args:
        target, draft: frozen.
        batch_of: word ids [B, P] and target-drawn tokens [B, T] of a step.
        recipe: settings.
        widths: bottlenecks.

    Returns:
        The phis by width, and a row a step: KL without phi and with each.
    """
    torch.manual_seed(recipe.seed)
    phis = {width: Phi(target.config.dim, width) for width in widths}
    optimisers = {w: torch.optim.AdamW(p.parameters(), recipe.rate, betas=(0.9, 0.95)) for w, p in phis.items()}
    rows = []
    for step in range(recipe.steps):
        condition, tokens = batch_of(step)
        q = guided_distribution(target, condition, tokens, recipe.guidance)
        prefix, own = device_prefix(draft, condition, tokens, recipe.kept, generator(recipe.seed, step))
        seen = _inputs(draft, condition, prefix)
        with torch.no_grad():
            row = {"none": _divergence(q, _conditioned(target, condition, prefix, None, recipe.guidance)).item()}
        for width, phi in phis.items():
            for group in optimisers[width].param_groups:
                group["lr"] = recipe.rate * min(1.0, (step + 1) / 10) * (1.0 - 0.95 * step / recipe.steps)
            message = nn.functional.silu(phi.down(seen))
            extra = (phi.conditioning(message) * own[..., None])[:, :-1]
            loss = _divergence(q, _conditioned(target, condition, prefix, extra, recipe.guidance))
            optimisers[width].zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(phi.parameters(), 1.0)
            optimisers[width].step()
            row[f"width {width}"] = loss.item()
        rows.append(row)
    return phis, rows
