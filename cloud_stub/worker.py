"""Model work, kept off the event loop: a few threads and a bound on what waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class QueueFull(Exception):
    """Too much waits for the model already."""


class Worker:
    """Runs calls in `threads` threads. New requests knock with `admit`; work of admitted ones is always taken."""

    def __init__(self, threads: int, max_waiting: int) -> None:
        self._room = threads + max_waiting
        self._pending = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pixdraft-model")

    def admit(self) -> None:
        """Raise QueueFull where a new request would have to wait behind too many."""
        if self._pending >= self._room:
            raise QueueFull

    async def run(self, call: Callable[..., Result], *args: Any) -> Result:
        """The result of a call made in a worker thread. Cancelling drops it if it has not begun."""
        with self._lock:
            self._pending += 1
        try:
            future = self._pool.submit(call, *args)
        except RuntimeError:
            self._done(None)
            raise
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Drop what waits, and return when what runs has ended."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def _done(self, _: Future[Any] | None) -> None:
        with self._lock:
            self._pending -= 1
