from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pixdraft.decoding.sparse import SparseDistribution, sparsify
from pixdraft.protocol import arrays
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Condition, SparseDraft


@pytest.mark.parametrize(("vocab_size", "width"), [(6, 2), (1024, 2), (65536, 2), (65537, 4), (1 << 20, 4)])
def test_tokens_come_back_little_endian(vocab_size: int, width: int) -> None:
    tokens = np.array([0, 1, vocab_size - 1])
    data = arrays.write_tokens(tokens, vocab_size)
    assert len(data) == 3 * width
    assert data[width : width + 2] == b"\x01\x00"
    assert arrays.read_tokens(data, vocab_size).tolist() == tokens.tolist()


def test_no_tokens_are_no_bytes() -> None:
    assert arrays.write_tokens(np.array([], int), 6) == b""
    assert arrays.read_tokens(b"", 6).shape == (0,)


@pytest.mark.parametrize("token", [-1, 6])
def test_a_token_outside_the_vocabulary_is_not_written(token: int) -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.5"):
        arrays.write_tokens(np.array([token]), 6)


def refused(sentence: str, call: Any, *args: Any) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        call(*args)


def test_tokens_are_checked() -> None:
    refused("tokens holds token 6, but the vocabulary ends at 5", arrays.read_tokens, b"\x06\x00", 6)
    refused("tokens is 3 bytes long", arrays.read_tokens, b"\x00\x00\x00", 6)


@given(st.lists(st.integers(0, 65535), max_size=40))
def test_the_prefix_hash_is_blake2b_of_the_bytes_on_the_wire(tokens: list[int]) -> None:
    data = b"".join(t.to_bytes(2, "little") for t in tokens)
    assert arrays.prefix_hash(np.array(tokens, int)) == hashlib.blake2b(data, digest_size=8).digest()


def test_the_prefix_hash_of_a_large_vocabulary_takes_four_bytes_a_token() -> None:
    assert arrays.prefix_hash(np.array([1]), 1 << 20) == hashlib.blake2b(b"\1\0\0\0", digest_size=8).digest()


def test_drafts_come_back() -> None:
    draft = sparsify(np.array([0.1, 0.0, 0.4, 0.25, 0.25]), 3)
    back = arrays.read_draft(arrays.write_draft(draft, 5), 5)
    assert back.ids.tolist() == draft.ids.tolist()
    assert (back.dense(5) == draft.dense(5)).all()


@pytest.mark.parametrize(
    ("ids", "logits", "sentence"),
    [
        (b"", b"", "at least one"),
        (b"\1\0\1\0", b"\0\0\0\0", "ascending"),
        (b"\2\0\1\0", b"\0\0\0\0", "ascending"),
        (b"\6\0", b"\0\0", "drafts.ids holds token 6"),
        (b"\1", b"\0\0", "drafts.ids is 1 bytes"),
        (b"\1\0", b"\0\0\0\0", "drafts.logits holds 2 numbers where 1"),
        (b"\1\0", b"\0", "drafts.logits is 1 bytes"),
        (b"\1\0", b"\0\x7c", "drafts.logits holds a number that is not finite"),
        (b"\1\0", b"\0\x7e", "drafts.logits holds a number that is not finite"),
    ],
)
def test_drafts_are_checked(ids: bytes, logits: bytes, sentence: str) -> None:
    refused(sentence, arrays.read_draft, SparseDraft(ids, logits), 6)


ROWS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1e4, 1e4, width=32)
)


@given(ROWS)
def test_quantised_features_are_near(features: np.ndarray[Any, Any]) -> None:
    n, b = features.shape
    codes, scales = arrays.quantise(features)
    assert (len(codes), len(scales)) == (n * b, 2 * n)
    back = arrays.dequantise(codes, scales, n, b)
    assert back is not None
    largest = np.abs(features).max(axis=1, keepdims=True)
    assert (np.abs(back - features) <= largest * (0.5 / 113) + 1e-5).all()


def test_scales_are_whole_sixteenths_and_clip_nothing() -> None:
    features = np.random.default_rng(0).normal(size=(5000, 32)).astype(np.float32)
    steps = np.frombuffer(arrays.quantise(features)[1], "<f2").astype(np.float64)
    mantissa, _ = np.frexp(steps)
    assert set(mantissa * 16) <= set(range(8, 17))
    needed = np.abs(features).max(axis=1).astype(np.float64) / 127
    assert (steps >= needed).all()
    assert (steps <= needed * 9 / 8).all()


def test_a_difference_of_a_millionth_leaves_the_scales_alone() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 32)).astype(np.float32)
    near = (features * (1 + 1e-6 * rng.choice([-1, 1], features.shape))).astype(np.float32)
    (_, ours), (_, theirs) = arrays.quantise(features), arrays.quantise(near)
    other = np.frombuffer(ours, "<f2") != np.frombuffer(theirs, "<f2")
    # Every float16 as a scale: about 25 rows.
    assert other.sum() <= 3


def test_a_token_of_32_features_takes_34_bytes() -> None:
    assert sum(map(len, arrays.quantise(np.ones((1, 32), np.float32)))) == 34


def test_rows_of_zeros_stay_zero() -> None:
    codes, scales = arrays.quantise(np.zeros((2, 3), np.float32))
    assert codes == bytes(6)
    assert scales == bytes(4)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e9])
def test_features_that_no_scale_holds_are_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not finite or too large"):
        arrays.quantise(np.full((1, 4), value, np.float32))


def test_features_may_be_left_out() -> None:
    assert arrays.dequantise(b"", b"", 3, 4) is None
    assert arrays.dequantise(b"", b"", 3, 0) is None


@pytest.mark.parametrize(
    ("features", "scales", "bottleneck", "sentence"),
    [
        (bytes(11), bytes(6), 4, "features holds 11 bytes where 3 x 4 belong"),
        (bytes(12), bytes(4), 4, "scales holds 2 numbers where 3 belong"),
        (bytes(12), b"", 4, "scales holds 0 numbers where 3 belong"),
        (b"", bytes(6), 4, "features holds 0 bytes"),
        (bytes(12), b"\0\x7c" * 3, 4, "scales holds a number that is not finite"),
        (bytes(12), b"\0\xbc" * 3, 4, "scales holds a negative number"),
        (bytes(12), bytes(6), 0, "features are not taken"),
    ],
)
def test_features_are_checked(features: bytes, scales: bytes, bottleneck: int, sentence: str) -> None:
    refused(sentence, arrays.dequantise, features, scales, 3, bottleneck)


@pytest.mark.parametrize("condition", [np.array([1, -2, 3], np.int32), np.array([[0.5], [2.0]], np.float16)])
def test_conditions_come_back(condition: np.ndarray[Any, Any]) -> None:
    back = arrays.read_condition(arrays.write_condition(condition))
    assert back.dtype == condition.dtype
    assert (back == condition).all()


def test_conditions_of_another_type_are_not_written() -> None:
    with pytest.raises(ValueError, match="int32 or float16, not float64"):
        arrays.write_condition(np.zeros(2))


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        (Condition("float64", (1,), bytes(8)), "condition.dtype is 'float64'"),
        (Condition("int32", (2,), bytes(4)), "condition.shape"),
        (Condition("int32", (), bytes(4)), "condition.shape"),
        (Condition("int32", (0, 1 << 62), b""), "condition.shape"),
        (Condition("int32", (1,) * 9, bytes(4)), "condition.shape"),
        (Condition("int32", (1,), bytes(3)), "condition.data is 3 bytes"),
    ],
)
def test_conditions_are_checked(condition: Condition, sentence: str) -> None:
    refused(sentence, arrays.read_condition, condition)


def test_a_read_array_is_the_callers_own() -> None:
    draft = arrays.read_draft(SparseDraft(b"\1\0", b"\0\0"), 6)
    assert isinstance(draft, SparseDistribution)
    values = arrays.read_floats(bytes(4), "float32", 1, "audit")
    values[0] = 1.0
