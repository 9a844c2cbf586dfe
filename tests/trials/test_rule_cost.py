"""What a rule costs: every part is timed in turn, and does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pixdraft.decoding.ratio_rules import CSD
from pixdraft.models import acceptance
from pixdraft.models.config import LLAMAGEN
from pixdraft.trials import rule_cost
from pixdraft.trials.rule_cost import PARTS, PUBLISHED, Setting, measure, run, setting, shares
from tiny import SHAPE

TINY = Setting(SHAPE, block=4, first=5, rounds=3, warm=1)


def test_every_part_is_timed_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    parts = {name: (lambda name=name: order.append(name)) for name in PARTS}
    monkeypatch.setattr(rule_cost, "_parts", lambda given: parts)
    samples = measure(TINY)
    assert order == list(PARTS) * 4  # in turn; the first round is not kept
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(PARTS, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parts_make_up_the_rule(dtype: torch.dtype) -> None:
    parts = rule_cost._parts(Setting(SHAPE, block=4, first=5, dtype=dtype))
    with torch.inference_mode():
        q = parts["pass"]()
        assert q.shape == (4, SHAPE.vocab_size)
        assert q.dtype == torch.float32
        torch.testing.assert_close(q.sum(-1), torch.ones(4))
        torch.testing.assert_close(parts["pass"](), q)
        torch.testing.assert_close(parts["entropy"](), acceptance.entropy(q))
        torch.testing.assert_close(parts["filter"](), parts["csd"]())
        assert (parts["csd"]() >= parts["lossless"]()).all()
        assert ((parts["tv"]() > 0) & (parts["tv"]() < CSD().delta)).any()


def test_a_share_is_of_the_medians() -> None:
    samples = {"pass": [9.0, 10.0, 90.0], "entropy": [0.1] * 3, "tv": [0.2] * 3, "filter": [0.3] * 3}
    found = shares(samples | {"csd": [0.9] * 3, "lossless": [0.4] * 3})
    assert found["median_ms"]["pass"] == 10.0
    assert found["share"] == pytest.approx(0.06)
    assert found["added"] == pytest.approx(0.05)


def test_a_run_keeps_its_samples(tmp_path: Path) -> None:
    result = run(TINY, tmp_path / "new", "pixdraft evaluate rule-cost")
    kept = json.loads((tmp_path / "new" / "rule_cost.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(result))
    assert set(kept["samples_ms"]) == set(PARTS)
    assert all(value > 0 for values in kept["samples_ms"].values() for value in values)
    assert (kept["block"], kept["device"], kept["dtype"], kept["shape"]["dim"]) == (4, "cpu", "float32", SHAPE.dim)
    assert kept["published"] == PUBLISHED
    assert kept["made"]["command"] == "pixdraft evaluate rule-cost"


def test_settings_by_name() -> None:
    found = setting("XL", 16, 20, "cpu", "bfloat16")
    assert (found.shape, found.block, found.rows, found.rounds) == (LLAMAGEN["XL"], 16, 2, 20)
    assert found.shape.vocab_size == 16384
    for words, arguments in {
        "there is no shape 'XXS': the known ones are B, L": ("XXS", 16, 1, "cpu", "float32"),
        "there is no dtype 'int4'": ("B", 16, 1, "cpu", "int4"),
        "a block of 300 after 128 tokens leaves the picture's 256": ("B", 300, 1, "cpu", "float32"),
        "rounds is 0": ("B", 16, 0, "cpu", "float32"),
    }.items():
        with pytest.raises(ValueError, match=words):
            setting(*arguments)


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="the device 'cuda' is not there: take cpu"):
        setting("B", 16, 1, "cuda", "float32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert setting("B", 16, 1, "cuda:1", "float32").device == "cuda:1"
    with pytest.raises(ValueError, match="the device 'cuda:2' is not there"):
        setting("B", 16, 1, "cuda:2", "float32")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="the device 'mps' is not there: take cpu"):
        setting("B", 16, 1, "mps", "float32")


@pytest.mark.parametrize("device", ["foo", "meta", "cuda:", "cuda:x", "cpu:0", "cuda0", ""])
def test_a_device_of_no_known_kind_is_named(device: str) -> None:
    with pytest.raises(ValueError, match=f"there is no device '{device}': the known ones are cpu, cuda, cuda:N, mps"):
        setting("B", 16, 1, device, "float32")
