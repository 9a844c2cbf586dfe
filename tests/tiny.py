"""Networks of random weights, a model folder of them, and sprites: small enough for every test to make its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.eagle import Eagle
from pixdraft.models.inter_head import Conditioning, DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Transformer
from pixdraft.training.packages import STYLES
from pixdraft.training.publish import publish
from pixdraft.training.sprites import Sprites
from pixdraft.training.vocabulary import CONDITION_LENGTH, words

SHAPE = TransformerConfig(
    dim=32, layers=2, heads=2, ffn_dim=64, vocab_size=16, grid=4, condition_length=CONDITION_LENGTH
)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=16, codebook_dim=4, norm_groups=4
)
BOTTLENECK = 4
GUIDANCE = 2.0
THRESHOLDS = {"risk": [[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]]}

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Networks:
    """All parts of a model, in eval mode, without gradients."""

    tokenizer: VQTokenizer
    target: Transformer
    conditioning: Conditioning
    draft: DraftTransformer
    eagle: Eagle | None = None


def frozen(module: Module) -> Module:
    return module.requires_grad_(False).eval()


def sharpened(module: Module, scale: float = 10.0) -> Module:
    """With wider matrices: as they are initialised, all logits are nearly alike, and a comparison would see nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.mul_(scale)
    return module


def decoder(shape: TransformerConfig = SHAPE, vocabulary: int | None = None) -> Transformer:
    """A decoder with a word condition."""
    vocabulary = len(words()) if vocabulary is None else vocabulary
    return frozen(sharpened(Transformer(shape, WordCondition(vocabulary, shape.condition_length, shape.dim))))


def networks(seed: int = 1) -> Networks:
    """A whole model in which every part matters: no weight is zero, and the draft is not the target."""
    torch.manual_seed(seed)
    draft = DraftTransformer(
        DraftTransformer.shape(SHAPE), WordCondition(len(words()), SHAPE.condition_length, SHAPE.dim), BOTTLENECK
    )
    sharpened(draft.decoder)
    nn.init.normal_(draft.radius.weight, std=0.2)
    conditioning = Conditioning(BOTTLENECK, SHAPE.dim)
    nn.init.normal_(conditioning.up.weight, std=0.5)
    return Networks(frozen(VQTokenizer(PIXELS)), decoder(), frozen(conditioning), frozen(draft))


def write_folder(folder: Path, parts: Networks) -> Path:
    """Publish the networks as a model folder."""
    facts = {"name": "tiny", "guidance": GUIDANCE, "draft": {"statistic": "risk", "thresholds": THRESHOLDS}}
    card = "# tiny\n\n{hashes}\n"
    publish(folder, parts.tokenizer, parts.target, parts.conditioning, parts.draft, facts, card, parts.eagle)
    return folder


def fake_sprites(names: Sequence[str], side: int = 8) -> Sprites:
    """Random RGBA pictures for the given names."""
    rng = np.random.default_rng(7)
    return Sprites(tuple(names), rng.integers(0, 256, (len(STYLES), len(names), side, side, 4), dtype=np.uint8))
