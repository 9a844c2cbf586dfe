"""Constants that a package keeps compressed: palettes, scaled integers, sparse tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array


def _spread(values: Array, shape: tuple[int, ...]) -> Array:
    """One value a block, repeated over the block along each axis of `shape`."""
    for axis, size in enumerate(shape):
        if values.shape[axis] not in (1, size):
            values = np.repeat(values, size // values.shape[axis], axis=axis)
    return values


@operator("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(data: Array, scale: Array, offset: Array | None = None) -> Array:
    """scale (data - offset), scale and offset shared by the elements of a block."""
    wide = data.astype(np.float32)
    if offset is not None:
        wide = wide - _spread(offset.astype(np.float32), data.shape)
    return wide * _spread(scale, data.shape)


@operator("constexpr_lut_to_dense")
def lut_to_dense(indices: Array, lut: Array, vector_axis: Array | int = 0) -> Array:
    """Entries of palettes [blocks ..., entries, width]; each block of indices has its own.

    A width above 1 lays the entry's elements along `vector_axis`.
    """
    entries, width = lut.shape[-2:]
    tables = lut.reshape(-1, entries, width)
    blocks = np.arange(len(tables), dtype=np.int32).reshape(lut.shape[:-2])
    block = np.broadcast_to(_spread(blocks, indices.shape), indices.shape)
    chosen: Array = tables[block, indices]
    if width == 1:
        return chosen.reshape(indices.shape)
    axis = int(vector_axis) % indices.ndim
    laid = np.moveaxis(chosen, -1, axis + 1)
    return laid.reshape(*laid.shape[:axis], -1, *laid.shape[axis + 2 :])


@operator("constexpr_affine_dequantize")
def affine_dequantize(quantized_data: Array, zero_point: Array, scale: Array, axis: Array | int) -> Any:
    """scale (data - zero point), both one number or one an index along the axis."""
    shape = [1] * quantized_data.ndim
    shape[int(axis)] = -1
    centred = quantized_data.astype(np.float32) - zero_point.astype(np.float32).reshape(shape)
    return centred * scale.reshape(shape)


@operator("constexpr_cast")
def cast(source_val: Array, output_dtype: str) -> Array:
    """A constant of another width; the interpreter brings it to the type that the program states."""
    return source_val


@operator("constexpr_sparse_to_dense")
def sparse_to_dense(nonzero_data: Array, mask: Array) -> Array:
    """The data in the places where the mask is set, zeros elsewhere."""
    dense = np.zeros(mask.shape, nonzero_data.dtype)
    dense[mask != 0] = nonzero_data
    return dense
