"""Stage 3: the draft with its Inter-Head, on the target's GUIDED distribution, so that the phone pays one row.

Drafts of one and of two layers can learn in one run: the target's pass, which costs most, is shared.
The bounds and the risk head learn on detached states (training/train_heads.py); here only what drafts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from pixdraft.models.conditions import WordCondition
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.transformer import Transformer
from pixdraft.training.corpus import guided_distribution
from pixdraft.training.loop import Run, compiled, generator, show_progress, warmup_decay
from pixdraft.training.losses import InterDRO, center_loss, total_variation
from pixdraft.training.optimisers import Optimisers
from pixdraft.training.train_target import TokenBatches
from pixdraft.training.vocabulary import CONDITION_LENGTH, words


@dataclass(frozen=True)
class DraftRecipe:
    """Settings of stage 3; the defaults made the bundled weights.

    Attributes:
        guidance: scale of the distribution to learn.
        layers: one draft for each entry.
        own_share: share of a batch that the target drew itself.
    """

    steps: int = 1400
    batch: int = 24
    guidance: float = 3.0
    layers: tuple[int, ...] = (1, 2)
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    own_share: float = 0.5
    seed: int = 13
    loss: InterDRO = field(default_factory=lambda: InterDRO(kl=1.0))


def new_draft(target: Transformer, layers: int) -> DraftTransformer:
    """A draft that starts from the target's embeddings, head and first layers."""
    draft = DraftTransformer(
        DraftTransformer.shape(target.config, layers), WordCondition(len(words()), CONDITION_LENGTH, target.config.dim)
    )
    draft.start_from(target)
    return draft


class PrefixBatches:
    """Prefixes to learn on: some drawn by the target (a corpus), the rest fresh scenes.

    Args:
        scenes: fresh ones.
        condition, tokens: the corpus, [N, P] and [N, T].
        own_share: of the corpus in a batch.
    """

    def __init__(self, scenes: TokenBatches, condition: Tensor, tokens: Tensor, own_share: float) -> None:
        self.scenes, self.condition, self.tokens, self.own_share = scenes, condition, tokens, own_share

    def batch(self, step: int, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Word ids [count, P] and tokens [count, T]."""
        own = round(self.own_share * count)
        picked = torch.randint(0, len(self.tokens), (own,), generator=rng)
        condition, tokens = self.scenes.batch(step * count, count - own)
        return torch.cat([self.condition[picked], condition]), torch.cat([self.tokens[picked], tokens])


def train_draft(
    folder: Path, target: Transformer, batches: PrefixBatches, recipe: DraftRecipe
) -> dict[int, DraftTransformer]:
    """Train (or go on training) one draft for each of `recipe.layers`; returns them by their layers."""
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False).eval()
    drafts = {n: new_draft(target, n) for n in recipe.layers}
    learners = {n: Optimisers(d.decoder, recipe.muon_rate, recipe.adam_rate) for n, d in drafts.items()}
    parts = {f"draft{n}": d for n, d in drafts.items()} | {f"optimiser{n}": o for n, o in learners.items()}
    settings = {"target": target.config.to_dict(), "recipe": asdict(recipe)}
    settings["recipe"]["layers"] = list(recipe.layers)
    run = Run(folder, parts, recipe.steps, settings)
    teacher = compiled(target)
    students = {n: compiled(d.decoder) for n, d in drafts.items()}

    def step_once(step: int) -> dict[str, float]:
        condition, tokens = batches.batch(step, recipe.batch, generator(recipe.seed, step))
        q = guided_distribution(teacher, condition, tokens, recipe.guidance).flatten(0, 1)
        factor = warmup_decay(step, recipe.steps, warmup=30, decay=0.8)
        row: dict[str, float] = {}
        for n, student in students.items():
            with torch.autocast("cpu", torch.bfloat16):
                logits = student(condition, tokens[:, :-1])
            center = logits.float().flatten(0, 1)
            learners[n].step(center_loss(q, center, recipe.loss), factor)
            with torch.no_grad():
                row[f"tv{n}"] = total_variation(q, center).mean().item()
                row[f"agree{n}"] = (center.argmax(-1) == q.argmax(-1)).float().mean().item()
        return row

    show_progress(run, "draft", step_once)
    return {n: d.eval() for n, d in drafts.items()}
