"""The service over a real loopback WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from cloud_frames import certain, generate_frame, open_frame, verify_frame
from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.protocol import arrays
from pixdraft.protocol.codec import decode_cloud, encode
from pixdraft.protocol.frames import (
    Busy,
    Close,
    CloudFrame,
    DeviceFrame,
    Failure,
    Opened,
    Strategy,
    Tokens,
    Verdict,
)

TOKEN = "a secret of ours"
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


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_the_pages() -> None:
    model = TableTarget()
    with served(model) as server:
        assert await get(server, "/livez") == (200, "ok\n")
        assert await get(server, "/readyz") == (200, "ok\n")
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/info") as response:
            info = await response.json()
        assert (await get(server, "/v1/session"))[0] == 426
        assert (await get(server, "/"))[0] == 404
    assert (info["service"], info["protocol"], info["name"]) == ("pixdraft", 1, "table")
    assert (info["model"], info["tokenizer"]) == (model.info.model_hash, model.info.tokenizer_hash)
    assert (info["vocab_size"], info["image_tokens"], info["bottleneck"], info["guidance"]) == (6, 16, 4, 1.0)
    assert info["limits"]["frame_bytes"] == 1 << 20


# --- a picture -------------------------------------------------------------------------------------------------------


async def test_a_picture_from_open_to_close_and_what_is_counted() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            opened = await device.ask(open_frame(model.info, inject=2))
            assert isinstance(opened, Opened)
            session, tokens = opened.session, arrays.read_tokens(opened.tokens, 6).tolist()
            verdict = await device.ask(verify_frame(session, tokens, [1, 2, 3], {1: certain(2)}))
            assert isinstance(verdict, Verdict)
            accepted = 1 if verdict.settled == 3 else 0
            for name, expected in {
                "pixdraft_sessions": 1,
                "pixdraft_forward_passes_total": 1 + 1,
                'pixdraft_tokens_total{kind="generated"}': 2,
                'pixdraft_tokens_total{kind="verified"}': 1,
                'pixdraft_tokens_total{kind="accepted"}': accepted,
                'pixdraft_tokens_total{kind="rejected"}': 1 - accepted,
                'pixdraft_tokens_total{kind="audited"}': 1 + accepted,
                'pixdraft_frames_total{direction="in",type="verify"}': 1,
                'pixdraft_frames_total{direction="out",type="verdict"}': 1,
                'pixdraft_bytes_total{direction="out"}': len(encode(opened)) + len(encode(verdict)),
            }.items():
                assert await metric(server, name) == expected, name
            await device.send(Close(session))
            assert await device.closed() == 1000
        assert await metric(server, "pixdraft_sessions") == 0


async def test_a_strategy_streams_as_it_settles() -> None:
    model = TableTarget()
    frames: list[Tokens] = []
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            await device.send(generate_frame(session, [], 16, Strategy("sjd", {"window": 6.0})))
            while not (frames and frames[-1].last):
                frame = await device.receive()
                assert isinstance(frame, Tokens)
                frames.append(frame)
    assert sum(len(frame.tokens) // 2 for frame in frames) == 16
    assert sum(frame.passes for frame in frames) == len(model.passes) == len(frames)


async def test_generate_streams() -> None:
    model = TableTarget()
    with served(model, generate_chunk=5) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            await device.send(generate_frame(session, [], 16))
            frames = [await device.receive() for _ in range(4)]
    assert all(isinstance(frame, Tokens) for frame in frames)
    assert [(f.base, len(f.tokens) // 2, f.last) for f in frames if isinstance(f, Tokens)] == [
        (0, 5, False),
        (5, 5, False),
        (10, 5, False),
        (15, 1, True),
    ]


async def test_a_lost_session_is_rebuilt_over_a_new_socket() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server, 2) as (one, two):
            session = await one.open(model, seed=4)
            first = await one.ask(verify_frame(session, [], [1, 2], {1: certain(2)}))
            assert isinstance(first, Verdict)
            before = [*[1, 2][: first.settled], first.token]
            expected = await one.ask(verify_frame(session, before, [3, 4], {0: certain(3)}))
            await one.socket.close()
            unknown = await two.ask(verify_frame(session, before, [3, 4], {0: certain(3)}))
            assert isinstance(unknown, Failure)
            assert unknown.code == "session"
            session = await two.open(model, seed=4, tokens=before)
            again = await two.ask(verify_frame(session, before, [3, 4], {0: certain(3)}))
    assert isinstance(expected, Verdict)
    assert isinstance(again, Verdict)
    assert (again.settled, again.token, again.audit) == (expected.settled, expected.token, expected.audit)


async def test_frames_that_were_sent_ahead_are_answered_in_order() -> None:
    model = TableTarget()
    model.delay = 0.02
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            await device.send(verify_frame(session, [], [1, 2], {}))
            await device.send(verify_frame(session, [1, 2], [3], {}))  # not knowing the bonus token
            await device.send(verify_frame(session, [5, 2, 3], [4], {}))  # on a past that never was
            answers = [await device.receive() for _ in range(3)]
    assert [type(answer) for answer in answers] == [Verdict, Verdict, Failure]
    assert [answer.base for answer in answers if isinstance(answer, Verdict)] == [0, 2]


# --- who may come in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \udcff"]
)
async def test_without_the_token_nobody_comes_in(authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    with served(token=TOKEN) as server:
        for path in ("/v1/info", "/metrics", "/v1/session"):
            status, text = await get(server, path, **headers)
            assert status == 401
            assert "Authorization: Bearer" in text
            assert TOKEN not in text
        assert (await get(server, "/livez"))[0] == 200
        async with aiohttp.ClientSession(headers=headers) as http:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await http.ws_connect(f"{server.url}/v1/session")


async def test_with_the_token_one_comes_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = TableTarget()
    with served(model, token=TOKEN) as server:
        assert (await get(server, "/v1/info", Authorization=f"bearer {TOKEN}"))[0] == 200
        async with connected(server, token=TOKEN) as (device,):
            await device.open(model)
    assert TOKEN not in caplog.text


async def test_another_model_is_refused_by_name() -> None:
    with served() as server:
        async with connected(server) as (device,):
            answer = await device.ask(open_frame(TableTarget(name="another").info))
            assert isinstance(answer, Failure)
            assert answer.code == "model"
            assert TableTarget().info.model_hash in answer.message
            assert TableTarget(name="another").info.model_hash in answer.message
            await device.open(TableTarget())  # the socket is still good


# --- no room ---------------------------------------------------------------------------------------------------------


async def test_busy_when_every_session_is_taken() -> None:
    model = TableTarget()
    with served(model, max_sessions=1, retry_after_ms=1234) as server:
        async with connected(server) as (first,):
            session = await first.open(model)
            async with connected(server) as (second,):
                assert await second.ask(open_frame(model.info)) == Busy(1234)
                assert await second.closed() == 1013
            assert await metric(server, "pixdraft_busy_total") == 1
            await first.send(Close(session))
            await first.closed()
        async with connected(server) as (third,):
            await third.open(model)


async def test_one_client_cannot_take_every_place() -> None:
    model = TableTarget()
    with served(model, max_sessions=4, max_sessions_per_client=2) as server:
        async with connected(server, 3) as (one, two, three):
            await one.open(model)
            await two.open(model)
            assert isinstance(await three.ask(open_frame(model.info)), Busy)


async def test_sockets_are_bounded_too() -> None:
    with served(max_sessions=1) as server:
        async with connected(server, ServiceConfig(max_sessions=1).max_connections):
            async with aiohttp.ClientSession() as http:
                with pytest.raises(aiohttp.WSServerHandshakeError, match="503") as caught:
                    await http.ws_connect(f"{server.url}/v1/session")
            assert caught.value.headers is not None
            assert caught.value.headers["Retry-After"] == "1"


async def test_busy_when_too_much_waits_for_the_model() -> None:
    model = TableTarget()
    with served(model, max_waiting=0) as server:
        async with connected(server, 2) as (one, two):
            session, other = await one.open(model), await two.open(model)
            model.gate.clear()
            await one.send(verify_frame(session, [], [1], {}))
            await working(model, 0)
            frame = verify_frame(other, [], [1], {})
            assert isinstance(await two.ask(frame), Busy)
            model.gate.set()
            assert isinstance(await one.receive(), Verdict)
            assert isinstance(await two.ask(frame), Verdict)  # the same socket, a little later


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


async def test_stopping_sends_the_devices_away() -> None:
    model = TableTarget()
    server = served(model)
    with server:
        async with connected(server) as (device,):
            await device.open(model)
            stopping = asyncio.create_task(asyncio.to_thread(server.__exit__, None, None, None))
            assert await device.closed() == 1001
            await stopping
