"""A raw device for tests of the service: frames out, frames in, over a real loopback WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from cloud_frames import open_frame
from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.protocol.codec import decode_cloud, encode
from pixdraft.protocol.frames import (
    CloudFrame,
    DeviceFrame,
    Opened,
)

PATIENCE = 30.0  # seconds, for machines with other work


class Device:
    """A raw client: frames out, frames in, nothing clever."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, frame: DeviceFrame | bytes) -> None:
        await self.socket.send_bytes(frame if isinstance(frame, bytes) else encode(frame))

    async def receive(self) -> CloudFrame:
        message = await self.socket.receive(PATIENCE)
        assert message.type is aiohttp.WSMsgType.BINARY, message
        return decode_cloud(message.data)

    async def ask(self, frame: DeviceFrame | bytes) -> CloudFrame:
        await self.send(frame)
        return await self.receive()

    async def open(self, model: TableTarget, **fields: Any) -> str:
        answer = await self.ask(open_frame(model.info, **fields))
        assert isinstance(answer, Opened), answer
        return answer.session

    async def closed(self) -> int | None:
        """The close code, once the cloud has hung up."""
        message = await self.socket.receive(PATIENCE)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        return self.socket.close_code


@asynccontextmanager
async def connected(server: BackgroundServer, count: int = 1, token: str | None = None) -> AsyncIterator[list[Device]]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        sockets = [await http.ws_connect(f"{server.url}/v1/session") for _ in range(count)]
        try:
            yield [Device(socket) for socket in sockets]
        finally:
            for socket in sockets:
                await socket.close()


def served(model: TableTarget | None = None, **settings: Any) -> BackgroundServer:
    return BackgroundServer(model or TableTarget(), ServiceConfig(port=0, **settings))


async def get(server: BackgroundServer, path: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(server.url + path, headers=headers) as response:
        return response.status, await response.text()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


async def working(model: TableTarget, passes: int) -> None:
    """Wait until the model is inside its next pass, at the gate."""

    async def inside() -> bool:
        return len(model.passes) > passes

    await until(inside)


async def metric(server: BackgroundServer, name: str) -> float:
    _, text = await get(server, "/metrics")
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name + " ")))
