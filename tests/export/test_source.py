"""What is exported: prompts to judge it by, and a fingerprint that sees every weight."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pixdraft.export import prompts
from pixdraft.export.prompts import DEFAULT, prompts_of
from pixdraft.export.source import Source, load
from pixdraft.models.registry import ModelError, find
from pixdraft.training.sprites import held_out_names
from pixdraft.training.vocabulary import words
from tiny import SHAPE, networks


def described(model: Path, folder: Path, **fields: Any) -> Path:
    """A copy of the model folder with other fields."""
    copy = Path(shutil.copytree(model, folder / "copy"))
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return copy


def test_default_prompts_are_the_bundled_model_s_and_none_is_held_out() -> None:
    known, held = set(words()), {name.replace("-", " ") for name in held_out_names()}
    assert all(known.issuperset(prompt.split()) for prompt in DEFAULT)
    assert not [prompt for prompt in DEFAULT if prompt.split(" ", 1)[1].rsplit(" on ", 1)[0] in held]
    assert prompts_of(find("emoji"))


def test_a_model_s_own_prompts_come_first(model: Path, tmp_path: Path) -> None:
    assert prompts_of(find(model)) == DEFAULT
    copy = described(model, tmp_path, sample_prompts=["noto pear on mint"])
    assert load(copy).prompts == ("noto pear on mint",)


@pytest.mark.parametrize("named", [[], "noto pear", [1], [" "], {}])
def test_prompts_that_are_none(model: Path, tmp_path: Path, named: object) -> None:
    copy = described(model, tmp_path, sample_prompts=named)
    with pytest.raises(ModelError, match='add a field "sample_prompts" with a list of them'):
        prompts_of(find(copy))


def test_a_model_of_other_words_must_name_prompts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "DEFAULT", ("ein roter Apfel",))
    with pytest.raises(ModelError, match="an export is judged on prompts of the model"):
        prompts_of(find(model))


def test_the_fingerprint_sees_facts_and_weights(source: Source, model: Path) -> None:
    assert load(model).fingerprint == source.fingerprint
    assert replace(source, info=replace(source.info, guidance=3.0)).fingerprint != source.fingerprint
    for part in ("draft", "tokenizer"):
        parts = networks()
        other = Source(source.info, parts.draft, parts.tokenizer)
        before = other.fingerprint
        weight = next(getattr(parts, part).parameters())
        with torch.no_grad():
            weight.view(-1)[0] += 1e-3
        assert Source(source.info, parts.draft, parts.tokenizer).fingerprint != before


def test_layers_are_all_that_a_recipe_may_name(source: Source) -> None:
    assert source.network.config.layers == 1
    inside = ("attention.wqkv", "attention.wo", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2")
    heads = ("output", "radius", "risk.down", "risk.up", "message.feature", "message.bounds")
    assert source.layers == (*(f"layers.0.{name}" for name in inside), *heads)
    assert source.tables()["slots"].shape == (SHAPE.condition_length, SHAPE.dim)
