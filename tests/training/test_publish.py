"""Model folders as they are written: whole, in place of an older one, in place of nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from pixdraft.models.registry import find, load_draft_transformer, load_target
from pixdraft.training.card import model_card
from pixdraft.training.packages import PACKAGES
from pixdraft.training.sprites import held_out_names
from pixdraft.training.vocabulary import words
from tiny import BOTTLENECK, PIXELS, SHAPE, THRESHOLDS, Networks, networks, write_folder

FILES = ["MODEL_CARD.md", "config.json", "draft.safetensors", "target.safetensors", "tokenizer.safetensors"]


@pytest.fixture(scope="module")
def parts() -> Networks:
    return networks()


@pytest.fixture
def folder(parts: Networks, tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny", parts)


def test_a_folder_is_written_whole(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert [file.name for file in folder.parent.iterdir()] == ["tiny"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["format"] == 1
    assert config["transformer"] == SHAPE.to_dict()
    assert config["tokenizer"] == PIXELS.to_dict()
    assert config["words"] == words()
    assert config["draft"] == {"layers": 1, "bottleneck": BOTTLENECK, "statistic": "risk", "thresholds": THRESHOLDS}
    for name, digest in config["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert f"- `{name}`: `{digest}`" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_weights_are_half_precision_exactly(folder: Path, parts: Networks) -> None:
    """What is loaded is what was trained, rounded to float16 once; publishing it again changes no byte."""
    target, draft = load_target(folder), load_draft_transformer(find(folder))
    for loaded, written in ((target.decoder, parts.target), (draft, parts.draft), (target.tokenizer, parts.tokenizer)):
        for (name, value), trained in zip(loaded.state_dict().items(), written.state_dict().values(), strict=True):
            assert torch.equal(value, trained.half().float()), name
    hashes = find(folder).config["files"]
    again = Networks(target.tokenizer, target.decoder, target.conditioning, draft)
    assert find(write_folder(folder, again)).config["files"] == hashes


def test_another_model_takes_the_older_one_s_place(folder: Path) -> None:
    before = find(folder).info.model_hash
    (folder / "left-over.txt").write_text("old")
    write_folder(folder, networks(seed=2))
    assert find(folder).info.model_hash != before
    assert sorted(file.name for file in folder.iterdir()) == FILES


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, parts: Networks) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is no model folder: give another one, or empty it"):
        write_folder(tmp_path, parts)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_may_be_filled(tmp_path: Path, parts: Networks) -> None:
    (tmp_path / "new").mkdir()
    assert find(write_folder(tmp_path / "new", parts)).info.name == "tiny"


def test_the_card_says_what_the_weights_stand_on() -> None:
    phi = [{"none": 9.0, "width 32": 9.0}] + [{"none": 0.5, "width 32": 0.25}] * 20
    stages = ("tokenizer", "target", "draft")
    card = model_card({s: {"steps": 3, "of": {s: 1}} for s in stages}, {s: {"loss": 1.5} for s in stages}, phi)
    for package in PACKAGES:
        assert f"| {package.package} | {package.version} | {package.licence} |" in card
    assert ", ".join(held_out_names()) in card
    assert "none 0.5000, width 32 0.2500" in card
    assert '| draft | `{"steps": 3, "of": {"draft": 1}}` | `{"loss": 1.5}` |' in card
    assert card.count("{hashes}") == 1
