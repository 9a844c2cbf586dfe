"""The drafter of EAGLE-2, on the target's own states: it may stand beside any target, and changes nothing of it.

EAGLE (arXiv 2401.15077): L = SmoothL1(f^, f) + w CE(p, p^), f the target's state, f^ the guessed one, p and p^ what the
target's head makes of them. With guidance (as LANTERN's recipe has it for Lumina-mGPT) rows with and without the prompt
are guessed side by side, and p, p^ are the guided distributions, because that is what a tree grows from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.eagle import Eagle
from pixdraft.models.transformer import Transformer
from pixdraft.training.corpus import fingerprint, guided
from pixdraft.training.loop import Run, compiled, generator, show_progress, warmup_decay
from pixdraft.training.optimisers import Optimisers
from pixdraft.training.train_draft import PrefixBatches


@dataclass(frozen=True)
class EagleRecipe:
    """Settings of the drafter.

    Attributes:
        guidance: scale of the distribution to guess.
        own_share: share of a batch that the target drew itself.
        classification: w, weight of the cross-entropy.
        noise: width of the uniform noise on the states that the drafter reads.
        reach: how many of the likeliest guesses the log counts, as a tree's first layer has them.
    """

    steps: int = 1200
    batch: int = 16
    guidance: float = 2.0
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    own_share: float = 0.5
    classification: float = 0.1
    noise: float = 0.2
    reach: int = 10
    seed: int = 14


class _States(nn.Module):
    """The target's states with and without the prompt, [2 B, T, d], as one call to compile."""

    def __init__(self, target: Transformer) -> None:
        super().__init__()
        self.target = target

    def forward(self, condition: Tensor, tokens: Tensor) -> Tensor:
        drop = torch.arange(2 * len(tokens)) >= len(tokens)
        return self.target.hidden(condition.repeat(2, 1), tokens[:, :-1].repeat(2, 1), drop)


@dataclass(frozen=True)
class EagleLoss:
    """Its two parts, and the guided log-probabilities [N, V] that they are of: the target's, and what was guessed."""

    regression: Tensor
    classification: Tensor
    truth: Tensor
    guessed: Tensor


def eagle_loss(
    eagle: Eagle, target: Transformer, states: Tensor, tokens: Tensor, noise: Tensor, scale: float
) -> EagleLoss:
    """The losses over whole pictures.

    Args:
        eagle: the drafter.
        target: its embeddings and head.
        states: the target's, [2 B, T, d]: state t is what token t was drawn from; rows with prompts come first.
        tokens: [B, T].
        noise: added to the states that the drafter reads, [2 B, T - 1, d].
        scale: of guidance.
    """
    with torch.no_grad():
        embedded = target.tok_embeddings(tokens[:, :-1]).repeat(2, 1, 1)
        truth = guided(target.output(states[:, 1:]).float(), scale).flatten(0, 1).log_softmax(-1)
    found = eagle(embedded, states[:, :-1] + noise)
    guessed = guided(target.output(found).float(), scale).flatten(0, 1).log_softmax(-1)
    return EagleLoss(
        F.smooth_l1_loss(found.float(), states[:, 1:]), -(truth.exp() * guessed).sum(-1).mean(), truth, guessed
    )


def train_eagle(folder: Path, target: Transformer, batches: PrefixBatches, recipe: EagleRecipe) -> Eagle:
    """Train (or go on training) the target's drafter in `folder`; returns it after the last step.

    Raises:
        ValueError: the folder holds a run with other settings, or for another target.
    """
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False).eval()
    eagle = Eagle(target.config)
    optimisers = Optimisers(eagle, recipe.muon_rate, recipe.adam_rate)
    settings = {"target": target.config.to_dict(), "of": fingerprint(target), "recipe": asdict(recipe)}
    run = Run(folder, {"model": eagle, "optimisers": optimisers}, recipe.steps, settings)
    teacher = compiled(_States(target))

    def step_once(step: int) -> dict[str, float]:
        rng = generator(recipe.seed, step)
        condition, tokens = batches.batch(step, recipe.batch, rng)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            states = teacher(condition, tokens).float()
        noise = recipe.noise * (torch.rand(states[:, 1:].shape, generator=rng) - 0.5)
        with torch.autocast("cpu", torch.bfloat16):
            loss = eagle_loss(eagle, target, states, tokens, noise, recipe.guidance)
        whole = loss.regression + recipe.classification * loss.classification
        optimisers.step(whole, warmup_decay(step, recipe.steps, warmup=30, decay=0.8))
        with torch.no_grad():
            q, best = loss.truth.exp(), loss.guessed.topk(min(recipe.reach, loss.guessed.shape[1])).indices
            return {
                "regression": loss.regression.item(),
                "classification": loss.classification.item(),
                "tv": 0.5 * (q - loss.guessed.exp()).abs().sum(-1).mean().item(),
                # how often a token of the target is among the first guesses
                "caught": q.gather(1, best).sum(-1).mean().item(),
            }

    show_progress(run, "eagle", step_once)
    return eagle.eval()
