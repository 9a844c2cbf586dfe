"""The aiohttp application: who may come in, one WebSocket a session, and the pages beside it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
from contextlib import aclosing
from weakref import WeakSet

from aiohttp import WSCloseCode, WSMsgType, hdrs, web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST

from pixdraft.cloud_stub.admission import Admission
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.connections import Connections, hang_up
from pixdraft.cloud_stub.conversation import Conversation
from pixdraft.cloud_stub.metrics import Metrics, TimedTarget
from pixdraft.cloud_stub.worker import Worker
from pixdraft.models.target import TargetModel
from pixdraft.protocol.codec import encode, kind
from pixdraft.protocol.frames import PROTOCOL_VERSION, Busy, CloudFrame, Failure

log = logging.getLogger("pixdraft.cloud")

OPEN_TO_ALL = frozenset({"/livez", "/readyz"})
CONNECTIONS = web.AppKey("connections", Connections)
CLOSE_TIMEOUT_S = 2.0  # a device that is gone answers no close frame


class Service:
    """The handlers and what they share; `create_app` mounts them."""

    def __init__(self, model: TargetModel, config: ServiceConfig) -> None:
        self._config = config
        self._metrics = Metrics()
        self._model = TimedTarget(model, self._metrics)
        self._worker = Worker(config.model_threads, config.max_waiting)
        self._admission = Admission(config)
        self.connections = Connections(config)
        self._sockets: WeakSet[web.WebSocketResponse] = WeakSet()
        self._ready = True

    async def livez(self, _: web.Request) -> web.Response:
        """The event loop turns."""
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """Sessions are taken; 503 once the service is stopping."""
        return web.Response(text="ok\n" if self._ready else "stopping\n", status=200 if self._ready else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(body=self._metrics.text(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    async def info(self, _: web.Request) -> web.Response:
        """What is served, and within what limits."""
        info, config = self._model.info, self._config
        return web.json_response(
            {
                "service": "pixdraft",
                "protocol": PROTOCOL_VERSION,
                "name": info.name,
                "model": info.model_hash,
                "tokenizer": info.tokenizer_hash,
                "vocab_size": info.vocab_size,
                "image_tokens": info.image_tokens,
                "bottleneck": info.bottleneck,
                "guidance": info.guidance,
                "limits": {
                    "frame_bytes": config.max_frame_bytes,
                    "prompt": config.max_prompt,
                    "sessions": config.max_sessions,
                    "sessions_per_client": config.max_sessions_per_client,
                    "handshake_s": config.handshake_timeout_s,
                    "idle_s": config.idle_timeout_s,
                    "send_s": config.send_timeout_s,
                    "session_s": config.session_lifetime_s,
                },
            }
        )

    async def session(self, request: web.Request) -> web.StreamResponse:
        """One WebSocket from `Open` to `Close`."""
        config = self._config
        socket = web.WebSocketResponse(
            compress=False,
            max_msg_size=config.max_frame_bytes + 1,  # aiohttp refuses a message of exactly this size
            timeout=CLOSE_TIMEOUT_S,
        )
        if not socket.can_prepare(request).ok:
            return _refusal(426, "request", "this address speaks WebSocket: connect with one", Upgrade="websocket")
        client = request.remote or "unknown"
        with self._admission.socket() as room, self._admission.session(client) as place:
            if not (room and self._ready):
                self._metrics.busy.inc()
                wait = math.ceil(config.retry_after_ms / 1000)
                return _refusal(503, "limit", "no room for another connection: come back later", Retry_After=str(wait))
            await socket.prepare(request)
            self.connections.keep(request.transport)
            self._sockets.add(socket)
            self._metrics.sessions.inc(place)
            try:
                async with asyncio.timeout(config.session_lifetime_s):
                    await (self._converse(socket) if place else self._turn_away(socket))
            except TimeoutError:
                await _close(socket, WSCloseCode.GOING_AWAY, b"the connection is too old: connect again")
            except ConnectionError:
                log.info("%s left in the middle of an answer, or did not read it", client)
            finally:
                self._metrics.sessions.dec(place)
                if request.transport is not None:
                    hang_up(request.transport)
        return socket

    async def stop(self, _: web.Application) -> None:
        """Take nobody in any more, and send away those who are."""
        self._ready = False
        await asyncio.gather(*(_close(s, WSCloseCode.GOING_AWAY, b"the service stops") for s in set(self._sockets)))

    async def clean_up(self, _: web.Application) -> None:
        """Let the model end what it is at."""
        await self._worker.close()

    async def _converse(self, socket: web.WebSocketResponse) -> None:
        talk = Conversation(self._model, self._config, self._worker, self._metrics)
        now = asyncio.get_running_loop().time
        handshake = now() + self._config.handshake_timeout_s
        while not talk.closed:
            left = self._config.idle_timeout_s if talk.opened else handshake - now()
            data = await self._receive(socket, left)
            if data is None:
                return
            async with aclosing(talk.answer(data)) as replies:
                async for reply in replies:
                    await self._send(socket, reply)
        await _close(socket, WSCloseCode.OK)

    async def _turn_away(self, socket: web.WebSocketResponse) -> None:
        """Busy, in answer to the first frame: a client that has not asked yet would not expect it."""
        if await self._receive(socket, self._config.handshake_timeout_s) is not None:
            self._metrics.busy.inc()
            await self._send(socket, Busy(self._config.retry_after_ms))
            await _close(socket, WSCloseCode.TRY_AGAIN_LATER, b"no room now")

    async def _receive(self, socket: web.WebSocketResponse, seconds: float) -> bytes | None:
        """The next binary message; None once the socket is closed, by the device or because nothing came in time."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                while (message := await socket.receive()).type is WSMsgType.TEXT:
                    await self._send(socket, Failure("protocol", "frames are binary messages, not text: send msgpack"))
        except TimeoutError:
            await _close(socket, WSCloseCode.POLICY_VIOLATION, b"nothing came in time")
            return None
        return message.data if message.type is WSMsgType.BINARY else None

    async def _send(self, socket: web.WebSocketResponse, frame: CloudFrame) -> None:
        """Send a frame; ConnectionError once the device is gone, or has not read the frames before for too long."""
        data = encode(frame)
        try:
            async with asyncio.timeout(self._config.send_timeout_s):
                await socket.send_bytes(data)
        except TimeoutError:
            await _close(socket, WSCloseCode.POLICY_VIOLATION, b"nothing was read in time")
            raise ConnectionAbortedError("nothing was read in time") from None
        self._metrics.moved("out", kind(frame), len(data))


def create_app(model: TargetModel, config: ServiceConfig) -> web.Application:
    """The service as an aiohttp application: /livez, /readyz, /metrics, /v1/info and the WebSocket /v1/session.

    The application owns its threads and its metrics; it is good for one run.
    """
    service = Service(model, config)
    app = web.Application(middlewares=[_bearer(config.token)])
    app[CONNECTIONS] = service.connections
    app.router.add_get("/livez", service.livez)
    app.router.add_get("/readyz", service.readyz)
    app.router.add_get("/metrics", service.metrics)
    app.router.add_get("/v1/info", service.info)
    app.router.add_get("/v1/session", service.session, allow_head=False)
    app.on_shutdown.append(service.stop)
    app.on_cleanup.append(service.clean_up)
    return app


async def _close(socket: web.WebSocketResponse, code: int, message: bytes = b"") -> None:
    """Close a socket, waiting for the other side's own close frame for a bounded time.

    Nothing is drained: after a send that was given up, aiohttp's drain would raise CancelledError.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):  # the socket's own limit holds once the frame is sent
            await socket.close(code=code, message=message, drain=False)


def _bearer(token: str | None) -> Middleware:
    """Let through whoever shows the token; the liveness pages are open to all."""
    expected = None if token is None else token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if expected is not None and request.path not in OPEN_TO_ALL:
            scheme, _, shown = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
            known = hmac.compare_digest(shown.strip().encode("utf-8", "surrogateescape"), expected)
            if scheme.lower() != "bearer" or not known:
                message = "send the service's token as 'Authorization: Bearer <token>'"
                return _refusal(401, "token", message, WWW_Authenticate="Bearer")
        return await handler(request)

    return check


def _refusal(status: int, code: str, message: str, **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response({"code": code, "message": message}, status=status, headers=named)
