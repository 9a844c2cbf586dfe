"""Protocol-buffer messages read as they stand: enough for a Core ML model, with none of Core ML's tools.

A message is a run of (field number, value) pairs. Numbers are varints; texts, messages and packed runs of numbers
are bytes with their length before them; the rest is four or eight bytes wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protocol-buffer message."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("a number runs past the end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class Message:
    """The fields of one message, by number.

    Args:
        data: its bytes.

    Raises:
        WireError: they are none.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            value: int | bytes
            if key & 7 == _VARINT:
                value, at = _varint(data, at)
            else:
                if key & 7 == _LENGTH:
                    size, at = _varint(data, at)
                elif key & 7 in (_EIGHT_BYTES, _FOUR_BYTES):
                    size = 8 if key & 7 == _EIGHT_BYTES else 4
                else:
                    raise WireError(f"there is no wire type {key & 7}")
                value, at = data[at : at + size], at + size
                if at > len(data):
                    raise WireError("a field runs past the end")
            self._fields.setdefault(key >> 3, []).append(value)

    def has(self, number: int) -> bool:
        """Whether the field is there."""
        return number in self._fields

    def all_bytes(self, number: int) -> list[bytes]:
        """All values of a field of bytes, texts or messages."""
        return [value for value in self._fields.get(number, []) if isinstance(value, bytes)]

    def data(self, number: int) -> bytes:
        """The value of a field of bytes; empty where it is not there."""
        return (self.all_bytes(number) or [b""])[-1]

    def text(self, number: int) -> str:
        """The value of a text field."""
        return self.data(number).decode("utf-8")

    def texts(self, number: int) -> list[str]:
        """All values of a text field."""
        return [value.decode("utf-8") for value in self.all_bytes(number)]

    def message(self, number: int) -> Message:
        """The message in a field; an empty one where it is not there."""
        return Message(self.data(number))

    def messages(self, number: int) -> list[Message]:
        """All messages of a field."""
        return [Message(value) for value in self.all_bytes(number)]

    def entries(self, number: int) -> dict[str, Message]:
        """A map from texts to messages."""
        return {entry.text(1): entry.message(2) for entry in self.messages(number)}

    def numbers(self, number: int) -> list[int]:
        """All whole numbers of a field, packed or not."""
        found: list[int] = []
        for value in self._fields.get(number, []):
            if isinstance(value, int):
                found.append(_signed(value))
                continue
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                found.append(_signed(one))
        return found

    def number(self, number: int) -> int:
        """The value of a field of a whole number; 0 where it is not there."""
        return (self.numbers(number) or [0])[-1]

    def fixed(self, number: int, dtype: str) -> NDArray[Any]:
        """All numbers of fixed width of a field, packed or not, `dtype` as numpy writes it (``<f4``)."""
        return np.frombuffer(b"".join(self.all_bytes(number)), dtype=dtype)
