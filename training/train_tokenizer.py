"""Stage 1: the VQ tokenizer on scenes. It comes first because it fixes what a token means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pixdraft.models.config import VQConfig
from pixdraft.models.tokenizer import VQTokenizer, channels_last, to_float
from pixdraft.training.loop import Run, Stateful, generator, show_progress, warmup_decay
from pixdraft.training.scenes import SceneStream


@dataclass(frozen=True)
class TokenizerRecipe:
    """Settings of stage 1; the defaults made the bundled weights."""

    steps: int = 1300
    batch: int = 32
    learning_rate: float = 2e-3
    seed: int = 11
    reseed_until: float = 0.6  # share of the run in which dead codes are re-seeded
    reseed_every: int = 50


def reconstruction_loss(output: Tensor, picture: Tensor) -> Tensor:
    """L1 + 2 MSE + half the L1 of the first differences (edges), of pictures [B, 3, H, W]."""
    error = output - picture
    edges = error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()
    return error.abs().mean() + 2.0 * error.square().mean() + 0.5 * edges


class CodeUsage:
    """Moving count of how often each code was used, to find dead ones."""

    def __init__(self, size: int) -> None:
        self.count = torch.zeros(size)

    def update(self, tokens: Tensor) -> None:
        """Count the tokens of one batch."""
        self.count.mul_(0.99).index_add_(0, tokens.flatten(), torch.ones(tokens.numel()))

    def state_dict(self) -> dict[str, Tensor]:
        """The counts."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take counts back."""
        self.count.copy_(state["count"])


def train_tokenizer(folder: Path, stream: SceneStream, config: VQConfig, recipe: TokenizerRecipe) -> VQTokenizer:
    """Train (or go on training) the tokenizer in `folder`; returns it after the last step."""
    torch.manual_seed(recipe.seed)
    model = VQTokenizer(config)
    channels_last(model)
    optimiser = torch.optim.AdamW(model.parameters(), recipe.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    usage = CodeUsage(config.codebook_size)
    parts: dict[str, Stateful] = {"model": model, "optimiser": optimiser, "usage": usage}
    run = Run(folder, parts, recipe.steps, {"model": config.to_dict(), "recipe": asdict(recipe)})

    def step_once(step: int) -> dict[str, float]:
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * warmup_decay(step, recipe.steps, warmup=100, decay=0.7, floor=0.01)
        pictures, _ = stream.batch(step * recipe.batch, recipe.batch)
        x = to_float(torch.from_numpy(pictures), channels_last=True)
        with torch.autocast("cpu", torch.bfloat16):
            latent = model.quant_conv(model.encoder(x))
        quantised = model.quantize(latent.float())  # nearest codes need full precision
        with torch.autocast("cpu", torch.bfloat16):
            output = model.reconstruct(quantised.codes)
        loss = reconstruction_loss(output.float(), x) + quantised.loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        usage.update(quantised.tokens)
        if step % recipe.reseed_every == recipe.reseed_every - 1 and step < recipe.reseed_until * recipe.steps:
            _reseed(model, usage, quantised.normalised.detach(), generator(recipe.seed, step))
        mse = F.mse_loss(output.detach().float(), x).item()
        return {"loss": loss.item(), "mse": mse, "codes": float((usage.count > 0.5).sum())}

    show_progress(run, "tokenizer", step_once)
    return model.eval()


def _reseed(model: VQTokenizer, usage: CodeUsage, vectors: Tensor, rng: torch.Generator) -> None:
    """Move codes that nothing uses onto vectors of the last batch."""
    dead = usage.count < 1.0
    chosen = torch.randint(0, len(vectors), (int(dead.sum()),), generator=rng)
    with torch.no_grad():
        model.quantize.embedding.weight[dead] = vectors[chosen]
