"""Clients that only hold on to things: connections without a request, answers that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from cloud_device import PATIENCE, connected, get, metric, served, until
from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.connections import SparingHandler
from pixdraft.cloud_stub.serving import BackgroundServer

HANDSHAKE = (
    b"GET /v1/session HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
GARBAGE = b"\x82\x81\0\0\0\0\xc1"  # a binary message of one byte, which gets a sentence for an answer


@contextlib.contextmanager
def plain(server: BackgroundServer, count: int = 1, buffer: int = 0) -> Iterator[list[socket.socket]]:
    """TCP connections; `buffer` bounds the bytes that wait unread on this side."""
    address = urlsplit(server.url)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            if buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.settimeout(PATIENCE)
            client.connect((address.hostname, address.port))
            clients.append(client)
        yield clients


def read_all(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


def hung_up(client: socket.socket) -> bool:
    """Whether the service has closed a connection on which it has nothing to say; waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("said", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-a: "])
async def test_a_connection_that_is_no_request_in_time_is_closed(said: bytes) -> None:
    with served(handshake_timeout_s=0.5) as server, plain(server) as (client,):
        client.sendall(said)
        assert await asyncio.to_thread(hung_up, client)


async def test_a_page_that_nobody_reads_holds_nothing() -> None:
    with served(handshake_timeout_s=0.5) as server, plain(server, buffer=4096) as (client,):
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(10_000):
                client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(1.0)
        client.settimeout(PATIENCE)
        with pytest.raises(ConnectionResetError):  # what was not sent by then is thrown away
            read_all(client)


async def test_connections_that_say_nothing_keep_nobody_out() -> None:
    most = ServiceConfig(max_sessions=1).max_tcp_connections
    model = TableTarget()
    with served(model, max_sessions=1, handshake_timeout_s=600) as server:
        async with connected(server) as (device,):
            with plain(server, most + 20) as clients:
                await device.open(model)  # the older WebSocket is not among those that go
                assert await get(server, "/livez") == (200, "ok\n")
                for client in clients[:20]:
                    assert await asyncio.to_thread(hung_up, client)
                clients[-1].settimeout(0.1)
                assert not hung_up(clients[-1])


async def test_a_session_outlives_the_time_for_a_request() -> None:
    model = TableTarget()
    with served(model, handshake_timeout_s=0.5) as server:
        async with connected(server) as (device,):
            await device.open(model)
            await asyncio.sleep(0.7)
            await device.open(model)


async def test_a_device_that_reads_nothing_loses_its_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with served(send_timeout_s=0.3, handshake_timeout_s=600) as server, plain(server, buffer=4096) as (client,):
        client.sendall(HANDSHAKE)
        sent = 0

        async def held() -> bool:
            return await metric(server, "pixdraft_sessions") == 1

        async def free() -> bool:
            nonlocal sent
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sent += client.send((GARBAGE * 1000)[sent % len(GARBAGE) :])  # on from where it was cut
            return await metric(server, "pixdraft_sessions") == 0

        await until(held)
        client.setblocking(False)
        await until(free)
    assert "did not read it" in caplog.text


async def test_a_place_is_taken_from_whoever_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiohttp import web

    model = TableTarget()
    with served(model, send_timeout_s=0.2, max_sessions=1) as server:
        async with connected(server) as (device,):
            await device.open(model)
            with monkeypatch.context() as patch:
                patch.setattr(web.WebSocketResponse, "send_bytes", lambda *_: asyncio.sleep(600))
                await device.send(b"\xc1")
                assert await device.closed() == 1008
        async with connected(server) as (device,):
            await device.open(model)


async def test_a_full_process_says_so_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    loop, handler = asyncio.get_running_loop(), SparingHandler()
    for _ in range(1000):
        handler(loop, {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")})
    assert [record.getMessage() for record in caplog.records] == [
        "connections have to wait (Too many open files): allow this process more open files"
    ]
    handler(loop, {"message": "something else", "exception": ValueError("seen")})
    assert "something else" in caplog.text
