"""Operators on single elements, against torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pixdraft.export.mil import operators  # noqa: F401  fills OPERATORS
from pixdraft.export.mil.registry import OPERATORS

X = np.array([[-60.0, -2.5, -0.5, 0.0], [0.5, 1.0, 2.5, 60.0]], np.float32)
Y = np.array([1.5, -2.0, 0.5, 3.0], np.float32)
POSITIVE = np.array([1e-6, 0.5, 1.0, 40.0], np.float32)

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "abs": torch.abs,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "floor": torch.floor,
    "relu": F.relu,
    "relu6": F.relu6,
    "round": torch.round,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "silu": F.silu,
    "sin": torch.sin,
    "softplus": F.softplus,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "gelu": F.gelu,
}

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "real_div": torch.div,
    "floor_div": torch.floor_divide,
    "mod": torch.remainder,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
}


def run(name: str, **inputs: object) -> np.ndarray:
    return np.asarray(OPERATORS[name].function(**inputs))


def close(found: np.ndarray, expected: torch.Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    close(run(name, x=X), UNARY[name](torch.from_numpy(X)))


@pytest.mark.parametrize("name", BINARY)
def test_binary_with_broadcast(name: str) -> None:
    found = run(name, x=X, y=Y)
    close(found, BINARY[name](torch.from_numpy(X), torch.from_numpy(Y)))
    assert found.dtype == (np.float32 if BINARY[name](torch.ones(1), torch.ones(1)).dtype == torch.float32 else bool)


@pytest.mark.parametrize("name", ["floor_div", "mod", "add", "mul"])
def test_whole_numbers(name: str) -> None:
    x, y = np.array([-7, 7, 8, -8]), np.array([2, -2, 3, 3])
    np.testing.assert_array_equal(run(name, x=x, y=y), BINARY[name](torch.from_numpy(x), torch.from_numpy(y)).numpy())


def test_pow_and_roots() -> None:
    x = torch.from_numpy(POSITIVE)
    close(run("pow", x=POSITIVE, y=Y), x ** torch.from_numpy(Y))
    close(run("sqrt", x=POSITIVE), x.sqrt())
    close(run("rsqrt", x=POSITIVE, epsilon=np.float32(1e-5)), (x + 1e-5).rsqrt())
    close(run("inverse", x=POSITIVE, epsilon=np.float32(1e-4)), 1 / (x + 1e-4))
    close(run("log", x=POSITIVE, epsilon=np.float32(0)), x.log())


def test_truths() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert run("logical_and", x=a, y=b).tolist() == [True, False, False, False]
    assert run("logical_or", x=a, y=b).tolist() == [True, True, True, False]
    assert run("logical_xor", x=a, y=b).tolist() == [False, True, True, False]
    assert run("logical_not", x=a).tolist() == [False, False, True, True]
    assert run("select", cond=a, a=np.float32(1), b=np.arange(4)).tolist() == [1, 1, 2, 3]


def test_bounds_and_slopes() -> None:
    x = torch.from_numpy(X)
    close(run("clip", x=X, alpha=np.float32(-1), beta=np.float32(2)), x.clamp(-1, 2))
    close(run("threshold", x=X, alpha=np.float32(0.25)), x.clamp_min(0.25))
    close(run("elu", x=X, alpha=np.float32(0.7)), F.elu(x, 0.7))
    close(run("leaky_relu", x=X, alpha=np.float32(0.1)), F.leaky_relu(x, 0.1))


def test_approximations_of_gelu() -> None:
    x = torch.from_numpy(X)
    close(run("gelu", x=X, mode="TANH_APPROXIMATION"), F.gelu(x, approximate="tanh"))
    close(run("gelu", x=X, mode="SIGMOID_APPROXIMATION"), x * torch.sigmoid(1.702 * x))


def test_far_values_stay_finite() -> None:
    x = np.array([-1e4, 1e4], np.float32)
    assert run("sigmoid", x=x).tolist() == [0.0, 1.0]
    assert run("softplus", x=x).tolist() == [0.0, 1e4]
    assert run("silu", x=x).tolist() == [0.0, 1e4]


@pytest.mark.parametrize("name", [name for name, entry in OPERATORS.items() if entry.moves and name in UNARY])
def test_operators_that_move_need_no_rounding(name: str) -> None:
    x = X.astype(np.float16).astype(np.float32)
    assert set(np.abs(np.ravel(run(name, x=x)))) <= set(np.abs(np.ravel(x))) | {0.0}
