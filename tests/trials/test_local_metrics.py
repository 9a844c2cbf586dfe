"""Metrics over weights of the user's own: with packages made up for the test, since pixdraft installs none of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from pixdraft.trials import local_metrics
from pixdraft.trials.local_metrics import (
    ClipMetric,
    LocalError,
    captions,
    check,
    inception_metric,
    picture_files,
    read_pictures,
)
from pixdraft.trials.plan import Local
from pixdraft.trials.quality import Pictures

DIRECTIONS = {"right": (1.0, 0.0), "up": (0.0, 1.0), "left": (-1.0, 0.0)}


class FakeClip:
    """A CLIP model whose embedding of a picture is its first pixel's red and green, less the middle."""

    @classmethod
    def from_pretrained(cls, folder: Path, local_files_only: bool) -> FakeClip:
        assert local_files_only
        if not (folder / "model.safetensors").exists():
            raise OSError("no file named model.safetensors\nin the folder")
        return cls()

    def eval(self) -> FakeClip:
        return self

    def __call__(self, text: list[str], images: list[NDArray[np.uint8]]) -> Any:
        seen = torch.tensor([[float(image[0, 0, c]) - 100 for c in (0, 1)] for image in images])
        return SimpleNamespace(image_embeds=seen, text_embeds=torch.tensor([DIRECTIONS[word] for word in text]))


class FakeProcessor:
    @classmethod
    def from_pretrained(cls, folder: Path, local_files_only: bool) -> FakeProcessor:
        assert local_files_only
        return cls()

    def __call__(self, **given: Any) -> dict[str, Any]:
        assert given["return_tensors"] == "pt"
        assert given["padding"]
        assert given["truncation"]
        return {"text": given["text"], "images": given["images"]}


class FakeInception:
    """Features of a picture: its mean colour."""

    def __init__(self, name: str, features: list[str], weights: str) -> None:
        assert (name, features) == ("inception-v3-compat", ["2048"])
        if Path(weights).read_bytes() != b"weights":
            raise RuntimeError("not what torch saved\nat all")

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        assert pixels.dtype == torch.uint8
        return pixels.float().mean((2, 3))


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes: dict[str, dict[str, Any]] = {
        "transformers": {"CLIPModel": FakeClip, "CLIPProcessor": FakeProcessor, "__version__": "5.0"},
        "torchmetrics": {"__version__": "1.9"},
        "torchmetrics.image": {},
        "torchmetrics.image.fid": {"NoTrainInceptionV3": FakeInception},
        "torch_fidelity": {},
    }
    for name, content in fakes.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(local_metrics, "find_spec", lambda name: sys.modules.get(name))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A CLIP model's folder, as far as anybody looks."""
    place = tmp_path / "clip-tiny"
    place.mkdir()
    (place / "config.json").write_text("{}", encoding="utf-8")
    (place / "model.safetensors").write_bytes(b"some")
    return place


def pictures(*firsts: tuple[int, int]) -> NDArray[np.uint8]:
    pixels = np.zeros((len(firsts), 4, 4, 3), np.uint8)
    pixels[:, 0, 0, :2] = firsts
    return pixels


@pytest.mark.usefixtures("packages")
def test_a_clip_score_is_a_hundredfold_cosine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_metrics, "BATCH", 2)
    metric = ClipMetric("clip", folder)
    given = Pictures(pictures((200, 100), (200, 200), (200, 100)), ["right", "up", "left"])
    found = metric.measure({"AR": given, "JD": Pictures(given.pixels[:1], ["up"])}, "AR")
    assert found["AR"].each["clip"] == pytest.approx([100.0, 100 / 2**0.5, 0.0])
    assert found["AR"].means["clip"] == pytest.approx((100 + 100 / 2**0.5) / 3)
    assert found["JD"].means["clip"] == pytest.approx(0.0, abs=1e-6)
    assert metric.used["folder"] == "clip-tiny"
    assert metric.used["transformers"] == "5.0"
    before = metric.used["sha256"]
    (folder / "model.safetensors").write_bytes(b"other")
    assert ClipMetric("clip", folder).used["sha256"] != before


@pytest.mark.usefixtures("packages")
def test_a_folder_of_something_else_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    metric = ClipMetric("hpsv2", folder)
    with pytest.raises(LocalError, match=r"hpsv2: .* cannot be read as a CLIP model \(no file named model") as refused:
        metric.measure({}, "AR")
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("packages")
def test_inception_features_are_held_against_real_pictures(tmp_path: Path) -> None:
    weights = tmp_path / "inception.pth"
    weights.write_bytes(b"weights")
    rng = np.random.default_rng(1)
    real = rng.integers(0, 256, (60, 4, 4, 3), dtype=np.uint8)

    def parts() -> Iterator[NDArray[np.uint8]]:
        yield real[:50]
        yield real[50:]

    metric = inception_metric(weights, parts(), {"reference": "val2017"})
    found = metric.measure({"AR": Pictures(real[:20], ["x"] * 20)}, "AR")
    assert found["AR"].means["fid_precision"] == 1.0
    assert found["AR"].means["fid"] >= 0
    assert metric.used["file"] == "inception.pth"
    assert (metric.used["torchmetrics"], metric.used["reference"]) == ("1.9", "val2017")
    assert metric.used["reference_pictures"] == 60
    weights.write_bytes(b"else")
    with pytest.raises(LocalError, match=r"holds no weights of Inception \(not what torch saved\)"):
        inception_metric(weights, parts(), {})


@pytest.mark.usefixtures("packages")
def test_what_is_there_passes(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(b"weights")
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    check(Local(folder, folder, tmp_path / "w.pth", tmp_path))


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("local", "words"),
    [
        (Local(clip=Path("gone")), r"clip: gone holds no config\.json"),
        (Local(hpsv2=Path("gone")), r"hpsv2: gone holds no config\.json"),
        (Local(inception=Path("gone.pth")), r"inception: gone\.pth is no file"),
        (Local(pictures=Path("gone")), r"pictures: gone holds no \.jpeg, \.jpg, \.png, \.webp"),
    ],
)
def test_a_missing_place_is_named(local: Local, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        check(local)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("clip", "clip: transformers is not installed: run pip install transformers"),
        ("inception", "inception: torchmetrics is not installed: run pip install torchmetrics torch-fidelity"),
    ],
)
def test_a_missing_package_is_named(metric: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_metrics, "find_spec", lambda name: None)
    with pytest.raises(LocalError, match=words):
        check(Local(**{metric: folder}))


def test_pictures_are_brought_to_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_metrics, "BATCH", 2)
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    for name, pixels in {"a.png": wide, "b.JPG": wide[:, 10:20], "c.webp": 255 - wide}.items():
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("none of them", encoding="utf-8")
    parts = list(read_pictures(tmp_path, 5))
    assert [part.shape for part in parts] == [(2, 5, 5, 3), (1, 5, 5, 3)]
    assert parts[0].min() > 240  # the middle square of the first is white
    assert parts[1].max() < 60  # WebP is lossy
    assert [file.name for file in picture_files(tmp_path)] == ["a.png", "b.JPG", "c.webp"]


def test_captions_of_lines_and_of_coco(tmp_path: Path) -> None:
    lines = tmp_path / "prompts.txt"
    lines.write_text("a cat\n\n  a dog \nan owl\n", encoding="utf-8")
    assert captions(lines, 2) == ["a cat", "a dog"]
    coco = tmp_path / "captions_val2017.json"
    said = [(9, "third"), (2, " first "), (2, "first again"), (5, "second")]
    annotations = [{"image_id": i, "caption": words} for i, words in said]
    coco.write_text(json.dumps({"annotations": annotations}), encoding="utf-8")
    assert captions(coco, 3) == ["first", "second", "third"]
    with pytest.raises(LocalError, match="holds 3, and 4 are wanted: lower prompts"):
        captions(coco, 4)
    coco.write_text("[]", encoding="utf-8")
    with pytest.raises(LocalError, match=r"captions_val2017\.json cannot be read"):
        captions(coco, 1)
    with pytest.raises(LocalError, match=r"gone\.txt cannot be read"):
        captions(tmp_path / "gone.txt", 1)
