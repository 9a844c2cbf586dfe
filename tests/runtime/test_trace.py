"""Traces come back as they were written, and broken ones are named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fakes import TableDraft, TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.protocol.frames import PROTOCOL_VERSION
from pixdraft.runtime.errors import OutputError, TraceError
from pixdraft.runtime.picture import Picture
from pixdraft.runtime.policies import CiarPolicy, Policy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.trace import read_trace, write_trace
from pixdraft.runtime.websocket import WebSocketConnector

TARGET = TableTarget()


def draw(policy: Policy) -> Picture:
    return asyncio.run(DeviceSession(TableDraft(TARGET), LocalCloud(TARGET)).draw(DrawRequest("été", 4, policy)))


@pytest.mark.parametrize("policy", [CiarPolicy(tau=0.6), CiarPolicy(rate=0.0), SpeculativePolicy(3)])
def test_a_trace_comes_back_whole(tmp_path: Path, policy: Policy) -> None:
    picture, path = draw(policy), tmp_path / "a.jsonl"
    write_trace(path, picture)
    trace = read_trace(path)
    assert trace.tokens == picture.records
    assert [(f.up, f.kind, f.size) for f in trace.frames] == [(f.up, f.kind, f.size) for f in picture.frames]
    assert [f.ms for f in trace.frames] == pytest.approx([f.ms for f in picture.frames], abs=1e-3)
    header = trace.header
    assert (header["prompt"], header["seed"], header["policy"]["name"]) == ("été", 4, policy.name)
    assert header["sampling"] == {"guidance": 1.0, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    assert (header["model"], header["tokenizer"]) == (TARGET.info.model_hash, TARGET.info.tokenizer_hash)
    assert header["versions"]["protocol"] == PROTOCOL_VERSION
    assert set(header["versions"]) == {"pixdraft", "protocol", "python", "numpy"}
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]
    for line in path.read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_no_trace_holds_the_bearer_token(tmp_path: Path) -> None:
    with BackgroundServer(TARGET, ServiceConfig(port=0, token="open-sesame-42")) as server:
        session = DeviceSession(TableDraft(TARGET), WebSocketConnector(server.url, "open-sesame-42"))
        picture = asyncio.run(session.draw(DrawRequest("xx", 4)))
    write_trace(tmp_path / "a.jsonl", picture)
    assert "sesame" not in (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    assert "sesame" not in repr(picture)


def test_broken_traces_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(TraceError, match=r"a\.jsonl cannot be read as a trace"):
        read_trace(path)
    write_trace(path, draw(CiarPolicy(tau=0.6)))
    lines = path.read_text(encoding="utf-8").splitlines()
    for broken, sentence in [
        ([], "is no trace"),
        (lines[1:], "is no trace"),
        (["no json"], "line 1, is no line of a trace"),
        (lines[:-1], "ends too early"),
        ([lines[0], lines[1][:20], *lines[2:]], "line 2, is no line of a trace"),
        ([lines[0], lines[1].replace('"kept"', '"guessed"').replace('"injected"', '"guessed"'), *lines[2:]], "line 2"),
        ([*lines[:-1], lines[-1].replace('"up"', '"sideways"')], "neither a token nor a frame"),
        ([lines[0].replace('"format": 1', '"format": 9'), *lines[1:]], "has trace format 9, this version reads 1"),
    ]:
        path.write_text("\n".join(broken), encoding="utf-8")
        with pytest.raises(TraceError, match=sentence):
            read_trace(path)


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*a\.jsonl .*: choose another place"):
        write_trace(tmp_path / "none" / "a.jsonl", draw(CiarPolicy(tau=0.6)))
    assert not list(tmp_path.iterdir())
