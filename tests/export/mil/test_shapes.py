"""Operators that move elements: shapes, slices, look-ups, against torch and plain indexing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pixdraft.export.mil import operators  # noqa: F401  fills OPERATORS
from pixdraft.export.mil.registry import OPERATORS

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def run(name: str, **inputs: object) -> np.ndarray:
    made = OPERATORS[name].function(**inputs)
    assert not isinstance(made, tuple)
    return np.asarray(made)


def same(found: np.ndarray, expected: object) -> None:
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_shapes() -> None:
    same(run("shape", x=X), [2, 3, 4])
    same(run("reshape", x=X, shape=np.array([0, -1, 2])), X.reshape(2, 6, 2))
    same(run("transpose", x=X, perm=np.array([2, 0, 1])), X.transpose(2, 0, 1))
    same(run("expand_dims", x=X, axes=np.array([0, -1])), X[None, ..., None])
    same(run("squeeze", x=X[:, None, :, :1], axes=np.array([1])), X[:, :, :1])
    same(run("squeeze", x=X[:1, None, :, :1]), X[0, :, 0])
    same(run("flatten2d", x=X, axis=np.array(1)), X.reshape(2, 12))
    same(
        run(
            "reshape_like",
            x=X,
            ref_tensors=[np.zeros((5, 6, 1)), np.zeros((4, 9))],
            begins=np.array([1, 0]),
            ends=np.array([3, 1]),
            end_masks=np.array([False, False]),
        ),
        X.reshape(6, 1, 4),
    )


def test_putting_together() -> None:
    same(run("concat", values=[X, X[:, :1]], axis=np.array(1)), np.concatenate([X, X[:, :1]], 1))
    same(run("concat", values=[np.int32(1), np.array([2, 3])], axis=np.array(0)), [1, 2, 3])
    turns = run("concat", values=[X, -X], axis=np.array(1), interleave=np.array(True))
    same(turns[:, 0::2], X)
    same(turns[:, 1::2], -X)
    same(run("stack", values=[X, -X], axis=np.array(-1)), np.stack([X, -X], -1))
    same(run("tile", x=X, reps=np.array([1, 2, 3])), np.tile(X, (1, 2, 3)))


def test_taking_apart() -> None:
    split = OPERATORS["split"].function
    parts = split(x=X, num_splits=np.array(2), axis=np.array(-1))
    same(np.concatenate(parts, -1), X)
    parts = split(x=X, split_sizes=np.array([1, 3]), axis=np.array(2))
    assert [p.shape for p in parts] == [(2, 3, 1), (2, 3, 3)]
    with pytest.raises(ValueError, match="neither num_splits nor split_sizes"):
        split(x=X, axis=np.array(0))


def test_making() -> None:
    same(run("fill", shape=np.array([2, 3]), value=np.float32(5)), np.full((2, 3), 5.0))
    same(run("fill_like", ref_tensor=X, value=np.float32(5)), np.full(X.shape, 5.0))
    same(run("range_1d", start=np.int32(2), end=np.int32(9), step=np.int32(3)), [2, 5, 8])
    square = X.reshape(4, 6)
    same(run("band_part", x=square, lower=np.array(-1), upper=np.array(0)), np.tril(square))
    same(run("band_part", x=square, lower=np.array(1), upper=np.array(-1)), np.triu(square, -1))
    same(run("reverse", x=X, axes=np.array([0, 2])), X[::-1, :, ::-1])


@pytest.mark.parametrize(
    ("mode", "torch_mode"), [("constant", "constant"), ("reflect", "reflect"), ("replicate", "replicate")]
)
def test_pad(mode: str, torch_mode: str) -> None:
    wanted = F.pad(torch.from_numpy(X), (2, 1), mode=torch_mode)
    same(run("pad", x=X, pad=np.array([2, 1]), mode=mode, constant_val=np.float32(0)), wanted)
    if mode == "constant":
        same(run("pad", x=X, pad=np.array([1, 0, 0, 2]), constant_val=np.float32(7))[:, 0], np.full((2, 6), 7.0))


def test_pixel_shuffle() -> None:
    x = np.arange(2 * 8 * 3 * 2, dtype=np.float32).reshape(2, 8, 3, 2)
    same(run("pixel_shuffle", x=x, upscale_factor=np.array(2)), F.pixel_shuffle(torch.from_numpy(x), 2))


def test_slices() -> None:
    begin, end = np.array([0, 1, -3]), np.array([2, 3, -1])
    same(run("slice_by_index", x=X, begin=begin, end=end), X[0:2, 1:3, -3:-1])
    same(
        run(
            "slice_by_index",
            x=X,
            begin=np.array([9, 2, 3]),
            end=np.array([9, 9, 0]),
            stride=np.array([1, 1, -2]),
            begin_mask=np.array([True, False, False]),
            end_mask=np.array([True, True, False]),
            squeeze_mask=np.array([False, True, False]),
        ),
        X[:, 2, 3:0:-2],
    )
    same(run("slice_by_size", x=X, begin=np.array([1, 0, 2]), size=np.array([1, -1, 1])), X[1:2, :, 2:3])


def test_writing_a_slice_leaves_the_rest_and_the_given_array() -> None:
    before = X.copy()
    update = -np.ones((2, 2, 4), np.float32)
    made = run("slice_update", x=X, update=update, begin=np.array([0, 1, 0]), end=np.array([2, 3, 4]))
    same(made[:, 1:], update)
    same(made[:, 0], X[:, 0])
    same(X, before)
    one = run(
        "slice_update",
        x=X,
        update=np.zeros((2, 4), np.float32),
        begin=np.array([0, 2, 0]),
        end=np.array([0, 0, 0]),
        begin_mask=np.array([True, False, True]),
        end_mask=np.array([True, False, True]),
        squeeze_mask=np.array([False, True, False]),
    )
    assert not one[:, 2].any()


def test_gather() -> None:
    places = np.array([[2, 0], [1, -1]])
    same(run("gather", x=X, indices=places, axis=np.array(1)), X[:, places])
    by_row = run("gather", x=X, indices=np.array([[3, 0], [1, 1]]), axis=np.array(2), batch_dims=np.array(1))
    same(by_row, np.stack([X[0][:, [3, 0]], X[1][:, [1, 1]]]))
    along = np.array([[[2, 0, 1, 1]], [[0, 0, 2, 1]]])
    wanted = torch.gather(torch.from_numpy(X), 1, torch.from_numpy(along))
    same(run("gather_along_axis", x=X, indices=along, axis=np.array(1)), wanted)
    same(run("gather_nd", x=X, indices=np.array([[1, 2], [0, 0]])), np.stack([X[1, 2], X[0, 0]]))
    same(run("gather_nd", x=X, indices=np.array([[[1]], [[2]]]), batch_dims=np.array(1)), X[[0, 1], [1, 2]][:, None])


def test_scatter() -> None:
    data, updates = np.zeros((3, 2)), np.array([[1.0, 2.0], [3.0, 4.0]])
    twice = np.array([2, 2])
    same(
        run("scatter", data=data, indices=twice, updates=updates, axis=np.array(0), mode="add"),
        [[0, 0], [0, 0], [4, 6]],
    )
    same(
        run("scatter", data=data, indices=np.array([1, 0]), updates=updates, axis=np.array(0), mode="update"),
        [[3, 4], [1, 2], [0, 0]],
    )
    same(
        run(
            "scatter", data=data + 5, indices=np.array([0]), updates=np.full((3, 1), 9.0), axis=np.array(1), mode="max"
        ),
        [[9, 5]] * 3,
    )
    index = np.array([[0, 2], [1, 0]])
    wanted = torch.zeros(3, 2).scatter_add(0, torch.from_numpy(index), torch.from_numpy(updates).float())
    same(run("scatter_along_axis", data=data, indices=index, updates=updates, axis=np.array(0), mode="add"), wanted)
    same(
        run("scatter_nd", data=data, indices=np.array([[1, 1], [0, 0]]), updates=np.array([7.0, 8.0]), mode="update"),
        [[8, 0], [0, 7], [0, 0]],
    )
    same(data, np.zeros((3, 2)))


def test_one_hot() -> None:
    places = np.array([[2, 0], [1, 1]])
    wanted = F.one_hot(torch.from_numpy(places), 3).numpy()
    same(run("one_hot", indices=places, one_hot_vector_size=np.array(3)), wanted)
    same(
        run("one_hot", indices=places, one_hot_vector_size=np.array(3), axis=np.array(1), on_value=5, off_value=-1),
        np.where(wanted.transpose(0, 2, 1) == 1, 5, -1),
    )
