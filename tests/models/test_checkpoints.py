"""LlamaGen's own checkpoints fit: the names of every parameter, and how many there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pixdraft.models.conditions import CaptionEmbedder, WordCondition
from pixdraft.models.config import LLAMAGEN, VQ16, TransformerConfig
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Transformer

SMALL = TransformerConfig(dim=32, layers=2, heads=2, ffn_dim=64, vocab_size=16, grid=4, condition_length=5)
DECODER = {
    "tok_embeddings.weight",
    "norm.weight",
    "output.weight",
    *(
        f"layers.{n}.{part}.weight"
        for n in range(2)
        for part in (
            "attention.wqkv",
            "attention.wo",
            "feed_forward.w1",
            "feed_forward.w2",
            "feed_forward.w3",
            "attention_norm",
            "ffn_norm",
        )
    ),
}


def count(module: nn.Module) -> float:
    """Parameters, in millions."""
    return sum(p.numel() for p in module.parameters()) / 1e6


def test_a_text_model_has_llamagen_s_names() -> None:
    model = Transformer(SMALL, CaptionEmbedder(16, 5, 32))
    condition = {"cap_proj.fc1.weight", "cap_proj.fc2.weight", "uncond_embedding"}
    assert set(model.state_dict()) == DECODER | {f"cls_embedding.{name}" for name in condition}


def test_a_word_model_differs_in_its_condition_alone() -> None:
    model = Transformer(SMALL, WordCondition(4, 5, 32))
    condition = {"embedding_table.weight", "slots", "uncond_embedding"}
    assert set(model.state_dict()) == DECODER | {f"cls_embedding.{name}" for name in condition}


@pytest.mark.parametrize(("size", "millions"), [("B", 111), ("L", 343), ("XL", 775), ("XXL", 1410), ("3B", 3100)])
def test_published_sizes(size: str, millions: float) -> None:
    shape = LLAMAGEN[size]
    with torch.device("meta"):
        model = Transformer(shape, CaptionEmbedder(2048, 120, shape.dim))
    assert count(model) == pytest.approx(millions, rel=0.015)
    assert model.cls_embedding.state_dict()["uncond_embedding"].shape == (120, 2048)


def test_the_published_tokenizer_s_size() -> None:
    with torch.device("meta"):
        assert count(VQTokenizer(VQ16)) == pytest.approx(72, rel=0.01)


def test_the_tokenizer_has_llamagen_s_names() -> None:
    """Names of `vq_ds16_c2i.pt`, without `quantize.codebook_used`."""
    convolution = ("weight", "bias")
    names = {"quantize.embedding.weight"}
    for part in ("quant_conv", "post_quant_conv"):
        names |= {f"{part}.{p}" for p in convolution}

    def residual(place: str, shortcut: bool) -> set[str]:
        layers = ("norm1", "conv1", "norm2", "conv2", *(["nin_shortcut"] if shortcut else []))
        return {f"{place}.{layer}.{p}" for layer in layers for p in convolution}

    def attention(place: str) -> set[str]:
        return {f"{place}.{layer}.{p}" for layer in ("norm", "q", "k", "v", "proj_out") for p in convolution}

    for side in ("encoder", "decoder"):
        names |= {f"{side}.{layer}.{p}" for layer in ("conv_in", "norm_out", "conv_out") for p in convolution}
        names |= residual(f"{side}.mid.0", False) | attention(f"{side}.mid.1") | residual(f"{side}.mid.2", False)
    levels = {
        "encoder": ((128, 128), (128, 128), (128, 256), (256, 256), (256, 512)),
        "decoder": ((512, 512), (512, 256), (256, 256), (256, 128), (128, 128)),
    }
    for side, widths in levels.items():
        with_attention = 4 if side == "encoder" else 0
        for level, (before, after) in enumerate(widths):
            for block in range(2 if side == "encoder" else 3):
                place = f"{side}.conv_blocks.{level}"
                names |= residual(f"{place}.res.{block}", block == 0 and before != after)
                names |= attention(f"{place}.attn.{block}") if level == with_attention else set()
            if level < 4:
                resize = "downsample" if side == "encoder" else "upsample"
                names |= {f"{side}.conv_blocks.{level}.{resize}.conv.{p}" for p in convolution}
    with torch.device("meta"):
        assert set(VQTokenizer(VQ16).state_dict()) == names
