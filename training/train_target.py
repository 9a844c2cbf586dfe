"""Stage 2: the target, on fresh scenes only, with prompts dropped at random for guidance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig
from pixdraft.models.tokenizer import VQTokenizer, channels_last, to_float
from pixdraft.models.transformer import Transformer
from pixdraft.training.loop import Run, compiled, generator, show_progress, warmup_decay
from pixdraft.training.optimisers import Optimisers
from pixdraft.training.scenes import SceneStream
from pixdraft.training.vocabulary import CONDITION_LENGTH, CaptionSampler, words


@dataclass(frozen=True)
class TargetRecipe:
    """Settings of stage 2; the defaults made the bundled weights."""

    steps: int = 4700
    batch: int = 32
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    unconditional: float = 0.1
    seed: int = 12
    begun_from: str = ""  # hash of the weights that the run began from; empty for a fresh start


class TokenBatches:
    """Scenes as (word ids int64 [B, P], image tokens int64 [B, T]), by step.

    Args:
        stream: the scenes.
        tokenizer: what makes tokens of them.
        seed: of the captions' dropping.
    """

    def __init__(self, stream: SceneStream, tokenizer: VQTokenizer, seed: int) -> None:
        self.stream = stream
        self.tokenizer = channels_last(tokenizer).eval()
        self.captions = CaptionSampler()
        self.seed = seed

    @torch.no_grad()
    def batch(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """The scenes `start` .. `start + count`."""
        pictures, scenes = self.stream.batch(start, count)
        x = to_float(torch.from_numpy(pictures), channels_last=True)
        with torch.autocast("cpu", torch.bfloat16):
            latent = self.tokenizer.quant_conv(self.tokenizer.encoder(x))
        tokens = self.tokenizer.quantize(latent.float()).tokens
        ids = self.captions.batch(scenes, np.random.Generator(np.random.PCG64([self.seed, start])))
        return torch.from_numpy(ids).long(), tokens


def new_target(config: TransformerConfig) -> Transformer:
    """An untrained target with the bundled model's word condition."""
    return Transformer(config, WordCondition(len(words()), CONDITION_LENGTH, config.dim))


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean negative log-likelihood in nats a token; logits [B, T, V], tokens [B, T]."""
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


def train_target(
    folder: Path,
    stream: SceneStream,
    tokenizer: VQTokenizer,
    config: TransformerConfig,
    recipe: TargetRecipe,
    weights: Mapping[str, Tensor] | None = None,
) -> Transformer:
    """Train (or go on training) the target in `folder`; returns it after the last step.

    `weights` begin a longer training from an earlier model, with new optimisers and a new schedule.
    """
    torch.manual_seed(recipe.seed)
    model = new_target(config)
    if weights is not None:
        model.load_state_dict(weights)
    optimisers = Optimisers(model, recipe.muon_rate, recipe.adam_rate)
    batches = TokenBatches(stream, tokenizer, recipe.seed)
    settings = {"model": config.to_dict(), "recipe": asdict(recipe)}
    run = Run(folder, {"model": model, "optimisers": optimisers}, recipe.steps, settings)
    forward = compiled(model)
    average = float("nan")

    def step_once(step: int) -> dict[str, float]:
        nonlocal average
        condition, tokens = batches.batch(step * recipe.batch, recipe.batch)
        drop = torch.rand(recipe.batch, generator=generator(recipe.seed, step)) < recipe.unconditional
        with torch.autocast("cpu", torch.bfloat16):
            logits = forward(condition, tokens[:, :-1], drop)
        loss = next_token_loss(logits, tokens)
        optimisers.step(loss, warmup_decay(step, recipe.steps, warmup=50, decay=0.6))
        value = loss.item()
        average = value if average != average else 0.97 * average + 0.03 * value
        return {"loss": value, "average": average}

    show_progress(run, "target", step_once)
    return model.eval()
