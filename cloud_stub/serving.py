"""Run the service: until a signal comes (`serve`), or in a thread beside other work (`BackgroundServer`)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.connections import SparingHandler
from pixdraft.cloud_stub.service import CONNECTIONS, create_app
from pixdraft.models.target import TargetModel


class ServeError(RuntimeError):
    """The service cannot listen where it should; the message names the address and the mend."""


def serve(model: TargetModel, config: ServiceConfig, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then end what is under way and return.

    Args:
        model: what to serve.
        config: where and how.
        ready: called with the service's URL once it listens.

    Raises:
        ServeError: the address cannot be used.
    """

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await _run(model, config, ready or (lambda _: None), stop)

    asyncio.run(main())


class BackgroundServer:
    """The service in a thread with an event loop of its own, while the `with` block lasts.

    Args:
        model: what to serve.
        config: where and how; by default a free port of this machine.

    Raises:
        ServeError: on entering, where the address cannot be used.
    """

    def __init__(self, model: TargetModel, config: ServiceConfig | None = None) -> None:
        self._model = model
        self._config = config or ServiceConfig(port=0)
        self._url = ""
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="pixdraft-cloud", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, such as ``http://127.0.0.1:43123``."""
        return self._url

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _main(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await _run(self._model, self._config, self._ready, self._stop)

        try:
            asyncio.run(main())
        except Exception as error:  # handed over to the thread that waits in __enter__
            self._error = error
        finally:
            self._started.set()

    def _ready(self, url: str) -> None:
        self._url = url
        self._started.set()


async def _run(model: TargetModel, config: ServiceConfig, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(SparingHandler())
    app = create_app(model, config)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # a device that is gone wants no more tokens
        shutdown_timeout=config.shutdown_timeout_s,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        try:
            server = await loop.create_server(app[CONNECTIONS].watched(runner.server), config.host, config.port)
        except OSError as error:
            raise ServeError(
                f"cannot listen at {config.host}, port {config.port} ({error.strerror}): choose another, or port 0"
            ) from error
        host = f"[{config.host}]" if ":" in config.host else config.host
        ready(f"http://{host}:{server.sockets[0].getsockname()[1]}")
        try:
            await stop.wait()
        finally:
            server.close()
    finally:
        await runner.cleanup()
