"""Many pictures in shards: drawn once, resumed where they were stopped, never mixed with those of another job."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.models.registry import load_target
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.backends.torch_backend import load_draft
from pixdraft.runtime.lock import hold
from pixdraft.runtime.picture import Decision
from pixdraft.runtime.policies import CiarPolicy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.trials.draw_many import Method, draw_all, draw_many
from pixdraft.trials.shards import Shard
from tiny import Networks, networks, write_folder

module = importlib.import_module("pixdraft.trials.draw_many")
CIAR = Method("ciar", "ciar", {"rate": 0.5}, {"rho": 0.1, "draft_top_k": 6})
PROMPTS = ["noto cat on sky", "red apple", "fluent sun on navy", "owl on mint", "twemoji fox"]
SEEDS = [0, 1, 2, 3, 4]


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """File names of the shards that were drawn, two pictures each."""
    drawn: list[str] = []
    draw = module._draw_shard

    def counted(shard: Shard) -> Shard:
        drawn.append(shard.file.name)
        done: Shard = draw(shard)
        return done

    monkeypatch.setattr(module, "_draw_shard", counted)
    monkeypatch.setattr(module, "SHARD", 2)
    return drawn


def test_pictures_are_those_of_a_session(model: str, tmp_path: Path, shards: list[str]) -> None:
    drawn = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    assert shards == ["0000.npz", "0001.npz", "0002.npz"]
    assert drawn.pixels.shape == (5, 8, 8, 3)
    assert drawn.pixels.dtype == np.uint8
    assert (drawn.tokens.shape, drawn.decisions.shape) == ((5, 16), (5, 16))
    session = DeviceSession(load_draft(model), LocalCloud(load_target(model)))
    for i, (prompt, seed) in enumerate(zip(PROMPTS, SEEDS, strict=True)):
        request = DrawRequest(prompt, seed, CiarPolicy(rate=0.5), rho=0.1, draft_top_k=6)
        picture = asyncio.run(session.draw(request))
        np.testing.assert_array_equal(drawn.tokens[i], picture.tokens)
        np.testing.assert_array_equal(drawn.pixels[i], picture.pixels)
        assert tuple(drawn.decisions[i]) == picture.decisions
        row = drawn.rows[i]
        assert row["counts"] == {d.value: picture.statistics.counts[d] for d in Decision}
        assert row["asked_share"] == picture.statistics.asked_share
        assert row["counts"]["injected"] == 1


def test_a_stopped_job_goes_on(model: str, tmp_path: Path, shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "whole", workers=1)
    shards.clear()
    counted = module._draw_shard

    def stopped(shard: Shard) -> Shard:
        if shard.file.name == "0001.npz":
            raise KeyboardInterrupt
        done: Shard = counted(shard)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(module, "_draw_shard", stopped)
        with pytest.raises(KeyboardInterrupt):
            draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "part", workers=1)
    assert shards == ["0000.npz"]
    resumed = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "part", workers=1)
    assert shards == ["0000.npz", "0001.npz", "0002.npz"]
    again = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "part", workers=1)
    assert len(shards) == 3
    for other in (resumed, again):
        np.testing.assert_array_equal(other.tokens, whole.tokens)
        np.testing.assert_array_equal(other.pixels, whole.pixels)
        np.testing.assert_array_equal(other.decisions, whole.decisions)
        assert [row["counts"] for row in other.rows] == [row["counts"] for row in whole.rows]
    assert sorted(file.name for file in (tmp_path / "part" / "ciar").iterdir()) == [
        "0000.npz",
        "0001.npz",
        "0002.npz",
        "job.json",
    ]


@pytest.mark.parametrize("what", ["prompts", "seeds", "parameters", "request", "policy", "model"])
def test_another_job_is_refused(model: str, parts: Networks, tmp_path: Path, shards: list[str], what: str) -> None:
    draw_many(model, CIAR, PROMPTS[:2], SEEDS[:2], tmp_path, workers=1)
    job: dict[str, Any] = {"model": model, "method": CIAR, "prompts": PROMPTS[:2], "seeds": SEEDS[:2]}
    changes: dict[str, dict[str, Any]] = {
        "prompts": {"prompts": PROMPTS[1:3]},
        "seeds": {"seeds": [0, 7]},
        "parameters": {"method": replace(CIAR, parameters={"rate": 0.4})},
        "request": {"method": replace(CIAR, request={})},
        "policy": {"method": Method("ciar", "device")},
        "model": {"model": str(write_folder(tmp_path / "other", networks(seed=2))) if what == "model" else model},
    }
    with pytest.raises(ValueError, match="holds pictures of another model, method or prompts: delete it to draw anew"):
        draw_many(folder=tmp_path, workers=1, **(job | changes[what]))
    assert shards == ["0000.npz"]


def test_methods_lie_beside_each_other(model: str, tmp_path: Path, shards: list[str]) -> None:
    sampling = {"guidance": 1.0, "top_k": 5}
    rule = {"name": "csd", "parameters": {"lam": 0.5, "delta": 0.65}}
    other = Method("csd", "speculative", {"gamma": 3}, {"sampling": sampling, "rule": rule})
    draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1)
    drawn = draw_many(model, other, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["ciar", "csd"]
    session = DeviceSession(load_draft(model), LocalCloud(load_target(model)))
    request = DrawRequest(
        PROMPTS[0],
        0,
        SpeculativePolicy(gamma=3),
        Rule("csd", {"lam": 0.5, "delta": 0.65}),
        Sampling(guidance=1.0, top_k=5),
    )
    np.testing.assert_array_equal(drawn.tokens[0], asyncio.run(session.draw(request)).tokens)


def test_more_prompts_go_on_from_there(model: str, tmp_path: Path, shards: list[str]) -> None:
    draw_many(model, CIAR, PROMPTS[:3], SEEDS[:3], tmp_path / "grown", workers=1)
    shards.clear()
    grown = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "grown", workers=1)
    assert shards == ["0001.npz", "0002.npz"]  # the second held one picture of two
    shards.clear()
    fewer = draw_many(model, CIAR, PROMPTS[:3], SEEDS[:3], tmp_path / "grown", workers=1)
    assert shards == []
    whole = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "whole", workers=1)
    np.testing.assert_array_equal(grown.tokens, whole.tokens)
    np.testing.assert_array_equal(fewer.tokens, whole.tokens[:3])
    assert [len(drawn.rows) for drawn in (grown, fewer)] == [5, 3]


def test_methods_take_turns(model: str, tmp_path: Path, shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    counted = module._draw_shard

    def noted(shard: Shard) -> Shard:
        order.append(f"{shard.method.label} {shard.file.name}")
        done: Shard = counted(shard)
        return done

    monkeypatch.setattr(module, "_draw_shard", noted)
    device = Method("device", "device")
    both = draw_all(model, [CIAR, device], PROMPTS[:3], SEEDS[:3], tmp_path, workers=1)
    assert order == [f"{label} {file}" for file in ("0000.npz", "0001.npz") for label in ("ciar", "device")]
    alone = draw_many(model, device, PROMPTS[:3], SEEDS[:3], tmp_path, workers=1)
    assert len(shards) == 4
    np.testing.assert_array_equal(both[1].tokens, alone.tokens)


def test_a_stop_within_a_shard_keeps_what_is_drawn(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, asked = DeviceSession.draw, []

    async def until(self: DeviceSession, request: DrawRequest, progress: Any = None) -> Any:
        asked.append(request.seed)
        if asked == [0, 1, 2]:
            raise KeyboardInterrupt
        return await draw(self, request, progress)

    monkeypatch.setattr(DeviceSession, "draw", until)
    with pytest.raises(KeyboardInterrupt):
        draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    resumed = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    assert asked == [0, 1, 2, 2, 3, 4]
    assert len(resumed.rows) == 5
    whole = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / "whole", workers=1)
    np.testing.assert_array_equal(resumed.tokens, whole.tokens)
    np.testing.assert_array_equal(resumed.pixels, whole.pixels)


@pytest.mark.skipif(sys.platform == "win32", reason="no such lock there")
def test_two_cannot_draw_into_one_folder(model: str, tmp_path: Path) -> None:
    draw_many(model, CIAR, PROMPTS[:2], SEEDS[:2], tmp_path, workers=1)
    with hold(tmp_path / ".lock", RuntimeError()):
        with pytest.raises(ValueError, match=r"another process draws into .*: wait for it, or take another folder"):
            draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
        assert len(draw_many(model, CIAR, PROMPTS[:2], SEEDS[:2], tmp_path, workers=1).rows) == 2


def test_fewer_prompts_take_nothing_away(model: str, tmp_path: Path) -> None:
    whole = draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    held = (tmp_path / "ciar" / "0000.npz").read_bytes()
    part = Shard(model, CIAR, PROMPTS[:2], SEEDS[:2], tmp_path / "ciar" / "0000.npz")
    few = part.read()
    assert few is not None
    part.write(few)
    assert (tmp_path / "ciar" / "0000.npz").read_bytes() == held
    np.testing.assert_array_equal(few.tokens, whole.tokens[:2])


def _without(file: Path, **changed: Any) -> None:
    with np.load(file) as kept:
        arrays = {name: kept[name] for name in kept}
    np.savez(file, **{name: value for name, value in (arrays | changed).items() if value is not None})


DAMAGE: dict[str, Any] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "garbage": lambda file: file.write_bytes(b"garbage" * 99),
    "no rows": lambda file: _without(file, rows=None),
    "rows that are none": lambda file: _without(file, rows=np.array("{]")),
    "rows of numbers": lambda file: _without(file, rows=np.array("[1, 2, 3, 4, 5]")),
    "fewer rows": lambda file: _without(file, rows=np.array("[]")),
    "asked for nothing": lambda file: _without(file, asked=np.array("[]")),
    "other pixels": lambda file: _without(file, pixels=np.zeros((5, 2, 8, 3), np.uint8)),
    "fewer tokens": lambda file: _without(file, tokens=np.zeros((4, 16), np.int64)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_named(model: str, tmp_path: Path, what: str) -> None:
    draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    file = tmp_path / "ciar" / "0000.npz"
    DAMAGE[what](file)
    held = file.read_bytes()
    with pytest.raises(ValueError, match=r"0000\.npz is damaged .*: delete it, and its pictures are drawn anew"):
        draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1)
    assert file.read_bytes() == held
    file.unlink()
    assert len(draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path, workers=1).rows) == 5


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"model"'])
def test_a_damaged_description(model: str, tmp_path: Path, content: bytes) -> None:
    draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1)
    (tmp_path / "ciar" / "job.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"job\.json is damaged: delete .*ciar, and its pictures are drawn anew"):
        draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1)
    (tmp_path / "ciar" / "0000.npz").unlink()
    assert len(draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1).rows) == 1


def test_it_is_known_how_many_drew_at_once(model: str, tmp_path: Path) -> None:
    draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1)
    with np.load(tmp_path / "ciar" / "0000.npz") as kept:
        assert json.loads(str(kept["asked"])) == [[PROMPTS[0], 0]]
        assert kept["workers"] == 1
    _without(tmp_path / "ciar" / "0000.npz", workers=np.array(2))
    assert draw_many(model, CIAR, PROMPTS[:1], SEEDS[:1], tmp_path, workers=1).workers == 2


@pytest.mark.slow
def test_workers_draw_the_same(model: str, tmp_path: Path) -> None:
    one, two = (draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / str(n), workers=n) for n in (1, 2))
    np.testing.assert_array_equal(one.tokens, two.tokens)
    np.testing.assert_array_equal(one.pixels, two.pixels)
