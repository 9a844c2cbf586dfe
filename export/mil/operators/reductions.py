"""Operators that take many elements together: sums, extremes, softmax, norms, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pixdraft.export.mil.operators.shapes import whole
from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array

Axes = tuple[int, ...] | None


def _log_sum_exp(x: Array, axis: Axes, keepdims: bool) -> Any:
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


_REDUCTIONS: dict[str, Callable[[Array, Axes, bool], Any]] = {
    "reduce_l1_norm": lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims),
    "reduce_l2_norm": lambda x, axis, keepdims: np.sqrt(np.square(x).sum(axis, keepdims=keepdims)),
    "reduce_log_sum": lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_max": lambda x, axis, keepdims: x.max(axis, keepdims=keepdims),
    "reduce_mean": lambda x, axis, keepdims: x.mean(axis, keepdims=keepdims),
    "reduce_min": lambda x, axis, keepdims: x.min(axis, keepdims=keepdims),
    "reduce_prod": lambda x, axis, keepdims: x.prod(axis, keepdims=keepdims),
    "reduce_sum": lambda x, axis, keepdims: x.sum(axis, keepdims=keepdims),
    "reduce_sum_square": lambda x, axis, keepdims: np.square(x).sum(axis, keepdims=keepdims),
}


def _reduction(function: Callable[[Array, Axes, bool], Any]) -> Callable[..., Any]:
    def reduce(x: Array, axes: Array | None = None, keep_dims: Array | bool = False) -> Any:
        return function(x, None if axes is None else tuple(whole(axes)), bool(keep_dims))

    return reduce


for _name, _function in _REDUCTIONS.items():
    operator(_name)(_reduction(_function))


@operator("reduce_argmax")
def reduce_argmax(x: Array, axis: Array | int = -1, keep_dims: Array | bool = False, output_dtype: str = "") -> Any:
    """Where the largest element is."""
    return np.argmax(x, axis=int(axis), keepdims=bool(keep_dims))


@operator("reduce_argmin")
def reduce_argmin(x: Array, axis: Array | int = -1, keep_dims: Array | bool = False, output_dtype: str = "") -> Any:
    """Where the smallest element is."""
    return np.argmin(x, axis=int(axis), keepdims=bool(keep_dims))


@operator("cumsum")
def cumsum(x: Array, axis: Array | int = 0, exclusive: Array | bool = False, reverse: Array | bool = False) -> Array:
    """Running sums along an axis, with or without the element itself, from either end."""
    at = int(axis)
    ordered = np.flip(x, at) if bool(reverse) else x
    sums: Array = np.cumsum(ordered, axis=at)
    if bool(exclusive):
        sums = sums - ordered
    return np.flip(sums, at) if bool(reverse) else sums


@operator("argsort")
def argsort(x: Array, axis: Array | int = -1, ascending: Array | bool = False) -> Any:
    """Places of the elements in order; equal ones in order of place."""
    return np.argsort(x if bool(ascending) else -x, axis=int(axis), kind="stable")


@operator("topk")
def topk(
    x: Array,
    k: Array | int = 1,
    axis: Array | int = -1,
    ascending: Array | bool = False,
    sort: Array | bool = True,
    return_indices: Array | bool = True,
    output_indices_dtype: str = "int32",
) -> tuple[Array, ...]:
    """The k largest elements, or smallest, in order, and their places."""
    places = np.take(argsort(x, axis, ascending), np.arange(int(k)), axis=int(axis))
    values = np.take_along_axis(x, places, axis=int(axis))
    return (values, places) if bool(return_indices) else (values,)


@operator("softmax")
def softmax(x: Array, axis: Array | int) -> Any:
    """e^x over its sum along an axis."""
    e = np.exp(x - x.max(axis=int(axis), keepdims=True))
    return e / e.sum(axis=int(axis), keepdims=True)


def _normalised(x: Array, axes: tuple[int, ...], epsilon: Array | float) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon)


def _by_channel(x: Array, values: Array | None, missing: float) -> Array | float:
    """A vector laid along axis 1 of x."""
    return missing if values is None else values.reshape(-1, *[1] * (x.ndim - 2))


@operator("layer_norm")
def layer_norm(
    x: Array,
    axes: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Any:
    """Mean 0 and variance 1 over the axes, then gamma and beta of those axes' shape."""
    chosen = tuple(whole(axes))
    shape = [size if i in {a % x.ndim for a in chosen} else 1 for i, size in enumerate(x.shape)]
    result = _normalised(x, chosen, epsilon)
    result = result if gamma is None else result * gamma.reshape(shape)
    return result if beta is None else result + beta.reshape(shape)


@operator("instance_norm")
def instance_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, epsilon: Array | float = 1e-5
) -> Any:
    """Mean 0 and variance 1 over each map of [N, C, ...], then gamma and beta by channel."""
    axes = tuple(range(2, x.ndim))
    return _normalised(x, axes, epsilon) * _by_channel(x, gamma, 1.0) + _by_channel(x, beta, 0.0)


@operator("batch_norm")
def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Any:
    """Channels of [N, C, ...] by their stored mean and variance, then gamma and beta."""
    centred = x - _by_channel(x, mean, 0.0)
    scaled = centred / np.sqrt(_by_channel(x, variance, 1.0) + epsilon)
    return scaled * _by_channel(x, gamma, 1.0) + _by_channel(x, beta, 0.0)


@operator("l2_norm")
def l2_norm(x: Array, epsilon: Array | float = 1e-6) -> Any:
    """x over the length of its last three axes."""
    return x / np.sqrt(np.square(x).sum((-3, -2, -1), keepdims=True) + epsilon)
