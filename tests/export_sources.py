"""A draft of random weights, sharpened so that what an export changes can be seen."""

from __future__ import annotations

import torch
from torch import nn

from pixdraft.export.source import Source
from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.runtime.backends import DraftInfo
from tiny import frozen, sharpened


def made_up(shape: TransformerConfig, pixels: VQConfig, bottleneck: int) -> Source:
    torch.manual_seed(3)
    network = DraftTransformer(shape, WordCondition(8, shape.condition_length, shape.dim), bottleneck=bottleneck)
    sharpened(network.decoder, 4.0)
    nn.init.normal_(network.radius.weight, std=0.2)
    info = DraftInfo("tiny", "m", "t", shape.vocab_size, shape.image_tokens, bottleneck, 1.0, "risk", {})
    return Source(info, frozen(network), frozen(VQTokenizer(pixels)))
