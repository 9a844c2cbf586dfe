"""The link over a WebSocket: no compression (the frames are dense), a bearer token, time limits."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from pixdraft.protocol.codec import MAX_FRAME_BYTES
from pixdraft.protocol.frames import PROTOCOL_VERSION
from pixdraft.protocol.link import Link, LinkClosed
from pixdraft.runtime.errors import (
    CloudBusy,
    CloudProtocol,
    CloudRefused,
    CloudUnreachable,
    NotPixdraft,
    RequestError,
    WrongModel,
)

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_INFO_BYTES = 1 << 16
_CLOSE_SECONDS = 1.0  # a service that is gone answers no close frame


class WebSocketConnector:
    """Starts conversations with one service. The first time it reads /v1/info, to be sure that it is one.

    Args:
        url: of the service, such as ``http://127.0.0.1:8765``; https, ws and wss will do as well.
        token: to show as a bearer token, if the service wants one.
        connect_seconds: to connect, and to answer /v1/info.
        receive_seconds: to answer a frame; the prefix is drawn within it too.

    Raises:
        RequestError: the address or a time limit cannot be.
    """

    def __init__(
        self, url: str, token: str | None = None, connect_seconds: float = 10.0, receive_seconds: float = 60.0
    ) -> None:
        try:
            parts = urlsplit(url)
            good = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            good = False
        if good and (parts.query or parts.fragment or parts.username):  # a password would show in messages
            raise RequestError("the cloud address has more than host, port and path: write http://127.0.0.1:8765")
        if not good:
            raise RequestError(f"cloud address {url!r} is no URL: {_better(url)}")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise RequestError("token is not printable ASCII: copy it as the service's keeper gave it")
        if not (connect_seconds > 0 and receive_seconds > 0):
            raise RequestError("connect_seconds and receive_seconds must be above 0: give seconds to wait")
        self.url = url
        self._base = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connect_seconds = connect_seconds
        self._receive_seconds = receive_seconds
        self._is_ours = False

    async def __call__(self) -> Link:
        """A new conversation.

        Raises:
            CloudUnreachable, NotPixdraft, CloudBusy, CloudRefused: one sentence each.
        """
        client = self._client()
        try:
            if not self._is_ours:
                await self._read_info(client)
                self._is_ours = True
            return WebSocketLink(client, await self._connect(client), self._receive_seconds)
        except BaseException:
            await client.close()
            raise

    async def info(self) -> dict[str, Any]:
        """What the service says of itself: /v1/info. Raises as calling does."""
        async with self._client() as client:
            return await self._read_info(client)

    def _client(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers=self._headers)

    async def _read_info(self, client: aiohttp.ClientSession) -> dict[str, Any]:
        try:
            async with (
                asyncio.timeout(self._connect_seconds),
                client.get(f"{self._base}/v1/info", allow_redirects=False) as response,
            ):
                body = b""
                while len(body) < _INFO_BYTES and (chunk := await response.content.read(_INFO_BYTES)):
                    body += chunk
                self._check_status(response.status, response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error
        try:
            info = json.loads(body)
            ours = response.status == 200 and info["service"] == "pixdraft"
        except (ValueError, TypeError, KeyError):
            ours = False
        if not ours:
            raise NotPixdraft(f"{self.url} answers, but is no pixdraft service: check the address, its port and path")
        if info.get("protocol") != PROTOCOL_VERSION:
            raise WrongModel(
                f"{self.url} speaks protocol {info.get('protocol')}, this device {PROTOCOL_VERSION}: "
                "update the older one",
                "protocol",
            )
        return dict(info)

    async def _connect(self, client: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        limits = aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS)
        try:
            async with asyncio.timeout(self._connect_seconds):
                return await client.ws_connect(
                    f"{self._base}/v1/session", compress=0, max_msg_size=MAX_FRAME_BYTES, timeout=limits
                )
        except aiohttp.WSServerHandshakeError as error:
            self._check_status(error.status, error.headers.get("Retry-After") if error.headers else None)
            raise NotPixdraft(
                f"{self.url} takes no WebSocket at /v1/session (status {error.status}): check the address and any proxy"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _check_status(self, status: int, retry_after: str | None) -> None:
        if status in (401, 403):
            what = "another token" if self._headers else "a token"
            mend = "put the one its keeper set into a variable, and name that with --token-env"
            raise CloudRefused(f"the cloud at {self.url} wants {what}: {mend}", "token")
        if status == 503:
            seconds = float(retry_after) if retry_after and retry_after.isdigit() else 1.0
            raise CloudBusy(f"the cloud at {self.url} has no room now: try again in {seconds:.0f} s", seconds)

    def _unreachable(self, error: BaseException) -> CloudUnreachable:
        late = f"no answer within {self._connect_seconds:g} s"
        why = late if isinstance(error, TimeoutError) else _reason(error)
        return CloudUnreachable(f"no cloud can be reached at {self.url} ({why}): start it there, or mend the address")


class WebSocketLink:
    """One open WebSocket.

    Args:
        client: the HTTP client that holds it; closed with it.
        socket: connected.
        receive_seconds: to wait for a frame.
    """

    def __init__(
        self, client: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, receive_seconds: float
    ) -> None:
        self._client = client
        self._socket = socket
        self._seconds = receive_seconds

    async def send(self, data: bytes) -> None:
        """Send one frame."""
        try:
            async with asyncio.timeout(self._seconds):  # a peer that reads no more fills the buffers
                await self._socket.send_bytes(data)
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise LinkClosed(_brief(error)) from error

    async def receive(self) -> bytes:
        """The next frame."""
        try:
            message = await self._socket.receive(self._seconds)
        except TimeoutError as error:
            raise LinkClosed(f"it sent nothing for {self._seconds:g} s") from error
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            raise CloudProtocol("the cloud sent text where frames are binary: look for a proxy on the way")
        if message.type is aiohttp.WSMsgType.ERROR:
            raise LinkClosed(_brief(message.data))
        reason = message.extra if isinstance(message.extra, str) and message.extra else "without a reason"
        raise LinkClosed(f"it closed the connection: {reason}")

    async def close(self) -> None:
        """Leave."""
        await self._socket.close()
        await self._client.close()


def _better(url: str) -> str:
    """How to write an address that is no URL; one that lacks only the scheme is given it."""
    bare = re.fullmatch(r"([\w.-]+|\[[\da-fA-F:]+\]):\d+/?", url)
    return f"write http://{url}" if bare else "write it like http://127.0.0.1:8765"


def _reason(error: BaseException) -> str:
    """Why nobody could be reached, in a few words: what the system says, without the client's own frame around it."""
    if isinstance(error, aiohttp.ClientSSLError):
        return "no trusted TLS there"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    numbers = [str(error.errno)] if isinstance(error, OSError) and error.errno else []
    numbers += re.findall(r"\[Errno (\d+)\]", str(error))  # of several addresses that were tried
    if numbers and int(numbers[0]) > 0:  # the resolver's are below 0
        return os.strerror(int(numbers[0])).lower()
    return (error.strerror if isinstance(error, OSError) and error.strerror else _brief(error)).lower()


def _brief(error: object) -> str:
    """An error in a few words: its first line, or what it is called."""
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    return words[:200]
