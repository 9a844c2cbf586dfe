"""Quantised linear layers for XNNPACK: weights on a grid of their own, activations to 8 bits a row while it runs.

``8da4w`` gives 32 neighbouring inputs a scale, ``8da8w`` a row. ``int8`` has the weights of ``8da8w``, but goes through
PyTorch 2 export (pt2e), where all rows of a block share the scale of their activations; it knows convolutions too.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Node

from pixdraft.export.exporters.executorch_graph import XnnGraph
from pixdraft.export.graph import DraftGraph
from pixdraft.export.recipe import FLOAT

FP32, INT8 = "fp32", "int8"
SCHEMES = (FP32, "8da8w", "8da4w", INT8)
GROUP = 32

# A scale that just reaches the largest weight wastes levels on it, see `export.rounding`.
_SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
# Below this many elements a matrix costs less than turning its input into 8 bits.
_SMALL = 1024


def schemes_by_layer(graph: DraftGraph, scheme: str, overrides: dict[str, str]) -> dict[str, str]:
    """The scheme that each linear layer of a draft gets; small ones stay as they are unless they are named.

    A width that does not divide into groups takes 8 bits, by rows.
    """
    chosen = {}
    for name, layer in graph.named_modules():
        if isinstance(layer, nn.Linear):
            small = layer.weight.numel() <= _SMALL and name not in overrides
            wanted = FP32 if small else overrides.get(name, scheme)
            chosen[name] = FP32 if wanted == FLOAT else wanted
    return chosen


def levels(weight: Tensor, scheme: str) -> tuple[Tensor, Tensor]:
    """The nearest weights on the scheme's grid.

    Args:
        weight: [outputs, inputs].
        scheme: one that quantises.

    Returns:
        Whole numbers int8 of that shape, and scales [outputs, inputs / block]; their product is the weight.
    """
    four = scheme == "8da4w" and weight.shape[1] % GROUP == 0
    blocks = weight.detach().float().unflatten(-1, (-1, GROUP if four else weight.shape[1]))
    widest = blocks.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    if not four:
        scale = widest / 127.0
        return (blocks / scale).round().to(torch.int8).flatten(-2), scale[..., 0]
    best, scales = torch.zeros_like(blocks), torch.ones_like(widest)
    least = torch.full_like(widest, torch.inf)
    for shrink in _SHRINKS:
        scale = (widest * (shrink / 7.5)).bfloat16().float()  # XNNPACK keeps them as bfloat16
        whole = (blocks / scale).round().clamp(-8, 7)
        error = (blocks - whole * scale).square().sum(-1, keepdim=True)
        better = error < least
        best, scales = torch.where(better, whole, best), torch.where(better, scale, scales)
        least = torch.minimum(least, error)
    return best.to(torch.int8).flatten(-2), scales[..., 0]


def rounded(weight: Tensor, scheme: str) -> Tensor:
    """The weights that an exported layer works with, float32."""
    if scheme == FP32:
        return weight.detach()
    whole, scale = levels(weight, scheme)
    return (whole.float().unflatten(-1, (scale.shape[1], -1)) * scale[..., None]).flatten(-2)


def quantise(graph: XnnGraph, schemes: dict[str, str]) -> tuple[str, ...]:
    """Quantise the layers of a graph in place.

    Returns:
        Names of the modules that are left to `through_pt2e`.
    """
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import (
        IntxUnpackedToInt8TensorActivationQuantization as Activation,
    )

    later = []
    for name, part in graph.parts():
        scheme = schemes.get(part.layer, FP32)
        if scheme == INT8:
            later.append(name)
        if scheme in (FP32, INT8):
            continue
        whole, scale = levels(part.weight, scheme)
        block = whole.shape[1] // scale.shape[1]
        kept = IntxUnpackedToInt8Tensor(
            qdata=whole,
            scale=scale,
            zero_point=torch.zeros_like(scale, dtype=torch.int8),
            target_dtype=torch.int4 if scheme == "8da4w" and block == GROUP else torch.int8,
            block_size=(1, block),
            dtype=torch.float32,
            activation_quantization=Activation.INT8_ASYM_PER_TOKEN,
        )
        part.weight = nn.Parameter(kept, requires_grad=False)
    return tuple(later)


def through_pt2e(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    names: Container[str],
    shapes: Any = None,
) -> nn.Module:
    """A module whose linear layers and convolutions are quantised to 8 bits by PyTorch 2 export, a scale a channel.

    The range of activations is taken while it runs.

    Args:
        module: it is run once; what it keeps in buffers is changed by that.
        inputs: that it is run and exported with.
        shapes: dynamic ones, as for `torch.export.export`.
        names: submodules to quantise.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e import PerChannelMinMaxObserver
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    # Its own observer allows no scale below 2 ** -12, which is coarse for a row of small weights.
    observer = PerChannelMinMaxObserver.with_args(eps=torch.finfo(torch.float32).tiny)
    config = replace(config, weight=replace(config.weight, observer_or_fake_quant_ctr=observer))
    quantiser = XNNPACKQuantizer().set_global(config).set_filter_function(partial(_within, names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_pt2e(torch.export.export(module, inputs, dynamic_shapes=shapes).module(), quantiser)
        prepared(*inputs)
        converted: nn.Module = convert_pt2e(prepared)
    return converted


def _within(names: Container[str], node: Node) -> bool:
    """Whether a node belongs to one of the modules; nodes of weights do not know theirs, and follow the others."""
    stack = node.meta.get("nn_module_stack", {}).values()
    return not stack or any(path in names for path, _ in stack)


class RoundedLinear(nn.Module):
    """A linear layer in torch eager as XNNPACK computes it: the input of every quantised part in 8 bits a row.

    Args:
        layer: that it stands for.
        widths: inputs of each part, the layer's in all.
        schemes: of each part.
    """

    def __init__(self, layer: nn.Linear, widths: Sequence[int], schemes: Sequence[str]) -> None:
        super().__init__()
        self.widths, self.schemes = list(widths), list(schemes)
        parts = layer.weight.split(self.widths, dim=1)
        self.weights = [rounded(part, scheme) for part, scheme in zip(parts, schemes, strict=True)]
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor | None = None
        for part, weight, scheme in zip(x.split(self.widths, dim=-1), self.weights, self.schemes, strict=True):
            y = F.linear(part if scheme == FP32 else in_8_bits(part), weight)
            total = y if total is None else total + y
        assert total is not None
        return total if self.bias is None else total + self.bias


def in_8_bits(x: Tensor) -> Tensor:
    """Rows of x [..., n] rounded to 256 steps between their least and largest entry, zero being one of the steps."""
    low, high = x.amin(-1, keepdim=True).clamp_max(0.0), x.amax(-1, keepdim=True).clamp_min(0.0)
    scale = ((high - low) / 255.0).clamp_min(torch.finfo(torch.float32).tiny)
    zero = (-128.0 - low / scale).round().clamp(-128.0, 127.0)
    return (((x / scale).round() + zero).clamp(-128.0, 127.0) - zero) * scale


def mirror(graph: DraftGraph, schemes: dict[str, str]) -> DraftGraph:
    """A copy with a `RoundedLinear` for each quantised layer, cut where `XnnGraph` cuts it."""
    graph = copy.deepcopy(graph)
    dim, codes = graph.config.dim, graph.config.vocab_size
    cuts = {"risk.down": ((dim, 2), (schemes["risk.down"], FP32)), "message.bounds": ((codes, codes), None)}
    for name, scheme in schemes.items():
        if scheme == FP32:
            continue
        layer = graph.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        widths, own = cuts.get(name, ((layer.in_features,), None))
        graph.set_submodule(name, RoundedLinear(layer, widths, own or (scheme,) * len(widths)))
    return graph
