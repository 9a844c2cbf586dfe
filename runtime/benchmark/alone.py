"""A cloud that only opens: enough for a device that draws by itself, and nothing of it is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.protocol import arrays, codec
from pixdraft.protocol.frames import Opened
from pixdraft.protocol.link import Link
from pixdraft.runtime.backends import DraftInfo, DraftOutput


class OpensOnly:
    """A `protocol.link.Connector` whose every conversation answers the first frame with a given condition."""

    def __init__(self, info: DraftInfo, condition: NDArray[Any]) -> None:
        opened = Opened("alone", info.model_hash, info.tokenizer_hash, arrays.write_condition(condition))
        self._answer = codec.encode(opened)

    async def __call__(self) -> Link:
        """A conversation."""
        return _Conversation(self._answer)


class _Conversation:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def send(self, data: bytes) -> None:
        """Take a frame; it is not read."""

    async def receive(self) -> bytes:
        """The one answer."""
        return self._answer

    async def close(self) -> None:
        """Leave."""


class FreeDraft:
    """A `DraftModel` that costs nothing and repeats one row: what is left of a picture is the loop's own cost."""

    def __init__(self, info: DraftInfo, row: DraftOutput) -> None:
        self.info = info
        self._row = row

    def open(self, condition: NDArray[Any]) -> DraftOutput:
        """See `DraftModel.open`."""
        return self._row

    def step(self, tokens: NDArray[np.integer], position: int) -> DraftOutput:
        """See `DraftModel.step`."""
        return self._row

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """See `DraftModel.decode`."""
        return np.zeros((1, 1, 3), np.uint8)
