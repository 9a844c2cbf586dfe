"""Training a target further from a model's weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pixdraft.models.registry import ModelError, find, load_transformer
from pixdraft.training import recipes
from pixdraft.training.corpus import fingerprint
from pixdraft.training.train_target import TargetRecipe, new_target
from tiny import PIXELS, SHAPE, networks, write_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny", networks())


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, TargetRecipe, str]]:
    """What would be trained: seed of the scenes, recipe, and the fingerprint of the weights it begins from."""
    calls: list[tuple[int, TargetRecipe, str]] = []

    def train(folder, stream, tokenizer, config, recipe, weights):  # type: ignore[no-untyped-def]
        network = new_target(SHAPE)
        if weights is not None:
            network.load_state_dict(weights)
        calls.append((stream, recipe, fingerprint(network) if weights is not None else ""))

    monkeypatch.setattr(recipes, "train_target", train)
    monkeypatch.setattr(recipes, "_stream", lambda folder, seed, **_: seed)
    monkeypatch.setattr(recipes, "VQConfig", lambda: PIXELS)
    return calls


def test_a_target_begins_from_a_model(
    model: Path, tmp_path: Path, trained: list[tuple[int, TargetRecipe, str]]
) -> None:
    run = tmp_path / "run"
    recipes.target(run, str(model))
    decoder, _ = load_transformer(find(model))
    seed, recipe, began = trained[0]
    assert began == fingerprint(decoder)
    assert recipe.begun_from == find(model).info.model_hash
    assert seed != 2, "the scenes must be new ones"
    recipes.target(run, str(model))  # the adopted tokenizer is the model's own
    assert len(trained) == 2


def test_the_tokenizer_is_adopted(model: Path, tmp_path: Path, trained: list[object]) -> None:
    recipes.target(tmp_path / "run", str(model))
    own = recipes.load_tokenizer(tmp_path / "run")
    published = networks().tokenizer
    assert all(torch.equal(a.half(), b.half()) for a, b in zip(own.parameters(), published.parameters(), strict=True))


def test_another_tokenizer_is_refused(model: Path, tmp_path: Path, trained: list[object]) -> None:
    recipes.target(tmp_path / "run", str(write_folder(tmp_path / "other", networks(seed=2))))
    with pytest.raises(ValueError, match="made with another tokenizer"):
        recipes.target(tmp_path / "run", str(model))


def test_a_missing_model_is_named(tmp_path: Path, trained: list[object]) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        recipes.target(tmp_path / "run", "nowhere")
    assert not trained
