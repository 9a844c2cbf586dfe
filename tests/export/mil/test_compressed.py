"""Compressed constants, by hand: each element from its own block."""

from __future__ import annotations

import numpy as np
import pytest

from pixdraft.export.mil import operators  # noqa: F401  fills OPERATORS
from pixdraft.export.mil.registry import OPERATORS


def run(name: str, **inputs: object) -> np.ndarray:
    return np.asarray(OPERATORS[name].function(**inputs))


@pytest.mark.parametrize("blocks", [(4, 6), (4, 1), (1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("shifted", [False, True])
def test_scaled_integers(blocks: tuple[int, int], shifted: bool) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-128, 128, (4, 6)).astype(np.int8)
    scale = rng.random(blocks).astype(np.float32)
    offset = rng.integers(-128, 128, blocks).astype(np.int8) if shifted else None
    made = run("constexpr_blockwise_shift_scale", data=data, scale=scale, offset=offset)
    for i, j in np.ndindex(4, 6):
        block = (i * blocks[0] // 4, j * blocks[1] // 6)
        wanted = scale[block] * (float(data[i, j]) - (0 if offset is None else float(offset[block])))
        assert made[i, j] == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("blocks", [(1, 1), (2, 1), (4, 1), (2, 3), (1, 6)])
def test_palettes(blocks: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, 16, (4, 6)).astype(np.uint8)
    lut = rng.random((*blocks, 16, 1)).astype(np.float32)
    made = run("constexpr_lut_to_dense", indices=indices, lut=lut)
    for i, j in np.ndindex(4, 6):
        assert made[i, j] == lut[i * blocks[0] // 4, j * blocks[1] // 6, indices[i, j], 0]


def test_palettes_of_vectors() -> None:
    indices = np.array([[[0, 0], [1, 0]], [[1, 1], [0, 0]]], np.uint8)
    lut = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], np.float32).reshape(1, 1, 1, 2, 3)
    down = run("constexpr_lut_to_dense", indices=indices, lut=lut, vector_axis=np.array(1))
    assert down[0].tolist() == [[1, 1], [2, 2], [3, 3], [10, 1], [20, 2], [30, 3]]
    across = run("constexpr_lut_to_dense", indices=indices, lut=lut, vector_axis=np.array(-1))
    assert across[0].tolist() == [[1, 2, 3, 1, 2, 3], [10, 20, 30, 1, 2, 3]]


def test_affine_and_sparse() -> None:
    data = np.array([[0, 255, 10], [3, 4, 5]], np.uint8)
    made = run(
        "constexpr_affine_dequantize",
        quantized_data=data,
        zero_point=np.array([10, 4], np.uint8),
        scale=np.array([0.5, 2.0], np.float32),
        axis=np.array(0),
    )
    assert made.tolist() == [[-5.0, 122.5, 0.0], [-2.0, 0.0, 2.0]]
    one = run(
        "constexpr_affine_dequantize",
        quantized_data=data,
        zero_point=np.array(3, np.uint8),
        scale=np.array(2.0, np.float32),
        axis=np.array(1),
    )
    assert one[1].tolist() == [0.0, 2.0, 4.0]
    mask = np.array([[1, 0], [0, 1]], np.uint8)
    assert run("constexpr_sparse_to_dense", nonzero_data=np.array([3.0, 4.0]), mask=mask).tolist() == [[3, 0], [0, 4]]
    assert run("constexpr_cast", source_val=np.array([1.5]), output_dtype="fp32").tolist() == [1.5]
