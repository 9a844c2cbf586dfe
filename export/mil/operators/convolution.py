"""Convolutions and changes of resolution, over [N, C, ...] of one to three spatial axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pixdraft.export.mil.operators.shapes import whole
from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array


def _margins(
    kind: str, pad: Array | None, sizes: list[int], spans: list[int], strides: list[int]
) -> list[tuple[int, int]]:
    """Zeros before and after each spatial axis; `spans` are the kernel's widths with its holes."""
    if kind == "custom":
        flat = whole(pad, [0] * (2 * len(sizes)))
        return list(zip(flat[::2], flat[1::2], strict=True))
    if kind == "valid":
        return [(0, 0)] * len(sizes)
    margins = []
    for size, span, stride in zip(sizes, spans, strides, strict=True):
        total = max(0, (math.ceil(size / stride) - 1) * stride + span - size)
        small = total // 2
        margins.append((total - small, small) if kind == "same_lower" else (small, total - small))
    return margins


@operator("conv")
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    dilations: Array | None = None,
    groups: Array | int = 1,
) -> Array:
    """Cross-correlation; the weight is [outputs, inputs / groups, ...].

    One product of matrices for each place of the kernel: no patch is laid out, so memory stays that of the picture.
    """
    kernel = weight.shape[2:]
    rank, parts = len(kernel), int(groups)
    steps, holes = whole(strides, [1] * rank), whole(dilations, [1] * rank)
    spans = [(k - 1) * hole + 1 for k, hole in zip(kernel, holes, strict=True)]
    margins = _margins(pad_type, pad, list(x.shape[2:]), spans, steps)
    padded = np.pad(x, [(0, 0), (0, 0), *margins])
    sizes = [(n - span) // step + 1 for n, span, step in zip(padded.shape[2:], spans, steps, strict=True)]
    batch, outputs = x.shape[0], weight.shape[0]
    matrices = weight.reshape(parts, outputs // parts, -1, *kernel)
    total = np.zeros((batch, parts, outputs // parts, math.prod(sizes)), np.float32)
    for place in np.ndindex(kernel):
        window = tuple(
            slice(at * hole, at * hole + (size - 1) * step + 1, step)
            for at, hole, size, step in zip(place, holes, sizes, steps, strict=True)
        )
        seen = padded[(slice(None), slice(None), *window)].reshape(batch, parts, -1, math.prod(sizes))
        total += matrices[(..., *place)] @ seen
    result = total.reshape(batch, outputs, *sizes)
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _nearest(x: Array, height: int, width: int) -> Any:
    """Each new row and column from the old one that its left edge falls in."""
    rows = np.arange(height) * x.shape[-2] // height
    columns = np.arange(width) * x.shape[-1] // width
    return x[..., rows[:, None], columns]


@operator("upsample_nearest_neighbor", moves=True)
def upsample_nearest_neighbor(
    x: Array, scale_factor_height: Array | float = 1, scale_factor_width: Array | float = 1
) -> Any:
    """The last two axes made larger by factors."""
    return _nearest(
        x, math.floor(x.shape[-2] * float(scale_factor_height)), math.floor(x.shape[-1] * float(scale_factor_width))
    )


@operator("resize_nearest_neighbor", moves=True)
def resize_nearest_neighbor(x: Array, target_size_height: Array, target_size_width: Array) -> Any:
    """The last two axes brought to sizes."""
    return _nearest(x, int(target_size_height), int(target_size_width))
