"""After stage 1: the tokenizer's decoder learns on by itself. The tokens stay what they are, so the target stays too.

It learns on the scenes that the model is for, not on the rough ones that the codebook came from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from pixdraft.models.tokenizer import VQTokenizer, channels_last, to_float
from pixdraft.training.loop import Run, Stateful, show_progress, warmup_decay
from pixdraft.training.scenes import SceneStream
from pixdraft.training.train_tokenizer import reconstruction_loss


@dataclass(frozen=True)
class DecoderRecipe:
    """Settings of the decoder's own training; the defaults made the bundled weights."""

    steps: int = 600
    batch: int = 32
    learning_rate: float = 1.5e-3
    seed: int = 14


def train_decoder(folder: Path, stream: SceneStream, tokenizer: VQTokenizer, recipe: DecoderRecipe) -> VQTokenizer:
    """Train (or go on training) the decoder of `tokenizer` in `folder`; returns the tokenizer after the last step."""
    torch.manual_seed(recipe.seed)
    model = channels_last(tokenizer.requires_grad_(False))
    learning = [*model.decoder.parameters(), *model.post_quant_conv.parameters()]
    for parameter in learning:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(learning, recipe.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    parts: dict[str, Stateful] = {"model": model, "optimiser": optimiser}
    run = Run(folder, parts, recipe.steps, {"model": model.config.to_dict(), "recipe": asdict(recipe)})

    def step_once(step: int) -> dict[str, float]:
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * warmup_decay(step, recipe.steps, warmup=20, decay=0.9, floor=0.01)
        pictures, _ = stream.batch(step * recipe.batch, recipe.batch)
        x = to_float(torch.from_numpy(pictures), channels_last=True)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            latent = model.quant_conv(model.encoder(x))
        codes = model.quantize(latent.float()).codes.detach()
        with torch.autocast("cpu", torch.bfloat16):
            output = model.reconstruct(codes)
        loss = reconstruction_loss(output.float(), x)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimiser.step()
        return {"loss": loss.item(), "mse": F.mse_loss(output.detach().float(), x).item()}

    show_progress(run, "decoder", step_once)
    return model.requires_grad_(False).eval()
