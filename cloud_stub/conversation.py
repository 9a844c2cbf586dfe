"""One device's frames in, the answers out: the service without its transport."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.metrics import Metrics
from pixdraft.cloud_stub.session import CloudSession
from pixdraft.cloud_stub.worker import QueueFull, Worker
from pixdraft.models.target import TargetModel
from pixdraft.protocol.arrays import token_dtype
from pixdraft.protocol.codec import decode_device, kind
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Busy, Close, CloudFrame, DeviceFrame, Failure, Generate, Open, Opened, Verify

log = logging.getLogger("pixdraft.cloud")

Item = TypeVar("Item")


class Conversation:
    """Holds at most one session: `Open` begins it (and drops the one before), `Close` ends it.

    Every frame is answered, in order, by one frame (`Generate` by a stream, `Close` by none). A refused `Verify` or
    `Generate` leaves the session as it was; an error inside the model drops it.
    """

    def __init__(self, model: TargetModel, config: ServiceConfig, worker: Worker, metrics: Metrics) -> None:
        self._model = model
        self._config = config
        self._worker = worker
        self._metrics = metrics
        self._session: CloudSession | None = None
        self._failed = False
        self.closed = False

    @property
    def opened(self) -> bool:
        """Whether a session is held."""
        return self._session is not None

    async def answer(self, data: bytes) -> AsyncGenerator[CloudFrame, None]:
        """The answers to one frame as it came."""
        name = "bad"
        try:
            try:
                frame = decode_device(data, self._config.max_frame_bytes)
                name = kind(frame)
            finally:
                self._metrics.moved("in", name, len(data))
            async for reply in self._reply(frame):
                yield reply
        except ProtocolError as error:
            yield Failure(error.code, error.sentence)
        except QueueFull:
            self._metrics.busy.inc()
            yield Busy(self._config.retry_after_ms)
        except Exception as error:
            # the boundary: whatever broke inside, the device gets a sentence and no details
            again = self._failed  # a device that fails over and over must not fill the log
            log.error("a %s frame failed (%s), its session is dropped", name, type(error).__name__, exc_info=not again)
            self._session, self._failed = None, True
            yield Failure("internal", "the cloud failed on this frame: open again with tokens, or go on without it")

    async def _reply(self, frame: DeviceFrame) -> AsyncGenerator[CloudFrame, None]:
        if isinstance(frame, Close):
            self._held(frame)
            self._session = None
            self.closed = True
            return
        self._worker.admit()
        if isinstance(frame, Open):
            yield await self._open(frame)
        elif isinstance(frame, Verify):
            verdict = await self._worker.run(self._held(frame).verify, frame)
            self._metrics.judged(frame, verdict)
            yield verdict
        else:
            async for tokens in self._each(self._held(frame).generate(frame, self._config.generate_chunk)):
                self._drawn(len(tokens.tokens) // token_dtype(self._model.info.vocab_size).itemsize)
                yield tokens

    async def _open(self, frame: Open) -> Opened:
        if len(frame.prompt) > self._config.max_prompt:
            raise ProtocolError(
                "prompt", f"prompt is {len(frame.prompt)} characters long: shorten it to {self._config.max_prompt}"
            )
        self._session = None
        session = await self._worker.run(CloudSession, secrets.token_hex(8), self._model, frame)
        # one job a token, so that sessions take turns at the model
        async for _ in self._each(session.draw(session.to_inject)):
            self._drawn(1)
        self._session = session
        log.info("session %s holds %d tokens and begins", session.name, session.tokens.size)
        return session.opened()

    def _held(self, frame: Verify | Generate | Close) -> CloudSession:
        if self._session is None or self._session.name != frame.session:
            raise ProtocolError("session", "this socket holds no session of that name: open again with tokens")
        return self._session

    def _drawn(self, count: int) -> None:
        self._metrics.tokens.labels("generated").inc(count)

    async def _each(self, items: Iterator[Item]) -> AsyncGenerator[Item, None]:
        """The items of an iterator, each made in a worker thread."""
        while (item := await self._worker.run(next, items, None)) is not None:
            yield item
