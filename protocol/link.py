"""The seam between the client and any transport: whole frames as bytes, one conversation a link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class LinkClosed(ConnectionError):
    """The conversation is over: the other side left, the network broke, or an answer took too long.

    The message says which, as half a sentence ("it sent nothing for 30 s"). The client comes back by itself.
    """


class Link(Protocol):
    """One conversation with the cloud. Frames arrive whole and in order, or `LinkClosed` is raised."""

    async def send(self, data: bytes) -> None:
        """Send one frame."""

    async def receive(self) -> bytes:
        """The next frame."""

    async def close(self) -> None:
        """Leave. Never raises."""


Connector = Callable[[], Awaitable[Link]]
"""Starts a conversation. Raises CloudUnreachable, NotPixdraft or CloudRefused with one sentence."""
