"""After stage 1: the tokenizer's decoder alone, sharpened. The tokens stay what they are, so the target stays too.

A decoder that only minimises distances averages over all pictures that a token row may mean, which is blur. LlamaGen's
tokenizer was trained with a patch discriminator against that (arXiv 2406.06525, as VQGAN, arXiv 2012.09841, section
3.1: hinge losses, and a weight that balances the gradients at the decoder's last layer).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.tokenizer import VQTokenizer, channels_last, to_float
from pixdraft.training.loop import Run, Stateful, show_progress, warmup_decay
from pixdraft.training.scenes import SceneStream
from pixdraft.training.train_tokenizer import reconstruction_loss


@dataclass(frozen=True)
class DecoderRecipe:
    """Settings of the decoder's own training; the defaults made the bundled weights.

    Attributes:
        adversarial: weight of the discriminator's loss against the distances; 0 leaves it out.
        adversarial_from: step at which it sets in.
    """

    steps: int = 700
    batch: int = 32
    learning_rate: float = 1e-3
    judge_rate: float = 5e-4
    adversarial: float = 0.3
    adversarial_from: int = 100
    seed: int = 14


class PatchDiscriminator(nn.Module):
    """Tells real from decoded patches: pictures [B, 3, H, W] to scores [B, 1, H / 8, W / 8]."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        channels = (3, width, 2 * width, 4 * width)
        layers: list[nn.Module] = []
        for i, (inputs, outputs) in enumerate(pairwise(channels)):
            layers.append(nn.Conv2d(inputs, outputs, 4, stride=2, padding=1))
            if i:
                layers.append(nn.GroupNorm(8, outputs))
            layers.append(nn.LeakyReLU(0.2))
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], 1, 3, padding=1))

    def forward(self, pictures: Tensor) -> Tensor:
        """See the class."""
        scores: Tensor = self.layers(pictures)
        return scores


def balance(distance: Tensor, adversarial: Tensor, last: Tensor) -> Tensor:
    """VQGAN's adaptive weight: the ratio of both losses' gradients at the decoder's last layer, at most 1e4."""
    wanted = torch.autograd.grad(distance, last, retain_graph=True)[0].norm()
    given = torch.autograd.grad(adversarial, last, retain_graph=True)[0].norm()
    return (wanted / (given + 1e-4)).clamp(0.0, 1e4).detach()


def train_decoder(folder: Path, stream: SceneStream, tokenizer: VQTokenizer, recipe: DecoderRecipe) -> VQTokenizer:
    """Train (or go on training) the decoder of `tokenizer` in `folder`; returns the tokenizer after the last step."""
    torch.manual_seed(recipe.seed)
    model, judge = channels_last(tokenizer.requires_grad_(False)), PatchDiscriminator()
    learning = [*model.decoder.parameters(), *model.post_quant_conv.parameters()]
    for parameter in learning:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(learning, recipe.learning_rate, betas=(0.5, 0.99), weight_decay=1e-4)
    judging = torch.optim.AdamW(judge.parameters(), recipe.judge_rate, betas=(0.5, 0.99), weight_decay=1e-4)
    parts: dict[str, Stateful] = {"model": model, "judge": judge, "optimiser": optimiser, "judging": judging}
    run = Run(folder, parts, recipe.steps, {"model": model.config.to_dict(), "recipe": asdict(recipe)})

    def step_once(step: int) -> dict[str, float]:
        factor = warmup_decay(step, recipe.steps, warmup=20, decay=0.7)
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * factor
        pictures, _ = stream.batch(step * recipe.batch, recipe.batch)
        x = to_float(torch.from_numpy(pictures), channels_last=True)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            latent = model.quant_conv(model.encoder(x))
        codes = model.quantize(latent.float()).codes.detach()
        with torch.autocast("cpu", torch.bfloat16):
            output = model.reconstruct(codes)
        output = output.float()
        loss = distance = reconstruction_loss(output, x)
        row = {"distance": distance.item(), "mse": F.mse_loss(output.detach(), x).item()}
        fights = recipe.adversarial > 0 and step >= recipe.adversarial_from
        if fights:
            against = -judge(output).mean()
            weight = balance(distance, against, model.decoder.conv_out.weight)
            loss = distance + recipe.adversarial * weight * against
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimiser.step()
        if recipe.adversarial > 0:
            real, fake = judge(x), judge(output.detach())
            verdict = 0.5 * (F.relu(1.0 - real).mean() + F.relu(1.0 + fake).mean())
            judging.zero_grad()
            verdict.backward()
            judging.step()
            row["judge"] = verdict.item()
        return row

    show_progress(run, "decoder", step_once)
    return model.requires_grad_(False).eval()
