"""Operators that read or write elements at places which other tensors name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array

_MODES: dict[str, Callable[[Array, Any, Array], None]] = {
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "div": np.divide.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _written(data: Array, places: Any, updates: Array, mode: str) -> Array:
    """Data with updates at places; "update" replaces, the others combine, repeated places too."""
    result = data.copy()
    if mode == "update":
        result[places] = updates
    else:
        _MODES[mode](result, places, updates)
    return result


def _along(shape: tuple[int, ...], axis: int, indices: Array) -> tuple[Any, ...]:
    """The index that lays `indices`, of x's rank, along an axis and every other axis against itself."""
    places: list[Any] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis] = indices % shape[axis]
    return tuple(places)


@operator("gather", moves=True)
def gather(
    x: Array,
    indices: Array,
    axis: Array | int = 0,
    batch_dims: Array | int = 0,
    validate_indices: Array | bool = False,
) -> Any:
    """Slices of x along an axis; the first `batch_dims` axes of x and indices go together."""
    batch = int(batch_dims)
    if not batch:
        return np.take(x, indices, axis=int(axis))
    at = int(axis) % x.ndim - batch
    lead = x.shape[:batch]
    rows = x.reshape(-1, *x.shape[batch:])
    chosen = np.asarray(indices).reshape(len(rows), *indices.shape[batch:])
    taken = np.stack([np.take(row, places, axis=at) for row, places in zip(rows, chosen, strict=True)])
    return taken.reshape(*lead, *taken.shape[1:])


@operator("gather_along_axis", moves=True)
def gather_along_axis(x: Array, indices: Array, axis: Array | int = 0, validate_indices: Array | bool = False) -> Any:
    """Elements of x along an axis; x and indices have one rank."""
    return x[_along(x.shape, int(axis), indices)]


@operator("gather_nd", moves=True)
def gather_nd(x: Array, indices: Array, batch_dims: Array | int = 0, validate_indices: Array | bool = False) -> Any:
    """Slices of x at the places that the last axis of indices names."""
    batch = int(batch_dims)
    lead = np.ogrid[tuple(slice(size) for size in x.shape[:batch])] if batch else []
    spread = [part.reshape(*part.shape, *[1] * (indices.ndim - 1 - batch)) for part in lead]
    return x[(*spread, *np.moveaxis(indices, -1, 0))]


@operator("scatter")
def scatter(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Array | int = 0,
    mode: str = "add",
    validate_indices: Array | bool = False,
) -> Array:
    """Slices along an axis are written."""
    at = int(axis) % data.ndim
    return _written(data, (*[slice(None)] * at, indices), updates, mode)


@operator("scatter_along_axis")
def scatter_along_axis(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Array | int = 0,
    mode: str = "add",
    validate_indices: Array | bool = False,
) -> Array:
    """Elements along an axis are written; all have one rank."""
    return _written(data, _along(data.shape, int(axis), indices), updates, mode)


@operator("scatter_nd")
def scatter_nd(
    data: Array, indices: Array, updates: Array, mode: str = "add", validate_indices: Array | bool = False
) -> Array:
    """Slices at the places that the last axis of indices names are written."""
    return _written(data, tuple(np.moveaxis(indices, -1, 0)), updates, mode)


@operator("one_hot")
def one_hot(
    indices: Array,
    one_hot_vector_size: Array,
    axis: Array | int = -1,
    on_value: Array | int = 1,
    off_value: Array | int = 0,
) -> Array:
    """A new axis with one value at the place named and another elsewhere."""
    at = int(axis) % (indices.ndim + 1)
    places = np.arange(int(one_hot_vector_size)).reshape(-1, *[1] * (indices.ndim - at))
    return np.where(np.expand_dims(indices, at) == places, on_value, off_value)
