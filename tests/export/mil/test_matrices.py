"""Products, attention, reductions, norms and convolutions, against torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pixdraft.export.mil import operators  # noqa: F401  fills OPERATORS
from pixdraft.export.mil.registry import OPERATORS


def run(name: str, **inputs: object) -> np.ndarray:
    made = OPERATORS[name].function(**inputs)
    return np.asarray(made[0] if isinstance(made, tuple) else made)


def close(found: np.ndarray, expected: torch.Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def t(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x)


def test_linear_and_matmul() -> None:
    x, w, b = random(2, 3, 5), random(4, 5), random(4)
    close(run("linear", x=x, weight=w), F.linear(t(x), t(w)))
    close(run("linear", x=x, weight=w, bias=b), F.linear(t(x), t(w), t(b)))
    y = random(2, 5, 6)
    close(run("matmul", x=x, y=y), t(x) @ t(y))
    close(run("matmul", x=x, y=y.swapaxes(1, 2), transpose_y=np.array(True)), t(x) @ t(y))
    close(run("matmul", x=x.swapaxes(1, 2), y=y, transpose_x=np.array(True)), t(x) @ t(y))
    close(run("einsum", values=[x, y], equation="bij,bjk->bki"), torch.einsum("bij,bjk->bki", t(x), t(y)))


@pytest.mark.parametrize("mask", ["none", "truths", "numbers"])
def test_attention(mask: str) -> None:
    q, k, v = random(1, 2, 3, 8), random(1, 2, 5, 8, seed=1), random(1, 2, 5, 4, seed=2)
    seen = np.tril(np.ones((3, 5), bool), 1)
    given = {"none": None, "truths": seen, "numbers": np.where(seen, 0, -1e4).astype(np.float32)}[mask]
    wanted = F.scaled_dot_product_attention(t(q), t(k), t(v), attn_mask=None if given is None else t(given))
    close(run("scaled_dot_product_attention", query=q, key=k, value=v, attn_mask=given), wanted)


REDUCTIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]] = {
    "reduce_l1_norm": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "reduce_l2_norm": lambda x, axes, keep: x.square().sum(axes, keepdim=keep).sqrt(),
    "reduce_log_sum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "reduce_log_sum_exp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
    "reduce_max": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "reduce_mean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "reduce_min": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "reduce_sum_square": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [(-1,), (0, 2)])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(name: str, axes: tuple[int, ...], keep: bool) -> None:
    x = np.abs(random(2, 3, 4)) + 0.1
    found = run(name, x=x, axes=np.array(axes), keep_dims=np.array(keep))
    close(found, REDUCTIONS[name](t(x), axes, keep))


def test_reducing_everything() -> None:
    x = random(2, 3)
    assert run("reduce_sum", x=x).shape == ()
    close(run("reduce_prod", x=x, axes=np.array([1])), t(x).prod(1))
    wide = np.array([[1000.0, -1000.0]], np.float32)
    close(run("reduce_log_sum_exp", x=wide, axes=np.array([1])), t(wide).logsumexp(1))


def test_order() -> None:
    x = random(3, 7)
    assert run("reduce_argmax", x=x, axis=np.array(1)).tolist() == t(x).argmax(1).tolist()
    assert run("reduce_argmin", x=x, axis=np.array(0), keep_dims=np.array(True)).shape == (1, 7)
    values, places = OPERATORS["topk"].function(x=x, k=np.array(3), axis=np.array(1))
    wanted = t(x).topk(3, dim=1)
    close(values, wanted.values)
    assert places.tolist() == wanted.indices.tolist()
    (least,) = OPERATORS["topk"].function(x=x, k=2, axis=1, ascending=np.array(True), return_indices=np.array(False))
    close(least, t(x).topk(2, dim=1, largest=False).values)
    assert run("argsort", x=x, axis=np.array(1), ascending=np.array(True)).tolist() == t(x).argsort(1).tolist()


def test_running_sums() -> None:
    x = random(2, 5)
    close(run("cumsum", x=x, axis=np.array(1)), t(x).cumsum(1))
    close(run("cumsum", x=x, axis=np.array(1), exclusive=np.array(True)), t(x).cumsum(1) - t(x))
    close(run("cumsum", x=x, axis=np.array(1), reverse=np.array(True)), t(x).flip(1).cumsum(1).flip(1))


def test_softmax_of_far_values() -> None:
    x = np.array([[1e4, 1e4, -1e4]], np.float32)
    assert run("softmax", x=x, axis=np.array(-1)).tolist() == [[0.5, 0.5, 0.0]]
    close(run("softmax", x=random(2, 3, 4), axis=np.array(1)), t(random(2, 3, 4)).softmax(1))


def test_norms() -> None:
    x, gamma, beta = random(2, 4, 5, 3), random(5, 3, seed=1), random(5, 3, seed=2)
    found = run("layer_norm", x=x, axes=np.array([-2, -1]), gamma=gamma, beta=beta, epsilon=np.float32(1e-3))
    close(found, F.layer_norm(t(x), (5, 3), t(gamma), t(beta), 1e-3))
    by, shift = random(4, seed=3), random(4, seed=4)
    found = run("instance_norm", x=x, gamma=by, beta=shift, epsilon=np.float32(1e-3))
    close(found, F.instance_norm(t(x), weight=t(by), bias=t(shift), eps=1e-3))
    mean, variance = random(4, seed=5), np.abs(random(4, seed=6)) + 0.1
    found = run("batch_norm", x=x, mean=mean, variance=variance, gamma=by, beta=shift, epsilon=np.float32(1e-3))
    close(found, F.batch_norm(t(x), t(mean), t(variance), t(by), t(shift), eps=1e-3))
    length = t(x).square().sum((1, 2, 3), keepdim=True)
    close(run("l2_norm", x=x, epsilon=np.float32(1e-6)), t(x) / (length + 1e-6).sqrt())


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 1, 1, 1), (2, 0, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2), (1, 0, 1, 4)]
)
def test_convolution(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w, b = random(2, 4, 9, 8), random(8, 4 // groups, 3, 3, seed=1), random(8, seed=2)
    found = run(
        "conv",
        x=x,
        weight=w,
        bias=b,
        strides=np.array([stride] * 2),
        pad_type="custom",
        pad=np.array([padding] * 4),
        dilations=np.array([dilation] * 2),
        groups=np.array(groups),
    )
    close(found, F.conv2d(t(x), t(w), t(b), stride, padding, dilation, groups))


def test_convolution_of_other_ranks_and_paddings() -> None:
    x, w = random(1, 3, 11), random(2, 3, 4, seed=1)
    close(run("conv", x=x, weight=w), F.conv1d(t(x), t(w)))
    close(run("conv", x=x, weight=w, pad_type="same"), F.conv1d(F.pad(t(x), (1, 2)), t(w)))
    close(run("conv", x=x, weight=w, pad_type="same_lower"), F.conv1d(F.pad(t(x), (2, 1)), t(w)))
    found = run("conv", x=x, weight=w, pad_type="same", strides=np.array([2]))
    close(found, F.conv1d(F.pad(t(x), (1, 2)), t(w), stride=2))
    lopsided = run("conv", x=x, weight=w, pad_type="custom", pad=np.array([3, 0]))
    close(lopsided, F.conv1d(F.pad(t(x), (3, 0)), t(w)))
    deep, cube = random(1, 2, 4, 5, 6), random(3, 2, 2, 2, 2)
    close(run("conv", x=deep, weight=cube), F.conv3d(t(deep), t(cube)))


def test_changes_of_resolution() -> None:
    x = random(1, 2, 3, 4)
    double = F.interpolate(t(x), scale_factor=2.0, mode="nearest")
    found = run("upsample_nearest_neighbor", x=x, scale_factor_height=np.float32(2), scale_factor_width=np.float32(2))
    close(found, double)
    found = run("resize_nearest_neighbor", x=x, target_size_height=np.array(5), target_size_width=np.array(3))
    close(found, F.interpolate(t(x), (5, 3), mode="nearest"))
