"""Operators that take each element by itself: arithmetic, comparisons, activations, casts, choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "real_div": np.divide,
    "floor_div": np.floor_divide,
    "mod": np.mod,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def _sigmoid(x: Array) -> Any:
    # Of -|x| the exponential never overflows; the other side follows by symmetry.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


_UNARY: dict[str, Callable[[Array], Any]] = {
    "identity": lambda x: x,
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "exp": np.exp,
    "exp2": np.exp2,
    "floor": np.floor,
    "logical_not": np.logical_not,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "round": np.round,
    "sigmoid": _sigmoid,
    "sign": np.sign,
    "silu": lambda x: x * _sigmoid(x),
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(np.zeros_like(x), x),
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _binary(function: Callable[..., Any]) -> Callable[[Array, Array], Any]:
    return lambda x, y: function(x, y)


def _unary(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    return lambda x: function(x)


_MOVES = {"identity", "abs", "maximum", "minimum", "relu"}

for _name, _function in _BINARY.items():
    operator(_name, moves=_name in _MOVES)(_binary(_function))
for _name, _function in _UNARY.items():
    operator(_name, moves=_name in _MOVES)(_unary(_function))


@operator("cast")
def cast(x: Array, dtype: str) -> Array:
    """Nothing to do here: the program states the type of the result, and every result is brought to it."""
    return x


@operator("clip", moves=True)
def clip(x: Array, alpha: Array, beta: Array) -> Array:
    """x, at least alpha and at most beta."""
    return np.clip(x, alpha, beta)


@operator("log")
def log(x: Array, epsilon: Array) -> Any:
    """ln(x + epsilon)."""
    return np.log(x + epsilon)


@operator("inverse")
def inverse(x: Array, epsilon: Array) -> Any:
    """1 / (x + epsilon)."""
    return 1 / (x + epsilon)


@operator("rsqrt")
def rsqrt(x: Array, epsilon: Array) -> Any:
    """1 / sqrt(x + epsilon)."""
    return 1 / np.sqrt(x + epsilon)


@operator("threshold", moves=True)
def threshold(x: Array, alpha: Array) -> Any:
    """x, at least alpha."""
    return np.maximum(x, alpha)


@operator("elu")
def elu(x: Array, alpha: Array) -> Array:
    """x above 0, alpha (e^x - 1) below."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@operator("leaky_relu")
def leaky_relu(x: Array, alpha: Array) -> Array:
    """x above 0, alpha x below."""
    return np.where(x > 0, x, alpha * x)


@operator("erf")
def erf(x: Array) -> Array:
    """The error function."""
    return np.asarray(_ERF(x), dtype=np.float32)


_ERF = np.frompyfunc(math.erf, 1, 1)


@operator("gelu")
def gelu(x: Array, mode: str = "EXACT") -> Any:
    """x times the normal distribution function of x, or one of the two approximations of it."""
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if mode == "SIGMOID_APPROXIMATION":
        return x * _sigmoid(1.702 * x)
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


@operator("select", moves=True)
def select(cond: Array, a: Array, b: Array) -> Array:
    """a where cond holds, b elsewhere."""
    return np.where(cond, a, b)
