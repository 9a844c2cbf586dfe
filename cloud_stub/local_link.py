"""The cloud in the same process: the service's own conversation over the same encoded frames, without a socket.

For checks and evaluation: every byte is what the wire would have carried, and nothing waits for a network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.conversation import Conversation
from pixdraft.cloud_stub.metrics import Metrics
from pixdraft.cloud_stub.worker import Worker
from pixdraft.models.target import TargetModel
from pixdraft.protocol.codec import encode
from pixdraft.protocol.frames import CloudFrame
from pixdraft.protocol.link import Link, LinkClosed

Result = TypeVar("Result")


class LocalCloud:
    """A service without a socket. It is a `protocol.link.Connector`: calling it begins a conversation.

    Args:
        model: the target.
        config: bounds on frames and prompts, and the tokens of a streamed frame; the rest concerns sockets.
    """

    def __init__(self, model: TargetModel, config: ServiceConfig | None = None) -> None:
        self._model = model
        self._config = config or ServiceConfig()
        self._worker = _Inline(1, 0)
        self._metrics = Metrics()

    async def __call__(self) -> Link:
        """A new conversation."""
        return LocalLink(Conversation(self._model, self._config, self._worker, self._metrics))


class LocalLink:
    """One conversation. The cloud works within `send` and `receive`, as their caller waits."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._first: CloudFrame | None = None
        self._answers: AsyncGenerator[CloudFrame, None] | None = None

    async def send(self, data: bytes) -> None:
        """Hand over one frame; its first answer is made at once, since a `Close` is never received for."""
        if self._talk.closed:
            raise LinkClosed("the conversation is over")
        await self._end()
        self._answers = self._talk.answer(data)
        self._first = await anext(self._answers, None)

    async def receive(self) -> bytes:
        """The next answer."""
        if (frame := self._first) is not None:
            self._first = None
        elif self._answers is None or (frame := await anext(self._answers, None)) is None:
            raise LinkClosed("there is no further answer to that frame")
        return encode(frame)

    async def close(self) -> None:
        """Forget the session."""
        await self._end()
        self._talk.closed = True

    async def _end(self) -> None:
        """Ask no more of the last frame's answers."""
        answers, self._answers, self._first = self._answers, None, None
        if answers is not None:
            await answers.aclose()


class _Inline(Worker):
    """Does the work in the calling thread: there is one device, and it waits for the answer anyway."""

    async def run(self, call: Callable[..., Result], *args: Any) -> Result:
        """The result of the call, made at once."""
        return call(*args)
