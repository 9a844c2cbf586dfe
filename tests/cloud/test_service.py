"""The service over a real loopback WebSocket: pages, pictures, who may come in, and for how many there is room."""

from __future__ import annotations

import logging

import aiohttp
import pytest

from cloud_device import connected, get, metric, served, working
from cloud_frames import certain, generate_frame, open_frame, verify_frame
from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.protocol import arrays
from pixdraft.protocol.codec import encode
from pixdraft.protocol.frames import (
    Busy,
    Close,
    Failure,
    Opened,
    Strategy,
    Tokens,
    Verdict,
)

TOKEN = "a secret of ours"


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


async def test_passes_over_trees_are_counted_too() -> None:
    model = TableTarget()
    with served(model) as server:
        async with connected(server) as (device,):
            session = await device.open(model)
            frame = await device.ask(generate_frame(session, [], 4, Strategy("eagle2", {"depth": 2.0})))
            while isinstance(frame, Tokens) and not frame.last:
                frame = await device.receive()
            assert await metric(server, "pixdraft_forward_passes_total") == len(model.passes) > 0


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
