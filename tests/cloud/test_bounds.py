"""The small parts that keep the service bounded."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pixdraft.cloud_stub.admission import Admission
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.worker import QueueFull, Worker


def test_places_are_given_back() -> None:
    doors = Admission(ServiceConfig(max_sessions=2, max_sessions_per_client=1))
    with doors.session("a") as first, doors.session("a") as second, doors.session("b") as third:
        assert (first, second, third) == (True, False, True)
        with doors.session("c") as fourth:
            assert not fourth
        assert doors.sessions == 2
    assert doors.sessions == 0
    with doors.session("a") as again:
        assert again


def test_places_are_given_back_after_an_error() -> None:
    doors = Admission(ServiceConfig())
    with pytest.raises(ConnectionError), doors.socket(), doors.session("a"):
        raise ConnectionError
    assert doors.sessions == 0


async def test_a_worker_lets_so_many_wait() -> None:
    worker, gate = Worker(threads=1, max_waiting=1), threading.Event()
    worker.admit()
    first = asyncio.create_task(worker.run(gate.wait))
    await asyncio.sleep(0)
    worker.admit()
    second = asyncio.create_task(worker.run(lambda: 7))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        worker.admit()
    gate.set()
    assert await first
    assert await second == 7
    worker.admit()
    await worker.close()


async def test_work_that_was_given_up_holds_its_place_until_it_ends() -> None:
    worker, gate, ended = Worker(threads=1, max_waiting=0), threading.Event(), threading.Event()

    def work() -> None:
        gate.wait()
        ended.set()

    task = asyncio.create_task(worker.run(work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(QueueFull):
        worker.admit()
    gate.set()
    await asyncio.to_thread(ended.wait)
    await worker.close()
    worker.admit()


async def test_a_closed_worker_takes_nothing() -> None:
    worker = Worker(threads=1, max_waiting=0)
    await worker.close()
    with pytest.raises(RuntimeError):
        await worker.run(int)
    worker.admit()


async def test_an_error_comes_back_to_who_asked() -> None:
    worker = Worker(threads=1, max_waiting=0)
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    await worker.close()
