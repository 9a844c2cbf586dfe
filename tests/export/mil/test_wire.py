"""Messages as bytes: every kind of field, and bytes that are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mil_programs import data, entry, number, varint
from pixdraft.export.mil.wire import Message, WireError


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_packed_or_not(values: list[int]) -> None:
    packed = Message(data(3, b"".join(varint(v) for v in values)))
    apart = Message(b"".join(number(3, v) for v in values))
    assert packed.numbers(3) == values
    assert apart.numbers(3) == values


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_numbers_of_fixed_width(values: list[float]) -> None:
    content = np.array(values, "<f4").tobytes()
    apart = b"".join(varint(2 << 3 | 5) + content[i : i + 4] for i in range(0, len(content), 4))
    assert Message(data(2, content)).fixed(2, "<f4").tolist() == values
    assert Message(apart).fixed(2, "<f4").tolist() == values


def test_doubles_stand_as_eight_bytes() -> None:
    content = varint(1 << 3 | 1) + np.array([2.5], "<f8").tobytes() + number(2, 7)
    assert Message(content).fixed(1, "<f8").tolist() == [2.5]
    assert Message(content).number(2) == 7


def test_texts_messages_and_maps() -> None:
    message = Message(data(1, "first") + data(1, "last") + entry(2, "key", number(4, 9)) + data(3, number(1, 1)))
    assert message.text(1) == "last"
    assert message.texts(1) == ["first", "last"]
    assert message.entries(2)["key"].number(4) == 9
    assert [m.number(1) for m in message.messages(3)] == [1]
    assert message.has(3)


def test_what_is_not_there_is_empty() -> None:
    message = Message(b"")
    assert (message.number(1), message.text(1), message.numbers(1), message.entries(1)) == (0, "", [], {})
    assert not message.message(1).has(1)
    assert not message.has(1)


@pytest.mark.parametrize(
    "content",
    [b"\x80", b"\x0a\x05ab", b"\x09abc", b"\x0b", varint(1 << 3) + b"\xff" * 11],
    ids=["cut key", "cut text", "cut double", "no wire type", "endless number"],
)
def test_bytes_that_are_no_message(content: bytes) -> None:
    with pytest.raises(WireError):
        Message(content)
