"""The service over a real loopback WebSocket: frames that are wrong, and time that runs out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import msgspec
import pytest

from cloud_device import PATIENCE, Device, connected, get, metric, served, until, working
from cloud_frames import generate_frame, open_frame, verify_frame
from fakes import TableTarget
from pixdraft.protocol import arrays
from pixdraft.protocol.codec import encode
from pixdraft.protocol.frames import (
    Busy,
    Close,
    Failure,
    Rule,
    Sampling,
    Strategy,
    Tokens,
    Verdict,
)

# --- frames that are wrong -------------------------------------------------------------------------------------------


async def test_wrong_frames_get_a_sentence_and_leave_the_session_as_it_was() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            early = await device.ask(verify_frame("s", [], [1], {}))
            assert isinstance(early, Failure)
            assert early.code == "session"
            session = await device.open(model)
            for frame, code in (
                (b"\xc1garbage", "protocol"),
                (encode(Busy(1)), "protocol"),
                (verify_frame(session, [], [1] * 17, {}), "request"),
                (verify_frame(session, [1], [1], {}), "session"),
                (verify_frame("another", [], [1], {}), "session"),
                (generate_frame(session, [], 17), "request"),
                (Close("another"), "session"),
            ):
                answer = await device.ask(frame)
                assert isinstance(answer, Failure)
                assert answer.code == code
            await device.socket.send_str("hello")
            answer = await device.receive()
            assert isinstance(answer, Failure)
            assert "binary" in answer.message
            assert isinstance(await device.ask(verify_frame(session, [], [1], {})), Verdict)
        assert await metric(server, 'pixdraft_frames_total{direction="in",type="bad"}') == 2


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sampling": Sampling(guidance=1e308)}, "sampling.guidance is 1e+308: it must be a number from 0 to 1000"),
        ({"sampling": Sampling(temperature=1001.0)}, "sampling.temperature is 1001.0: it must be"),
        ({"rule": Rule("x" * 60_000)}, f"rule: there is no acceptance rule '{'x' * 64}':"),
        ({"rule": Rule("csd", {"x" * 60_000: 1.0})}, f"rule: csd: there is no parameter '{'x' * 64}';"),
        ({"model": "x" * 60_000}, f"made for model '{'x' * 64}',"),
    ],
)
async def test_openings_are_refused_briefly(fields: dict[str, Any], sentence: str) -> None:
    with served() as server:
        async with connected(server) as (device,):
            answer = await device.ask(open_frame(TableTarget().info, **fields))
    assert isinstance(answer, Failure)
    assert sentence in answer.message
    assert len(answer.message) < 400


async def test_long_names_of_strategies_and_frames_are_cut() -> None:
    model, long = TableTarget(), "x" * 60_000
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            for strategy in (
                Strategy(long),
                Strategy("jd", {long: 1.0}),
                Strategy("jd", {"window": long, "init": long}),
            ):
                answer = await device.ask(generate_frame(session, [], 1, strategy))
                assert isinstance(answer, Failure)
                assert "x" * 60 in answer.message
                assert "x" * 65 not in answer.message
            answer = await device.ask(msgspec.msgpack.encode({"type": long}))
            assert isinstance(answer, Failure)
            assert len(answer.message) < 200


@pytest.mark.parametrize(("prompt", "sentence"), [("xyzzy", "no word"), ("a" * 1001, "shorten it to 1000")])
async def test_prompts_are_refused(prompt: str, sentence: str) -> None:
    with served() as server:
        async with connected(server) as (device,):
            answer = await device.ask(open_frame(TableTarget().info, prompt=prompt))
    assert isinstance(answer, Failure)
    assert answer.code == "prompt"
    assert sentence in answer.message


async def test_an_oversized_frame_ends_the_connection() -> None:
    with served(max_frame_bytes=2048) as server:
        async with connected(server) as (device,):
            answer = await device.ask(b"\xc1" * 2048)
            assert isinstance(answer, Failure)
            assert answer.code == "protocol"
            await device.send(b"\xc1" * 2049)
            assert await device.closed() == 1009


async def test_an_error_in_the_model_is_not_told_but_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            model.broken = True
            answer = await device.ask(verify_frame(session, [], [1], {}))
            assert isinstance(answer, Failure)
            assert answer.code == "internal"
            assert "secret" not in answer.message
            model.broken = False
            lost = await device.ask(verify_frame(session, [], [1], {}))
            assert isinstance(lost, Failure)
            assert lost.code == "session"
            await device.open(model)
    assert "the table is broken" in caplog.text


async def test_the_same_error_again_is_logged_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            model.broken = True
            for _ in range(5):
                answer = await device.ask(open_frame(model.info, inject=2))
                assert isinstance(answer, Failure)
                assert answer.code == "internal"
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False, False]


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_slow_handshake_is_cut_off() -> None:
    with served(handshake_timeout_s=0.2) as server:
        async with connected(server) as (device,):
            assert await device.closed() == 1008


async def test_refused_openings_do_not_stretch_the_handshake() -> None:
    with served(handshake_timeout_s=0.4) as server:
        async with connected(server) as (device,):
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    await device.send(b"\xc1")
                    if (await device.socket.receive(PATIENCE)).type is not aiohttp.WSMsgType.BINARY:
                        break
                    await asyncio.sleep(0.05)
                else:
                    pytest.fail("five seconds of refused frames kept the socket open")
            assert device.socket.close_code == 1008


async def test_an_idle_session_is_ended() -> None:
    model = TableTarget()
    with served(model, idle_timeout_s=0.2) as server:
        async with connected(server) as (device,):
            await device.open(model)
            assert await device.closed() == 1008


async def test_a_connection_does_not_live_forever() -> None:
    with served(session_lifetime_s=0.3) as server:
        async with connected(server) as (device,):
            assert await device.closed() == 1001
        assert await metric(server, "pixdraft_sessions") == 0


async def test_the_event_loop_answers_while_the_model_works() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            model.gate.clear()
            await device.send(verify_frame(session, [], [1, 2], {}))
            await working(model, 0)
            assert await get(server, "/livez") == (200, "ok\n")
            assert await metric(server, "pixdraft_sessions") == 1
            model.gate.set()
            assert isinstance(await device.receive(), Verdict)


async def test_two_sessions_take_turns_and_do_not_mix() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server, 2) as (one, two):
            first, second = await one.open(model, seed=1), await two.open(model, seed=2)
            model.delay = 0.01
            model.passes.clear()
            await one.send(generate_frame(first, [], 16))
            await two.send(generate_frame(second, [], 16))

            async def all_of(device: Device) -> list[int]:
                tokens: list[int] = []
                while len(tokens) < 16:
                    frame = await device.receive()
                    assert isinstance(frame, Tokens)
                    tokens += arrays.read_tokens(frame.tokens, 6).tolist()
                return tokens

            together = list(await asyncio.gather(all_of(one), all_of(two)))
            alone = []
            for device, seed in ((one, 1), (two, 2)):
                session = await device.open(model, seed=seed)
                await device.send(generate_frame(session, [], 16))
                alone.append(await all_of(device))
    assert together == alone
    assert together[0] != together[1]


async def test_a_device_that_leaves_in_the_middle_frees_its_place() -> None:
    model = TableTarget()
    with served(model, max_sessions=1) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            model.delay = 0.05
            await device.send(generate_frame(session, [], 16))
            await device.receive()

        async def free() -> bool:
            return await metric(server, "pixdraft_sessions") == 0

        await until(free)
        async with connected(server) as (device,):
            await device.open(model)


async def test_nothing_more_is_drawn_for_a_device_that_is_gone() -> None:
    model = TableTarget()
    with served(model, max_sessions=1) as server:
        async with connected(server) as (device,):
            model.gate.clear()
            await device.send(open_frame(model.info, inject=16))
            await working(model, 0)
            connection = device.socket._response.connection  # a close frame would be answered only after the opening
            assert connection is not None
            assert connection.transport is not None
            connection.transport.abort()

            async def free() -> bool:
                return await metric(server, "pixdraft_sessions") == 0

            await until(free)
            model.gate.set()
            async with connected(server) as (another,):
                await another.open(model, prompt="another")
        assert len(model.passes) == 1


async def test_stopping_sends_the_devices_away() -> None:
    model = TableTarget()
    server = served(model)
    with server:
        async with connected(server) as (device,):
            await device.open(model)
            stopping = asyncio.create_task(asyncio.to_thread(server.__exit__, None, None, None))
            assert await device.closed() == 1001
            await stopping
