"""Operators that cut a tensor or write into one, as ``x[begin:end:stride]`` does."""

from __future__ import annotations

from itertools import repeat

from pixdraft.export.mil.operators.shapes import whole
from pixdraft.export.mil.registry import operator
from pixdraft.export.mil.values import Array


def _index(
    begin: Array,
    end: Array,
    stride: Array | None,
    begin_mask: Array | None,
    end_mask: Array | None,
    squeeze_mask: Array | None,
) -> tuple[slice | int, ...]:
    """numpy's index of a slice; a mask leaves a side open, or takes one element and drops the axis."""
    never = repeat(False)
    return tuple(
        first if dropped else slice(None if open_begin else first, None if open_end else last, step)
        for first, last, step, open_begin, open_end, dropped in zip(
            whole(begin),
            whole(end),
            repeat(1) if stride is None else whole(stride),
            never if begin_mask is None else begin_mask,
            never if end_mask is None else end_mask,
            never if squeeze_mask is None else squeeze_mask,
            strict=False,
        )
    )


@operator("slice_by_index", moves=True)
def slice_by_index(
    x: Array,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    """x[begin:end:stride] along every axis."""
    cut: Array = x[_index(begin, end, stride, begin_mask, end_mask, squeeze_mask)]
    return cut


@operator("slice_by_size", moves=True)
def slice_by_size(x: Array, begin: Array, size: Array) -> Array:
    """`size` elements from `begin` on along every axis; -1 takes all that are left."""
    pairs = zip(whole(begin), whole(size), strict=True)
    cut: Array = x[tuple(slice(first, None if count < 0 else first + count) for first, count in pairs)]
    return cut


@operator("slice_update", moves=True)
def slice_update(
    x: Array,
    update: Array,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    """x, with x[begin:end:stride] replaced."""
    result = x.copy()
    result[_index(begin, end, stride, begin_mask, end_mask, squeeze_mask)] = update
    return result
