"""The cloud as the session sees it: open, verify, generate, close; broken connections and full clouds are mended here.

Every request names its base and the hash of all tokens before it, so asking the same thing twice is harmless. That is
what recovery rests on: connect again, open again with the settled tokens (and their features), ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pixdraft.protocol import arrays, codec
from pixdraft.protocol.blocks import Block, Shape, read_verdict
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import (
    Busy,
    Close,
    CloudFrame,
    DeviceFrame,
    Failure,
    Generate,
    Open,
    Opened,
    Strategy,
    Tokens,
    Verdict,
    Verify,
)
from pixdraft.protocol.link import Connector, Link, LinkClosed
from pixdraft.runtime.errors import (
    CloudBusy,
    CloudLost,
    CloudProtocol,
    CloudRefused,
    CloudUnreachable,
    RequestError,
    WrongModel,
)
from pixdraft.runtime.picture import FrameRecord

Answer = TypeVar("Answer")
Frame = TypeVar("Frame", bound=CloudFrame)

_ANOTHER = frozenset({"protocol", "model", "tokenizer"})  # codes that no second try will mend
_PASSING = frozenset({"session", "internal", "limit"})  # codes that opening again may mend, once a picture has begun


@dataclass(frozen=True)
class Patience:
    """How much the device puts up with.

    Attributes:
        tries: times it comes back, for one request, after the connection broke.
        backoff: seconds before it comes back the first time; doubled each time after.
        busy: seconds, for one request, that it waits for a full cloud before it raises CloudBusy.
    """

    tries: int = 4
    backoff: float = 0.25
    busy: float = 1.0

    def __post_init__(self) -> None:
        if self.tries < 0 or self.backoff < 0 or self.busy < 0:
            raise RequestError(f"{self} holds a negative number: give 0 or more for each field")


@dataclass(frozen=True, eq=False)
class Prefix:
    """The tokens that stand, from position 0 on, as the cloud may need them to rebuild a session.

    Attributes:
        tokens: int64 [n].
        features: float32 [n, bottleneck], zero rows for the cloud's own tokens; None where none are sent.
    """

    tokens: NDArray[np.int64]
    features: NDArray[np.float32] | None


class CloudClient:
    """One picture's conversation with the cloud.

    Args:
        connect: starts a link; called again after a break.
        opening: the first frame, without a prefix.
        shape: V, T and the bottleneck of the device's model.
        patience: see there.
        began: `time.perf_counter()` of the picture's start, which frame times count from.

    Attributes:
        frames: sent and received so far.
        passes: of the target, as the answers so far tell: one a verdict, and what streamed tokens say they took.
    """

    def __init__(
        self, connect: Connector, opening: Open, shape: Shape, patience: Patience, began: float | None = None
    ) -> None:
        self.frames: list[FrameRecord] = []
        self.passes = 0
        self._connect = connect
        self._opening = opening
        self._shape = shape
        self._patience = patience
        self._began = time.perf_counter() if began is None else began
        self._link: Link | None = None
        self._session = ""

    async def open(self) -> Opened:
        """Open the session.

        Raises:
            CloudUnreachable, NotPixdraft: at the address.
            CloudRefused: of the prompt, the request, or (WrongModel) of the device's model.
            CloudBusy: for longer than the patience.
            CloudProtocol: on an answer that cannot be.
        """
        try:
            return await self._persist(lambda: self._begin(None), tries=0)
        except LinkClosed as error:
            raise CloudUnreachable(
                f"the cloud left before it opened a session ({error}): look at its log, then try again"
            ) from error

    async def verify(self, prefix: Prefix, block: Block) -> tuple[Verdict, NDArray[np.float32]]:
        """The verdict on a block after `prefix`, and q(x) of its kept tokens that stand, float32 [k].

        Raises:
            CloudLost: the connection broke, and coming back failed.
            CloudBusy: for longer than the patience.
            CloudRefused, CloudProtocol: the frame or its answer is wrong.
        """
        v, digest = self._shape.vocab_size, arrays.prefix_hash(prefix.tokens, self._shape.vocab_size)
        features, scales = (b"", b"") if block.features is None else arrays.quantise(block.features)
        tokens = arrays.write_tokens(block.tokens, v)
        drafts = tuple(arrays.write_draft(p, v) for p in block.drafts)

        async def attempt() -> tuple[Verdict, NDArray[np.float32]]:
            session = await self._rebuilt(prefix)
            frame = Verify(session, block.base, digest, tokens, block.asked, drafts, features, scales)
            await self._send(frame)
            verdict = await self._receive(Verdict)
            with _allowed():
                return verdict, read_verdict(verdict, frame, self._shape)

        answer = await self._mid_picture(attempt)
        self.passes += 1
        return answer

    async def generate(
        self, prefix: Prefix, count: int, strategy: Strategy | None = None
    ) -> AsyncIterator[NDArray[np.int64]]:
        """`count` tokens that the target draws after `prefix`, int64 [n] at a time as they come. Raises as `verify`.

        After a break a strategy begins anew at the tokens that came: with one that guesses ahead they go on as another
        picture would, distributed as before.
        """
        strategy = strategy or Strategy()
        tokens, end, streaming = prefix.tokens, prefix.tokens.size + count, False

        async def attempt() -> Tokens:
            nonlocal streaming
            if not streaming:
                # the cloud's own tokens carry no features, so what it streamed itself needs none to be rebuilt
                session = await self._rebuilt(Prefix(tokens, _padded(prefix.features, tokens.size)))
                digest = arrays.prefix_hash(tokens, self._shape.vocab_size)
                await self._send(Generate(session, tokens.size, digest, end - tokens.size, strategy))
            streaming = False  # until this answer has come, a retry asks anew
            answer = await self._receive(Tokens)
            streaming = True
            return answer

        while tokens.size < end:
            part = await self._mid_picture(attempt)
            with _allowed():
                drawn = arrays.read_tokens(part.tokens, self._shape.vocab_size)
            done = tokens.size + drawn.size
            if part.base != tokens.size or not drawn.size or done > end or part.last != (done == end):
                raise CloudProtocol(
                    f"the cloud streamed {drawn.size} tokens from {part.base} on after {tokens.size}: "
                    "update the older side"
                )
            tokens = np.concatenate([tokens, drawn])
            self.passes += part.passes
            yield drawn

    async def close(self) -> None:
        """Say goodbye, as far as the cloud still listens. Never raises."""
        if self._link is not None and self._session:
            with contextlib.suppress(LinkClosed):
                await self._send(Close(self._session))
        await self._drop()

    async def _begin(self, prefix: Prefix | None) -> Opened:
        """Connect and open; with a prefix: rebuild the session from it."""
        opening = self._opening
        if prefix is not None and prefix.tokens.size:
            features, scales = (b"", b"") if prefix.features is None else arrays.quantise(prefix.features)
            tokens = arrays.write_tokens(prefix.tokens, self._shape.vocab_size)
            opening = msgspec.structs.replace(opening, inject=0, tokens=tokens, features=features, scales=scales)
        try:
            self._link = await self._connect()
            await self._send(opening)
            opened = await self._receive(Opened)
        except BaseException:
            await self._drop()
            raise
        self._session = opened.session
        return opened

    async def _rebuilt(self, prefix: Prefix) -> str:
        """The session's name, of a link that stands."""
        if self._link is None:
            try:
                await self._begin(prefix)
            except CloudRefused as error:
                if error.code in _PASSING:
                    raise
                raise CloudLost(f"the cloud was lost mid-picture, and refused to go on with it: {error}") from error
        return self._session

    async def _mid_picture(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await self._persist(attempt, self._patience.tries)
        except (LinkClosed, CloudUnreachable, CloudRefused) as error:
            if isinstance(error, CloudRefused) and error.code not in _PASSING:
                raise
            tries = self._patience.tries
            raise CloudLost(f"the cloud was lost mid-picture and {tries} tries to come back failed: {error}") from error

    async def _persist(self, attempt: Callable[[], Awaitable[Answer]], tries: int) -> Answer:
        """Make an attempt until it succeeds: wait where the cloud is full, come back where the link broke."""
        failures, waited = 0, 0.0
        while True:
            try:
                return await attempt()
            except CloudBusy as busy:
                waited += busy.retry_after
                if waited > self._patience.busy:
                    raise
                await asyncio.sleep(busy.retry_after)
            except (LinkClosed, CloudUnreachable, CloudRefused) as error:
                await self._drop()
                failures += 1
                if failures > tries:
                    raise
                if isinstance(error, CloudRefused) and error.code not in _PASSING:
                    raise
                await asyncio.sleep(self._patience.backoff * 2 ** (failures - 1))

    async def _drop(self) -> None:
        link, self._link, self._session = self._link, None, ""
        if link is not None:
            await link.close()

    async def _send(self, frame: DeviceFrame) -> None:
        data = codec.encode(frame)
        if len(data) > codec.MAX_FRAME_BYTES:
            raise RequestError(
                f"a {codec.kind(frame)} frame takes {len(data)} bytes, where {codec.MAX_FRAME_BYTES} are allowed: "
                "lower draft_top_k or gamma"
            )
        if self._link is None:
            raise LinkClosed("no link stands")
        self._note(True, frame, len(data))
        await self._link.send(data)

    async def _receive(self, wanted: type[Frame]) -> Frame:
        if self._link is None:
            raise LinkClosed("no link stands")
        data = await self._link.receive()
        with _allowed():
            frame = codec.decode_cloud(data)
        self._note(False, frame, len(data))
        match frame:
            case Busy():
                seconds = frame.retry_after_ms / 1000
                raise CloudBusy(f"the cloud has no room now: try again in {seconds:.1f} s", seconds)
            case Failure():
                kind = WrongModel if frame.code in _ANOTHER else CloudRefused
                raise kind(f"the cloud refused: {frame.message}", frame.code)
        if not isinstance(frame, wanted):
            belongs = wanted.__name__.lower()
            raise CloudProtocol(
                f"the cloud sent {codec.kind(frame)!r} where {belongs!r} belongs: update the older side"
            )
        return frame

    def _note(self, up: bool, frame: DeviceFrame | CloudFrame, size: int) -> None:
        self.frames.append(FrameRecord(up, codec.kind(frame), size, (time.perf_counter() - self._began) * 1000))


@contextlib.contextmanager
def _allowed() -> Iterator[None]:
    """What the protocol forbids in an answer, as an error of the cloud."""
    try:
        yield
    except ProtocolError as error:
        raise CloudProtocol(f"the cloud sent what the protocol forbids ({error}): update the older side") from error


def _padded(features: NDArray[np.float32] | None, length: int) -> NDArray[np.float32] | None:
    """Features with zero rows up to `length`."""
    return None if features is None else np.pad(features, ((0, length - len(features)), (0, 0)))
