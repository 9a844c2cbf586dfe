"""What the ExecuTorch exporter is made of, in torch eager: grids, the mirror's layers, the rewritten decoder."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pixdraft.export.exporters.executorch_picture import Norm, XnnPicture, doubling
from pixdraft.export.exporters.executorch_quantise import (
    FP32,
    RoundedLinear,
    in_8_bits,
    levels,
    mirror,
    rounded,
    schemes_by_layer,
)
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.models.config import VQConfig
from pixdraft.models.tokenizer import Upsample, VQTokenizer
from tiny import PIXELS, SHAPE, frozen, networks


def weight(outputs: int = 24, inputs: int = 96) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0))


def test_four_bits_lie_on_a_grid_of_groups() -> None:
    whole, scale = levels(weight(), "8da4w")
    assert whole.dtype == torch.int8
    assert (int(whole.min()), int(whole.max())) == (-8, 7)
    assert scale.shape == (24, 3)
    assert torch.equal(scale, scale.bfloat16().float())
    given_back = rounded(weight(), "8da4w")
    torch.testing.assert_close(given_back, (whole.view(24, 3, 32) * scale[..., None]).view(24, 96))
    plain = weight().unflatten(-1, (3, 32))
    step = plain.abs().amax(-1, keepdim=True) / 7.5
    without_search = ((plain / step).round().clamp(-8, 7) * step).flatten(-2)
    assert (given_back - weight()).square().sum() < 0.95 * (without_search - weight()).square().sum()


@pytest.mark.parametrize(("scheme", "inputs"), [("8da8w", 96), ("int8", 96), ("8da4w", 50)])
def test_eight_bits_lie_on_a_grid_of_rows(scheme: str, inputs: int) -> None:
    whole, scale = levels(weight(inputs=inputs), scheme)
    assert scale.shape == (24, 1)
    assert bool((whole.abs().amax(-1) == 127).all())
    torch.testing.assert_close(rounded(weight(inputs=inputs), scheme), weight(inputs=inputs), rtol=0, atol=0.02)


def test_rows_of_zeros_stay_zero() -> None:
    for scheme in ("8da4w", "8da8w"):
        assert not rounded(torch.zeros(2, 64), scheme).any()


def test_activations_keep_zero_and_both_ends() -> None:
    x = torch.tensor([[-1.0, 0.0, 0.3, 3.0], [2.0, 4.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.0]])
    seen = in_8_bits(x)
    assert seen[0, 1] == 0.0
    assert float((seen - x).abs().max()) <= 4.0 / 255 / 2 + 1e-6
    assert not seen[2].any()


def test_layers_get_their_schemes() -> None:
    graph = DraftGraph(networks().draft, SHAPE.length)
    chosen = schemes_by_layer(graph, "8da4w", {"output": "8da8w", "radius": "float", "risk.up": "8da8w"})
    assert chosen["layers.0.attention.wqkv"] == "8da4w"
    assert (chosen["output"], chosen["radius"], chosen["risk.up"]) == ("8da8w", FP32, "8da8w")
    assert chosen["message.feature"] == FP32  # so small that it is left alone
    assert schemes_by_layer(graph, "8da4w", {})["risk.up"] == FP32


def test_the_mirror_leaves_the_draft_alone() -> None:
    draft = networks().draft
    before = {name: tensor.clone() for name, tensor in draft.state_dict().items()}
    graph = DraftGraph(draft, SHAPE.length)
    made = mirror(graph, schemes_by_layer(graph, "8da4w", {"message.bounds": "8da8w"}))
    assert isinstance(made.get_submodule("layers.0.attention.wqkv"), RoundedLinear)
    bounds = made.get_submodule("message.bounds")
    assert isinstance(bounds, RoundedLinear)
    assert bounds.widths == [SHAPE.vocab_size] * 2
    assert isinstance(graph.output, nn.Linear)
    after = draft.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_rounded_layer_of_plain_parts_is_the_layer() -> None:
    layer = frozen(nn.Linear(10, 4))
    x = torch.randn(3, 10)
    torch.testing.assert_close(RoundedLinear(layer, (6, 4), (FP32, FP32))(x), layer(x))


def test_doubling_and_convolving_are_one_layer() -> None:
    torch.manual_seed(0)
    upsample = frozen(Upsample(6))
    x = torch.randn(1, 6, 5, 7)
    torch.testing.assert_close(doubling(upsample)(x), upsample(x), rtol=1e-4, atol=1e-5)


def test_group_norm_from_means() -> None:
    norm = nn.GroupNorm(4, 12, eps=1e-6)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(1, 12, 6, 6) * 3 + 5
    torch.testing.assert_close(Norm(frozen(norm))(x), F.group_norm(x, 4, norm.weight, norm.bias, 1e-6))


@pytest.mark.parametrize("config", [PIXELS, dataclasses.replace(PIXELS, multipliers=(1, 2, 2), res_blocks=2)])
def test_the_rewritten_decoder_is_the_decoder(config: VQConfig) -> None:
    torch.manual_seed(1)
    picture = PictureGraph(frozen(VQTokenizer(config))).eval()
    tokens = torch.randint(0, config.codebook_size, (1, 16))
    wanted = picture(tokens)
    assert wanted.std() > 0.01
    torch.testing.assert_close(XnnPicture(picture).eval()(tokens)[0], wanted, rtol=1e-3, atol=1e-5)
