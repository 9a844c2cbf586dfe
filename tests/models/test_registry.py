"""Model folders: whole ones load as they were written, damaged ones are refused by the name of the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pixdraft.models import registry
from pixdraft.models.eagle import Eagle
from pixdraft.models.registry import ModelError
from pixdraft.runtime.backends.torch_backend import load_draft
from tiny import BOTTLENECK, GUIDANCE, PIXELS, SHAPE, THRESHOLDS, Networks, frozen, write_folder

FILES = ("tokenizer", "target", "draft")


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(published, tmp_path / "copy"))


def refusal(folder: Path) -> str:
    """The sentence with which loading both halves is refused."""

    def load() -> None:
        registry.load_target(folder)
        load_draft(folder)

    with pytest.raises(ModelError) as caught:
        load()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert ": " in sentence, "a mend follows the colon"
    return sentence


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the description."""
    file = folder / "config.json"
    description = json.loads(file.read_text(encoding="utf-8"))
    change(description)
    file.write_text(json.dumps(description), encoding="utf-8")


def test_a_folder_tells_what_it_holds(published: Path) -> None:
    found = registry.find(published)
    assert found.transformer == SHAPE
    assert found.tokenizer == PIXELS
    assert found.words[:3] == ["noto", "fluent", "twemoji"]
    assert found.draft == {"layers": 1, "bottleneck": BOTTLENECK, "statistic": "risk", "thresholds": THRESHOLDS}
    info = found.info
    assert (info.name, info.vocab_size, info.image_tokens) == ("tiny", 16, 16)
    assert (info.bottleneck, info.guidance) == (BOTTLENECK, GUIDANCE)
    assert (info.model_hash, info.tokenizer_hash) == (found.hash("target"), found.hash("tokenizer"))


def test_both_halves_load_as_they_were_written(published: Path, parts: Networks) -> None:
    target, draft = registry.load_target(published), load_draft(published)
    pairs = (
        (target.decoder, parts.target),
        (target.conditioning, parts.conditioning),
        (target.tokenizer, parts.tokenizer),
        (draft.network, parts.draft),
        (draft.tokenizer, parts.tokenizer),
    )
    for loaded, written in pairs:
        assert not loaded.training
        state = loaded.state_dict()
        assert set(state) == set(written.state_dict())
        for name, value in written.state_dict().items():
            assert state[name].dtype == torch.float32
            assert torch.equal(state[name], value.half().float()), name
    assert draft.info.thresholds == {"risk": [(0.1, 0.9), (0.5, 0.5), (0.9, 0.1)]}
    assert draft.info.model_hash == target.info.model_hash


def test_a_drafter_is_there_where_the_description_names_one(published: Path, parts: Networks, tmp_path: Path) -> None:
    assert not registry.find(published).has_eagle
    assert registry.load_target(published).drafter is None
    eagle = frozen(Eagle(SHAPE))
    folder = write_folder(tmp_path / "with", replace(parts, eagle=eagle))
    drafter = registry.load_target(folder).drafter
    assert drafter is not None
    for name, value in eagle.state_dict().items():
        assert torch.equal(drafter.network.state_dict()[name], value.half().float()), name
    assert registry.find(folder).info == registry.find(published).info  # devices need not know
    file = folder / "eagle.safetensors"
    file.write_bytes(cut(file.read_bytes()))
    assert refusal(folder).startswith(f"{file} is damaged or not the file that config.json describes: ")
    file.unlink()
    assert refusal(folder) == f"{file} is missing: restore the model folder"
    rewrite(folder, lambda d: d["files"].pop("eagle.safetensors"))
    assert registry.load_target(folder).drafter is None


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_a_folder_without_a_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"is neither a bundled model \(emoji\) nor a folder with a config\.json"):
        registry.find(place)


@pytest.mark.parametrize("part", FILES)
def test_a_missing_file(folder: Path, part: str) -> None:
    file = folder / f"{part}.safetensors"
    file.unlink()
    assert refusal(folder) == f"{file} is missing: restore the model folder"


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def empty(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [cut, flip, empty])
@pytest.mark.parametrize("part", FILES)
def test_a_damaged_file(folder: Path, part: str, damage: Callable[[bytes], bytes]) -> None:
    file = folder / f"{part}.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    assert refusal(folder).startswith(f"{file} is damaged or not the file that config.json describes: ")


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format(folder: Path, number: object) -> None:
    rewrite(folder, lambda d: d.update(format=number))
    assert refusal(folder) == f"{folder / 'config.json'} is not of format 1, which this version reads: update pixdraft"


@pytest.mark.parametrize("content", [b"", b'{"format": 1', b"\xff\xfe", b"{]"])
def test_a_description_that_is_no_json(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert refusal(folder).startswith(f"{folder / 'config.json'} is not JSON (")


@pytest.mark.parametrize("content", ["[]", "1", "null"])
def test_a_description_that_is_no_object(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    assert "config.json is not of format 1" in refusal(folder)


@pytest.mark.parametrize("field", ["name", "guidance", "transformer", "tokenizer", "words", "draft", "files"])
def test_a_field_that_is_missing_or_of_another_kind(folder: Path, field: str) -> None:
    rewrite(folder, lambda d: d.update({field: True}))
    where = folder / "config.json"
    assert refusal(folder) == f"{where} holds no usable value in the field {field!r}: export the folder again"
    rewrite(folder, lambda d: d.pop(field))
    assert refusal(folder) == f"{where} has no field {field!r}: export the folder again"


@pytest.mark.parametrize("field", ["layers", "bottleneck", "statistic", "thresholds"])
def test_a_missing_fact_of_the_draft(folder: Path, field: str) -> None:
    rewrite(folder, lambda d: d["draft"].pop(field))
    assert refusal(folder) == f"{folder / 'config.json'} has no field 'draft.{field}': export the folder again"


@pytest.mark.parametrize("part", FILES)
def test_a_missing_hash(folder: Path, part: str) -> None:
    rewrite(folder, lambda d: d["files"].pop(f"{part}.safetensors"))
    assert f"config.json names no hash for {part}.safetensors: " in refusal(folder)


@pytest.mark.parametrize(("shape", "kind"), [("transformer", "TransformerConfig"), ("tokenizer", "VQConfig")])
def test_a_shape_that_cannot_be(folder: Path, shape: str, kind: str) -> None:
    rewrite(folder, lambda d: d[shape].update(colour=1))
    assert refusal(folder).startswith(f"{folder / 'config.json'}: {kind} has no field 'colour': remove it")
    field = "dim" if shape == "transformer" else "channels"
    rewrite(folder, lambda d: (d[shape].pop("colour"), d[shape].pop(field)))
    assert refusal(folder).startswith(f"{folder / 'config.json'}: {kind} lacks the field '{field}': add it")
    rewrite(folder, lambda d: d[shape].update({field: -3}))
    assert refusal(folder).startswith(f"{folder / 'config.json'}: {kind}.{field} must be a whole number")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda d: d["transformer"].update(dim=16), "target"),
        (lambda d: d["transformer"].update(layers=1), "target"),
        (lambda d: d["words"].append("more"), "target"),
        (lambda d: d["draft"].update(bottleneck=5), "target"),
        (lambda d: d["draft"].update(layers=2), "draft"),
        (lambda d: d["tokenizer"].update(codebook_size=8), "tokenizer"),
    ],
)
def test_a_description_of_other_weights(folder: Path, change: Callable[[dict[str, Any]], object], part: str) -> None:
    rewrite(folder, change)
    assert refusal(folder).startswith(f"{folder / part}.safetensors does not fit config.json: ")
