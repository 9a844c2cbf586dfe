"""The TCP connections under the service: so many at once, and each is soon a WebSocket or gone.

aiohttp takes every connection that comes, and lets a client that sends half a request, or reads no answer, stay.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

from pixdraft.cloud_stub.config import ServiceConfig

log = logging.getLogger("pixdraft.cloud")

NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def hang_up(transport: asyncio.Transport) -> None:
    """Close a connection at once: what the other side has not read in time is lost."""
    if transport.get_write_buffer_size():
        transport.abort()
    else:
        transport.close()


class Connections:
    """Holds every connection of a service from its first packet on. For one event loop.

    Where there is no room, the oldest that is no WebSocket goes: connections that say nothing cannot keep devices out.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self._most = config.max_tcp_connections
        self._seconds = config.handshake_timeout_s
        self._held: set[asyncio.Transport] = set()
        self._young: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # no WebSockets; the oldest first

    def watched(self, factory: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """The protocol factory of a server, its connections held here."""
        return lambda: _Watched(factory(), self)

    def made(self, transport: asyncio.Transport) -> None:
        """Hold a new connection, for `handshake_timeout_s` or until `keep` is called for it."""
        self._held.add(transport)
        self._young[transport] = asyncio.get_running_loop().call_later(self._seconds, hang_up, transport)
        if len(self._held) > self._most:
            oldest = next(iter(self._young))  # there is one: fewer WebSockets are let in than connections
            self.lost(oldest)
            oldest.abort()

    def keep(self, transport: asyncio.BaseTransport | None) -> None:
        """It is a WebSocket now, which has time limits of its own."""
        if isinstance(transport, asyncio.Transport) and (timer := self._young.pop(transport, None)):
            timer.cancel()

    def lost(self, transport: asyncio.Transport) -> None:
        """Forget a connection."""
        self.keep(transport)
        self._held.discard(transport)


class _Watched(asyncio.Protocol):
    """Another protocol, which `Connections` hears of when it begins and ends."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)
        self._connections.made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._connections.lost(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class SparingHandler:
    """An event loop's exception handler: that no connection can be taken is logged once a second, all else as ever."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what the loop has met; see `asyncio.AbstractEventLoop.set_exception_handler`."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in NO_ROOM):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next:
            self._next = loop.time() + 1.0
            log.error("connections have to wait (%s): allow this process more open files", error.strerror)
