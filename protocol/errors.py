"""The one error of the wire."""

from __future__ import annotations


class ProtocolError(ValueError):
    """A frame cannot be used.

    Attributes:
        code: one of the codes of `frames.Failure`.
        sentence: what is wrong, by the name of the field, and what would do.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
