"""Many pictures in shards: drawn once, resumed where they were stopped, never mixed with those of another job."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.models.registry import load_target
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.backends.torch_backend import load_draft
from pixdraft.runtime.picture import Decision
from pixdraft.runtime.policies import CiarPolicy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.trials.draw_many import Method, Shard, draw_all, draw_many
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


@pytest.mark.slow
def test_workers_draw_the_same(model: str, tmp_path: Path) -> None:
    one, two = (draw_many(model, CIAR, PROMPTS, SEEDS, tmp_path / str(n), workers=n) for n in (1, 2))
    np.testing.assert_array_equal(one.tokens, two.tokens)
    np.testing.assert_array_equal(one.pixels, two.pixels)
