"""Products of matrices, and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pixdraft.export.mil.operators.reductions import softmax
from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array


@operator("linear")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x W^T + b; the weight is [outputs, inputs]."""
    product: Array = x @ weight.T
    return product if bias is None else product + bias


@operator("matmul")
def matmul(x: Array, y: Array, transpose_x: Array | bool = False, transpose_y: Array | bool = False) -> Array:
    """x y over the last two axes, either turned first."""
    product: Array = (x.swapaxes(-1, -2) if transpose_x else x) @ (y.swapaxes(-1, -2) if transpose_y else y)
    return product


@operator("einsum", many=("values",))
def einsum(values: list[Array], equation: str) -> Any:
    """The sum that the equation names."""
    return np.einsum(equation, *values)


@operator("scaled_dot_product_attention")
def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array | None = None) -> Array:
    """softmax(q k^T / sqrt(width) + mask) v; a mask of truths lets those through that hold."""
    scores: Array = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == np.bool_ else scores + attn_mask
    mixed: Array = softmax(scores, -1) @ value
    return mixed
