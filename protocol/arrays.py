"""Arrays as the wire carries them: little-endian bytes, no header, lengths known from the frame.

Every `read_*` names the field it was given for when it refuses.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding.sparse import SparseDistribution
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Condition, SparseDraft

HASH_BYTES = 8
CONDITION_DTYPES: dict[str, np.dtype[Any]] = {"int32": np.dtype("<i4"), "float16": np.dtype("<f2")}


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Type of a token id on the wire: uint16, or uint32 where V > 65,536."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def write_tokens(tokens: NDArray[np.integer[Any]], vocab_size: int) -> bytes:
    """Token ids [n] as bytes. Raises ValueError where an id is outside 0..V-1."""
    ids = np.asarray(tokens)
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        raise ValueError(f"tokens hold an id outside 0..{vocab_size - 1}")
    return ids.astype(token_dtype(vocab_size)).tobytes()


def read_tokens(data: bytes, vocab_size: int, field: str = "tokens") -> NDArray[np.int64]:
    """Bytes as token ids [n], each below V."""
    ids = _read(data, token_dtype(vocab_size), field).astype(np.int64)
    if ids.size and int(ids.max()) >= vocab_size:
        raise ProtocolError("request", f"{field} holds token {ids.max()}, but the vocabulary ends at {vocab_size - 1}")
    return ids


def prefix_hash(tokens: NDArray[np.integer[Any]], vocab_size: int = 1 << 16) -> bytes:
    """BLAKE2b, 8 bytes long and without a key, of the tokens as the wire carries them."""
    return hashlib.blake2b(write_tokens(tokens, vocab_size), digest_size=HASH_BYTES).digest()


def write_draft(draft: SparseDistribution, vocab_size: int) -> SparseDraft:
    """A sparse draft distribution as a part of a frame."""
    return SparseDraft(write_tokens(draft.ids, vocab_size), np.asarray(draft.logits).astype("<f2").tobytes())


def read_draft(draft: SparseDraft, vocab_size: int, field: str = "drafts") -> SparseDistribution:
    """The distribution that the device drew from: at least one id, strictly ascending, finite logits."""
    ids = read_tokens(draft.ids, vocab_size, f"{field}.ids")
    logits = read_floats(draft.logits, "float16", ids.size, f"{field}.logits")
    try:
        return SparseDistribution(ids.astype(np.uint32), logits)
    except ValueError as error:
        raise ProtocolError("request", f"{field}: {error}") from error


def write_floats(values: NDArray[np.floating[Any]], dtype: str) -> bytes:
    """Numbers as bytes of `dtype` ("float16" or "float32")."""
    return np.asarray(values).astype(np.dtype(dtype).newbyteorder("<")).tobytes()


def read_floats(data: bytes, dtype: str, count: int, field: str) -> NDArray[Any]:
    """Exactly `count` finite numbers of `dtype` ("float16" or "float32")."""
    values = _read(data, np.dtype(dtype).newbyteorder("<"), field)
    if values.size != count:
        raise ProtocolError("request", f"{field} holds {values.size} numbers where {count} belong")
    if not np.isfinite(values).all():
        raise ProtocolError("request", f"{field} holds a number that is not finite")
    return values.astype(np.dtype(dtype))


def quantise(features: NDArray[np.floating[Any]]) -> tuple[bytes, bytes]:
    """Bottleneck features [n, b] as int8 [n, b] and a float16 scale a row: b + 2 bytes a token.

    The scale is `max|row| / 127`, rounded up to a whole number of sixteenths of the power of two above it. So there are
    eight scales an octave, and nothing is clipped. Backends differ by a millionth: with every float16 as a scale, one
    row in a thousand got another scale from another backend, which moved all of its features; with these, one in
    a hundred thousand does. A row of zeros has scale 0. Raises ValueError where a feature is not finite or too large.
    """
    rows = np.asarray(features, np.float32)
    mantissa, exponent = np.frexp(np.abs(rows).max(axis=1, initial=0.0) / 127.0)
    with np.errstate(over="ignore"):  # what overflows is refused below
        scales = np.ldexp(np.ceil(mantissa * 16) / 16, exponent).astype(np.float16)
    if not np.isfinite(scales).all():
        raise ValueError("features are not finite or too large for a float16 scale")
    steps = np.where(scales > 0, scales, 1).astype(np.float32)[:, None]
    return np.clip(np.rint(rows / steps), -127, 127).astype(np.int8).tobytes(), scales.astype("<f2").tobytes()


def dequantise(features: bytes, scales: bytes, count: int, bottleneck: int) -> NDArray[np.float32] | None:
    """The features float32 [n, b] that `quantise` wrote for `count` tokens; None where both fields are empty."""
    if not features and not scales:
        return None
    if bottleneck == 0:
        raise ProtocolError("request", "features are not taken by this model: leave features and scales empty")
    values = _read(features, np.dtype("i1"), "features")
    if values.size != count * bottleneck:
        raise ProtocolError(
            "request", f"features holds {values.size} bytes where {count} x {bottleneck} belong, or none at all"
        )
    steps = read_floats(scales, "float16", count, "scales")
    if (steps < 0).any():
        raise ProtocolError("request", "scales holds a negative number")
    return values.reshape(count, bottleneck).astype(np.float32) * steps.astype(np.float32)[:, None]


def write_condition(condition: NDArray[Any]) -> Condition:
    """A condition of int32 ids or float16 features, any shape. Raises ValueError on another type."""
    name = condition.dtype.name
    if name not in CONDITION_DTYPES:
        raise ValueError(f"a condition is int32 or float16, not {name}")
    return Condition(name, condition.shape, condition.astype(CONDITION_DTYPES[name]).tobytes())


def read_condition(condition: Condition) -> NDArray[Any]:
    """The condition as an array of its type and shape."""
    if condition.dtype not in CONDITION_DTYPES:
        raise ProtocolError("protocol", f"condition.dtype is {condition.dtype[:20]!r}, not int32 or float16")
    values = _read(condition.data, CONDITION_DTYPES[condition.dtype], "condition.data")
    shape = condition.shape
    if not shape or len(shape) > 8 or min(shape) < 1 or math.prod(shape) != values.size:
        raise ProtocolError("protocol", f"condition.data holds {values.size} numbers, which condition.shape does not")
    return values.reshape(shape).astype(condition.dtype)


def _read(data: bytes, dtype: np.dtype[Any], field: str) -> NDArray[Any]:
    if len(data) % dtype.itemsize:
        raise ProtocolError("request", f"{field} is {len(data)} bytes long, no multiple of {dtype.itemsize}")
    return np.frombuffer(data, dtype)
