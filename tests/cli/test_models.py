"""The command line over real networks: a small model folder with random weights, whole and damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli_helpers import Run, facts, sentence
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.inter_head import Conditioning, DraftTransformer
from pixdraft.models.registry import load_target
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Transformer
from pixdraft.training.publish import publish
from pixdraft.training.vocabulary import CONDITION_LENGTH, words

SHAPE = TransformerConfig(
    dim=16, layers=2, heads=2, ffn_dim=32, vocab_size=16, grid=4, condition_length=CONDITION_LENGTH
)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=16, codebook_dim=4, norm_groups=4
)


def make(folder: Path, seed: int) -> Path:
    """A model folder of random weights."""
    torch.manual_seed(seed)
    shape = DraftTransformer.shape(SHAPE)
    draft = DraftTransformer(shape, WordCondition(len(words()), CONDITION_LENGTH, SHAPE.dim), bottleneck=4)
    target = Transformer(SHAPE, WordCondition(len(words()), CONDITION_LENGTH, SHAPE.dim))
    facts = {
        "name": "tiny",
        "guidance": 2.0,
        "draft": {"statistic": "risk", "thresholds": {"risk": [[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]]}},
    }
    publish(folder, VQTokenizer(PIXELS), target, Conditioning(4, SHAPE.dim), draft, facts, "a card: {hashes}")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "tiny", seed=1)


def truncate(folder: Path) -> str:
    file = folder / "target.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    return "target.safetensors is damaged"


def remove(folder: Path) -> str:
    (folder / "draft.safetensors").unlink()
    return "draft.safetensors is missing"


def swap(folder: Path) -> str:
    (folder / "tokenizer.safetensors").write_bytes((folder / "draft.safetensors").read_bytes())
    return "tokenizer.safetensors is damaged or not the file"


def cut_description(folder: Path) -> str:
    (folder / "config.json").write_text((folder / "config.json").read_text()[:50])
    return "config.json is not JSON"


def rewrite(folder: Path, **changes: object) -> None:
    description = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(description | changes))


def newer_format(folder: Path) -> str:
    rewrite(folder, format=99)
    return "update pixdraft"


def another_shape(folder: Path) -> str:
    rewrite(folder, transformer=SHAPE.to_dict() | {"dim": 32})
    return "does not fit config.json"


def impossible_shape(folder: Path) -> str:
    rewrite(folder, transformer=SHAPE.to_dict() | {"heads": 3})
    return "TransformerConfig.dim"


def test_a_model_folder_draws(run: Run, folder: Path) -> None:
    result = run("generate", "red apple on sky", "--model", folder, "--seed", 2)
    assert result.exit_code == 0, result.stderr
    said = facts(result.stdout)
    assert said["picture"].startswith("noto-red-apple-on-sky-2.png (8 x 8;")
    assert said["tokens"].startswith("16 by ciar")


def test_a_served_folder_draws_the_same_picture(run: Run, folder: Path) -> None:
    with BackgroundServer(load_target(folder)) as server:
        results = [
            run("generate", "red apple", "--model", folder, "--json", *more) for more in ((), ("--cloud", server.url))
        ]
    here, there = (json.loads(result.stdout) for result in results)
    assert here["statistics"]["counts"] == there["statistics"]["counts"]
    assert here["model"] == there["model"] == load_target(folder).info.model_hash


def test_a_prompt_with_no_known_word(run: Run, folder: Path) -> None:
    result = run("generate", "qwertz", "--style", "none", "--model", folder)
    assert result.exit_code == 2
    assert "no word of the prompt 'qwertz' is known" in sentence(result)


def test_a_server_of_another_model(run: Run, folder: Path, tmp_path: Path) -> None:
    with BackgroundServer(load_target(make(tmp_path / "other", seed=2))) as server:
        result = run("generate", "red apple", "--model", folder, "--cloud", server.url)
    assert result.exit_code == 1
    assert "the device's bundle was made for" in sentence(result)


@pytest.mark.parametrize("verb", ["generate", "serve"])
def test_a_folder_that_is_not_there(run: Run, verb: str) -> None:
    result = run(verb, *(["red apple"] if verb == "generate" else []), "--model", "nowhere")
    assert result.exit_code == 2
    assert "nowhere is neither a bundled model" in sentence(result)


@pytest.mark.parametrize(
    "damage", [truncate, remove, swap, cut_description, newer_format, another_shape, impossible_shape]
)
def test_a_damaged_folder_is_named(run: Run, folder: Path, damage: Callable[[Path], str]) -> None:
    named = damage(folder)
    result = run("generate", "red apple", "--model", folder, "--out", "apple.png")
    assert result.exit_code == 2
    assert named in sentence(result)
    assert not Path("apple.png").exists()
