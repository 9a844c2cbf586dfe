"""Where a relaxation acts: the watched picture is the cloud's own, and its numbers are the rule's."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fakes import TableTarget
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.decoding import sampling
from pixdraft.models.registry import load_target
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.backends.torch_backend import load_draft
from pixdraft.runtime.policies import create
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.trials import smoothness
from pixdraft.trials.methods import MethodError
from pixdraft.trials.relaxation import End, Relaxed, correlate, draw, roughness
from pixdraft.trials.relaxation_map import NOTHING, SCALE, draw_map, heat
from pixdraft.trials.smoothness import asked, run, verdicts


def request(rule: Rule, seed: int = 3) -> DrawRequest:
    return DrawRequest(
        "red apple on sky", seed, create("sjd", window=6, init="uniform"), rule, Sampling(guidance=2.0, top_k=12)
    )


@pytest.mark.parametrize("rule", [Rule(), Rule("csd", {"lam": 0.5, "delta": 0.65}), Rule("lantern", {"k": 3})])
def test_the_watched_picture_is_the_device_s(model: str, rule: Rule) -> None:
    target = load_target(model)
    wanted = request(rule)
    picture = asyncio.run(DeviceSession(load_draft(model), LocalCloud(target)).draw(wanted))
    watched = draw(target, wanted)
    np.testing.assert_array_equal(watched.tokens, picture.tokens)
    np.testing.assert_array_equal(watched.pixels, picture.pixels)
    assert watched.passes == 1 + picture.passes
    assert (End.RELAXED in watched.end) <= (rule.name != "lossless")


def test_every_number_is_the_rule_s() -> None:
    target = TableTarget()
    watched = draw(target, replace(request(Rule("csd", {"lam": 0.5, "delta": 0.65})), sampling=Sampling()))
    total = target.info.image_tokens
    assert len(watched.entropy) == len(watched.tv) == len(watched.end) == total
    opened = target.open("red apple on sky", 1.0)
    logits = np.concatenate([opened.logits[None], target.forward(watched.tokens[:-1], opened.cache)])
    np.testing.assert_allclose(watched.entropy, sampling.entropy(sampling.probabilities(logits)))
    np.testing.assert_array_equal(np.isnan(watched.tv), ~watched.judged)
    assert watched.accepted.sum() + (watched.end == End.CORRECTED).sum() == watched.judged.sum()
    assert np.nanmax(watched.tv) <= 1


def test_what_stands_by_the_relaxation_needs_it(model: str) -> None:
    target = load_target(model)
    ends = [draw(target, request(Rule("addition", {"epsilon": 1.0}), seed)).end for seed in range(3)]
    assert all(End.CORRECTED not in end for end in ends)  # everything is accepted
    assert any(End.RELAXED in end for end in ends)
    gate = [draw(target, request(Rule("csd", {"lam": 50.0, "delta": 0.3}), seed)) for seed in range(3)]
    for watched in gate:
        assert (watched.tv[watched.relaxed] < 0.3).all()


def test_only_sjd_is_watched() -> None:
    with pytest.raises(ValueError, match="the policy is 'cloud'"):
        draw(TableTarget(), DrawRequest("x", 0, create("cloud"), sampling=Sampling()))


def test_roughness_is_the_gradient_of_a_cell() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4, 4:] = np.arange(4, dtype=np.uint8)[:, None, None] * 10  # a ramp of 10 a row in the upper right cell
    found = roughness(pixels, 4)
    assert found.shape == (4,)
    assert found[2] == 0
    assert found[1] > 5
    assert roughness(np.full((8, 8, 3), 77, np.uint8), 4).tolist() == [0.0] * 4


def made_up(seed: int, smooth_accepts: bool) -> Relaxed:
    """A picture whose entropy rises with smoothness; so does acceptance, or it falls."""
    rng = np.random.default_rng(seed)
    rough = rng.uniform(0, 10, 64)
    entropy = 5 - 0.4 * rough + rng.normal(size=64) * 0.2
    stood = (rough < 5) == smooth_accepts
    end = np.where(stood, End.RELAXED, End.CORRECTED).astype(np.int64)
    end[:8] = End.BONUS
    tv = np.where(end == End.BONUS, np.nan, rng.uniform(size=64))
    pixels = np.zeros((16, 16, 3), np.uint8)
    return Relaxed(np.zeros(64, np.int64), pixels, entropy, tv, end, rough, 20)


@pytest.mark.parametrize("smooth_accepts", [True, False])
def test_the_claim_is_confirmed_or_refuted(smooth_accepts: bool) -> None:
    found = correlate([made_up(seed, smooth_accepts) for seed in range(12)])
    assert found["entropy"]["mean"] > 0.9
    assert abs(found["tv"]["mean"]) < 0.2
    assert found["accepted"]["mean"] == found["relaxed"]["mean"] == float(smooth_accepts)
    bands = found["bands"]
    assert [band["roughness"] for band in bands] == sorted(band["roughness"] for band in bands)
    assert bands[0]["accepted"] == float(smooth_accepts)
    sentences = verdicts(found)
    assert sentences[0].startswith("smooth regions have a higher entropy: confirmed")
    assert ("undecided" in sentences[1]) == (abs(found["tv"]["mean"]) < 2 * found["tv"]["error"])
    word = "confirmed" if smooth_accepts else "refuted"
    assert sentences[2].startswith(f"smooth regions accept more: {word}")


def test_one_picture_decides_nothing() -> None:
    assert all("undecided (too few pictures)" in line for line in verdicts(correlate([made_up(1, True)])))


def test_heat_goes_from_dark_to_light() -> None:
    seen = heat(np.array([0.0, 0.5, 1.0, 2.0, np.nan]), 0.0, 1.0)
    assert seen.tolist() == [*SCALE[[0, 2, 4, 4]].astype(int).tolist(), list(NOTHING)]


def test_the_map_shows_four_panels(tmp_path: Path) -> None:
    draw_map(made_up(1, True), "a title", tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as image:
        assert image.size == (4 * 336 + 16, 446)
        pixels = np.asarray(image)
    cell = pixels[30 + 10, 3 * 336 + 16 + 10]
    assert tuple(cell) == NOTHING  # no draft was judged at the first position
    assert tuple(pixels[30 + 10, 16 + 10]) == (0, 0, 0)


def test_a_run_leaves_a_map_rows_and_verdicts(model: str, tmp_path: Path) -> None:
    pictures = [("red apple on sky", 3), ("noto cat on mint", 1)]
    result = run("sjd:init=uniform,window=6 + csd", pictures, model, tmp_path / "out", "the command")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        f"relaxation{ending}" for ending in (".json", ".png", ".rows.jsonl")
    ]
    kept = json.loads((tmp_path / "out" / "relaxation.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(result))
    assert kept["shown"] == {"prompt": "red apple on sky", "seed": 3}
    assert len(kept["verdicts"]) == 4
    lines = (tmp_path / "out" / "relaxation.rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [(row["prompt"], row["seed"]) for row in rows] == pictures
    assert kept["passes"] == np.mean([row["passes"] for row in rows])
    for row in rows:
        assert [value is None for value in row["tv"]] == [end == "bonus" for end in row["end"]]


def test_a_run_takes_the_policy_sjd_alone(model: str, tmp_path: Path) -> None:
    with pytest.raises(
        MethodError, match="'speculative' judges no guesses of the target's own: take one of the policy"
    ):
        run("speculative", [("red apple", 0)], model, tmp_path / "out", "")
    assert not (tmp_path / "out").exists()


def test_the_first_picture_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothness, "prompts", lambda data, n: ([f"p{i}" for i in range(n)], [], list(range(n))))
    assert asked(Path("run"), 3, None, 7) == [("p0", 7), ("p1", 1), ("p2", 2)]
    assert asked(Path("run"), 2, "cat", 0) == [("cat", 0), ("p1", 1)]
    monkeypatch.undo()
    assert asked(Path("no folder is needed"), 1, "cat", 4) == [("cat", 4)]
