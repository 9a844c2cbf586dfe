"""Operators that move elements about, put tensors together, and make tensors of a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array


def whole(values: Array | None, default: list[int] | None = None) -> list[int]:
    """A parameter of whole numbers as a list; a single number is a list of one."""
    return list(default or []) if values is None else [int(value) for value in np.atleast_1d(values)]


@operator("reshape", moves=True)
def reshape(x: Array, shape: Array) -> Array:
    """A size of 0 keeps that of x, one of -1 is what is left."""
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(whole(shape))])


@operator("reshape_like", many=("ref_tensors",), moves=True)
def reshape_like(x: Array, ref_tensors: list[Array], begins: Array, ends: Array, end_masks: Array) -> Array:
    """The shape is put together from ranges of the references' shapes."""
    shape: list[int] = []
    for reference, begin, end, open_end in zip(ref_tensors, whole(begins), whole(ends), end_masks, strict=True):
        shape += reference.shape[begin : None if open_end else end]
    return x.reshape(shape)


@operator("transpose", moves=True)
def transpose(x: Array, perm: Array) -> Array:
    """Axes in another order."""
    return x.transpose(whole(perm))


@operator("expand_dims", moves=True)
def expand_dims(x: Array, axes: Array) -> Array:
    """New axes of size 1, at their places in the result."""
    return np.expand_dims(x, tuple(whole(axes)))


@operator("squeeze", moves=True)
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Without axes of size 1: those named, or all."""
    return np.squeeze(x, None if axes is None else tuple(whole(axes)))


@operator("flatten2d", moves=True)
def flatten2d(x: Array, axis: Array) -> Array:
    """A matrix: axes before `axis`, and the rest."""
    first = int(axis) % x.ndim
    return x.reshape(int(np.prod(x.shape[:first])), -1)


@operator("concat", many=("values",), moves=True)
def concat(values: list[Array], axis: Array, interleave: Array | bool = False) -> Array:
    """Tensors end to end along an axis, or their slices in turn."""
    at = int(axis)
    if not bool(interleave):
        return np.concatenate([np.atleast_1d(value) for value in values], axis=at)
    at %= values[0].ndim
    merged = np.stack(values, axis=at + 1)
    return merged.reshape(*merged.shape[:at], -1, *merged.shape[at + 2 :])


@operator("stack", many=("values",), moves=True)
def stack(values: list[Array], axis: Array) -> Array:
    """Tensors side by side along a new axis."""
    return np.stack(values, axis=int(axis))


@operator("split", moves=True)
def split(
    x: Array, axis: Array, num_splits: Array | None = None, split_sizes: Array | None = None
) -> tuple[Array, ...]:
    """Equal parts, or parts of given sizes, along an axis."""
    if split_sizes is not None:
        return tuple(np.split(x, np.cumsum(split_sizes)[:-1], axis=int(axis)))
    if num_splits is None:
        raise ValueError("split names neither num_splits nor split_sizes")
    return tuple(np.split(x, int(num_splits), axis=int(axis)))


@operator("tile", moves=True)
def tile(x: Array, reps: Array) -> Array:
    """x repeated along each axis."""
    return np.tile(x, whole(reps))


@operator("reverse", moves=True)
def reverse(x: Array, axes: Array | None = None) -> Array:
    """Elements in the other order along the axes, or all."""
    return np.flip(x, None if axes is None else tuple(whole(axes)))


_PADDING: dict[str, Any] = {"reflect": "reflect", "replicate": "edge"}


@operator("pad")
def pad(x: Array, pad: Array, mode: str = "constant", constant_val: Array | float = 0.0) -> Array:
    """`pad` holds (before, after) of the last axes."""
    pairs = np.asarray(pad).reshape(-1, 2)
    widths = [(0, 0)] * (x.ndim - len(pairs)) + [(int(before), int(after)) for before, after in pairs]
    if mode == "constant":
        return np.pad(x, widths, constant_values=constant_val)
    return np.pad(x, widths, mode=_PADDING[mode])


@operator("shape")
def shape(x: Array) -> Array:
    """Sizes of x."""
    return np.array(x.shape, np.int32)


@operator("fill")
def fill(shape: Array, value: Array | float = 0.0) -> Array:
    """A tensor of one value."""
    return np.full(whole(shape), value)


@operator("fill_like")
def fill_like(ref_tensor: Array, value: Array | float = 0.0) -> Array:
    """A tensor of one value in another's shape."""
    return np.full(ref_tensor.shape, value)


@operator("range_1d")
def range_1d(start: Array, end: Array, step: Array) -> Array:
    """start, start + step, ... before end."""
    return np.arange(start, end, step)


@operator("band_part", moves=True)
def band_part(x: Array, lower: Array | int = -1, upper: Array | int = -1) -> Array:
    """Matrices with zeros outside the diagonals -lower .. upper; -1 keeps a whole side."""
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    below, above = int(lower), int(upper)
    kept = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(kept, x, np.zeros((), x.dtype))


@operator("pixel_shuffle", moves=True)
def pixel_shuffle(x: Array, upscale_factor: Array) -> Array:
    """[N, C r r, H, W] -> [N, C, H r, W r]."""
    r = int(upscale_factor)
    n, c, h, w = x.shape
    parts = x.reshape(n, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // (r * r), h * r, w * r)
