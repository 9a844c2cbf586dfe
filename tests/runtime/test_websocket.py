"""The address, the service behind it, and one clear sentence for each that is not what it should be."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from fakes import TableDraft, TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.service import create_app
from pixdraft.protocol.frames import PROTOCOL_VERSION
from pixdraft.protocol.link import LinkClosed
from pixdraft.runtime.errors import (
    CloudBusy,
    CloudError,
    CloudProtocol,
    CloudRefused,
    CloudUnreachable,
    NotPixdraft,
    RequestError,
    WrongModel,
)
from pixdraft.runtime.policies import CiarPolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.websocket import WebSocketConnector, _reason

TARGET = TableTarget()
INFO = {"service": "pixdraft", "protocol": PROTOCOL_VERSION}


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answering(**pages: Callable[[web.Request], object]) -> web.Application:
    """An application with handlers of /v1/info and /v1/session."""
    app = web.Application()
    for name, handler in pages.items():
        app.router.add_get(f"/v1/{name}", handler)  # type: ignore[arg-type]
    return app


def saying(value: object, status: int = 200, **headers: str) -> Callable[[web.Request], object]:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(value, status=status, headers=headers)

    return handler


async def refusal(app: web.Application, kind: type[CloudError]) -> str:
    async with serving(app) as url:
        with pytest.raises(kind) as caught:
            await WebSocketConnector(url, connect_seconds=5)()
        assert type(caught.value) is kind
        assert url in str(caught.value)
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://127.0.0.1", "http://", "http://h:port", "h:port"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(RequestError, match=r"is no URL: write it like http://127\.0\.0\.1:8765"):
        WebSocketConnector(url)


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "localhost:80", "my-host.lan:8765/", "[::1]:8765"])
def test_an_address_that_lacks_only_its_scheme_is_given_it(url: str) -> None:
    with pytest.raises(RequestError, match=rf"{re.escape(repr(url))} is no URL: write http://{re.escape(url)}$"):
        WebSocketConnector(url)


@pytest.mark.parametrize("url", ["http://h?x=secret", "http://h#secret", "http://u:secret@h"])
def test_an_address_with_more_than_a_place_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(RequestError, match="more than host, port and path") as caught:
        WebSocketConnector(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] Connect call failed ('::1', 1), ..."), "refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (aiohttp.ServerDisconnectedError(), "server disconnected"),
    ],
)
def test_why_nobody_was_reached_is_said_in_a_few_words(error: Exception, words: str) -> None:
    if isinstance(error, OSError):
        error = aiohttp.ClientConnectorError(cast(Any, types.SimpleNamespace(host="h", port=1, ssl=True)), error)
    said = _reason(error)
    assert said.endswith(words)
    assert "ssl" not in said
    assert "[" not in said


@pytest.mark.parametrize("token", ["", " ", "new\nline", "é"])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(RequestError, match="token is not printable ASCII"):
        WebSocketConnector("http://h", token)


def test_time_limits_are_checked() -> None:
    with pytest.raises(RequestError, match="must be above 0"):
        WebSocketConnector("http://h", connect_seconds=0)


async def test_nobody_there() -> None:
    async with serving(answering()) as url:
        pass
    with pytest.raises(CloudUnreachable, match=rf"can be reached at {url} \(connection refused\): start it there, or"):
        await WebSocketConnector(url, connect_seconds=5)()


async def test_somebody_who_never_answers() -> None:
    async def stall(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async with serving(answering(info=stall)) as url:
        with pytest.raises(CloudUnreachable, match=r"no answer within 0\.05 s"):
            await WebSocketConnector(url, connect_seconds=0.05)()


@pytest.mark.parametrize(
    "app",
    [
        lambda: answering(),
        lambda: answering(info=saying({"service": "other"})),
        lambda: answering(info=saying([1])),
        lambda: answering(info=saying("x", status=500)),
        lambda: answering(info=saying(INFO, status=302, Location="http://127.0.0.1:1/")),
    ],
)
async def test_another_service(app: Callable[[], web.Application]) -> None:
    assert "answers, but is no pixdraft service: check the address" in await refusal(app(), NotPixdraft)


async def test_a_page_that_is_no_json() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    assert "is no pixdraft service" in await refusal(answering(info=page), NotPixdraft)


async def test_a_service_without_its_socket() -> None:
    assert "takes no WebSocket" in await refusal(answering(info=saying(INFO)), NotPixdraft)


async def test_another_protocol() -> None:
    text = await refusal(answering(info=saying({"service": "pixdraft", "protocol": 99})), WrongModel)
    assert "speaks protocol 99" in text


async def test_a_full_service() -> None:
    full = saying({"code": "limit"}, status=503, **{"Retry-After": "7"})
    text = await refusal(answering(info=saying(INFO), session=full), CloudBusy)
    assert "try again in 7 s" in text


async def test_tokens() -> None:
    config = ServiceConfig(port=0, token="open sesame")
    assert "wants a token" in await refusal(create_app(TARGET, config), CloudRefused)
    async with serving(create_app(TARGET, config)) as url:
        with pytest.raises(CloudRefused, match="wants another token") as caught:
            await WebSocketConnector(url, "wrong secret")()
        assert "wrong secret" not in f"{caught.value!r} {WebSocketConnector(url, 'wrong secret')!r}"
        connect = WebSocketConnector(url.replace("http", "ws"), "open sesame")
        picture = await DeviceSession(TableDraft(TARGET), connect).draw(DrawRequest("xx", 1))
        assert picture.lost is None
        assert (await connect.info())["model"] == TARGET.info.model_hash


async def test_a_service_of_another_model() -> None:
    async with serving(create_app(TableTarget(name="another"), ServiceConfig(port=0))) as url:
        with pytest.raises(WrongModel, match=r"made for model .*, this cloud serves .*: use the bundle") as caught:
            await DeviceSession(TableDraft(TARGET), WebSocketConnector(url)).draw(DrawRequest("xx", 1))
        assert caught.value.code == "model"


async def test_a_silent_service_is_left() -> None:
    async def mute(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await asyncio.sleep(5)
        return socket

    async with serving(answering(info=saying(INFO), session=mute)) as url:
        link = await WebSocketConnector(url, receive_seconds=0.05)()
        await link.send(b"x")
        with pytest.raises(LinkClosed, match=r"it sent nothing for 0\.05 s"):
            await link.receive()
        await link.close()
        with pytest.raises(LinkClosed):
            await link.send(b"x")
        with pytest.raises(CloudUnreachable, match="left before it opened a session"):
            await DeviceSession(TableDraft(TARGET), WebSocketConnector(url, receive_seconds=0.05)).draw(
                DrawRequest("xx", 1, CiarPolicy())
            )


async def test_text_is_no_frame_and_a_goodbye_has_its_reason() -> None:
    async def odd(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("hello")
        await socket.close(code=1001, message=b"the service stops")
        return socket

    async with serving(answering(info=saying(INFO), session=odd)) as url:
        link = await WebSocketConnector(url)()
        with pytest.raises(CloudProtocol, match="sent text where frames are binary"):
            await link.receive()
        with pytest.raises(LinkClosed, match="it closed the connection: the service stops"):
            await link.receive()
        await link.close()
