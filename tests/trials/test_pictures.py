"""How pictures are judged: a gallery of every name in every style, a floor, and means of what was counted."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pixdraft.training import recipes
from pixdraft.training import sprites as sprite_files
from pixdraft.training.packages import STYLES
from pixdraft.training.sprites import Sprites, held_out_names
from pixdraft.trials import guidance, pictures
from pixdraft.trials.draw_many import Method
from pixdraft.trials.features import FeatureError, Features
from pixdraft.trials.pictures import GALLERY_VIEWS, Judge, prompts
from pixdraft.trials.shards import Drawn
from pixdraft.trials.sheets import sheet
from rows import counted
from tiny import Networks

NAMES = ("cat", "dog", "fox", held_out_names()[0], "owl")


class CentreColour:
    """Features that the tests can foresee: the mean colour of the middle, where every sprite reaches."""

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
        return np.asarray(pixels[:, 30:34, 30:34].mean((1, 2)), np.float64)


@pytest.fixture
def coloured(monkeypatch: pytest.MonkeyPatch) -> Sprites:
    """Sprites of one colour each: red and green by name, blue by style."""
    pixels = np.full((len(STYLES), len(NAMES), 8, 8, 4), 255, np.uint8)
    for name in range(len(NAMES)):
        angle = np.pi / 2 * name / (len(NAMES) - 1)
        pixels[:, name, :, :, 0] = 230 * np.cos(angle)
        pixels[:, name, :, :, 1] = 230 * np.sin(angle)
    for style in range(len(STYLES)):
        pixels[style, ..., 2] = 20 * style
    loaded = Sprites(NAMES, pixels)
    monkeypatch.setattr(sprite_files, "load", lambda folder: loaded)
    monkeypatch.setattr(pictures, "Features", CentreColour)
    return loaded


@pytest.mark.usefixtures("coloured")
def test_the_gallery_shows_every_name_in_every_style(tmp_path: Path) -> None:
    judge = Judge(tmp_path, reference=10)
    blue = np.rint(judge.gallery[:, 2] / 20).astype(int)
    shown = Counter(zip(judge.gallery_names, (STYLES[b] for b in blue), strict=True))
    assert shown == {(name, style): GALLERY_VIEWS for name in NAMES for style in STYLES}


@pytest.mark.usefixtures("coloured")
def test_a_judge_s_features_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Judge(tmp_path, reference=10)

    def never(self: CentreColour, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
        raise AssertionError("the features lie in the folder")

    monkeypatch.setattr(CentreColour, "__call__", never)
    again = Judge(tmp_path, reference=10)
    np.testing.assert_array_equal(again.gallery, first.gallery)
    np.testing.assert_array_equal(again.reference, first.reference)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("coloured")
@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_features_that_cannot_be_read_are_made_again(tmp_path: Path, content: bytes) -> None:
    first = Judge(tmp_path, reference=10)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    again = Judge(tmp_path, reference=10)
    np.testing.assert_array_equal(again.gallery, first.gallery)
    assert len(file.read_bytes()) > 100


@pytest.mark.usefixtures("coloured")
def test_rendered_scenes_are_the_floor(tmp_path: Path) -> None:
    judge = Judge(tmp_path, reference=60)
    floor = judge.floor(60)
    assert floor["retrieval_1"] == floor["retrieval_10"] == 1.0
    assert len(judge.reference) == 60
    noise = np.random.default_rng(1).integers(0, 256, (20, 64, 64, 3), dtype=np.uint8)
    measured = judge.measure(noise, ["cat"] * 20)
    assert measured["frechet"] > 5 * floor["frechet"] > 0
    assert measured["retrieval_1"] < 0.5


@pytest.mark.usefixtures("coloured")
def test_prompts_are_of_training_names(tmp_path: Path) -> None:
    captions, shown, seeds = prompts(Path("run"), 60)
    assert set(shown) == set(NAMES) - set(held_out_names())
    assert all(f" {name} on " in caption for name, caption in zip(shown, captions, strict=True))
    assert seeds == list(range(60))
    assert prompts(Path("run"), 60) == (captions, shown, seeds)
    judge = Judge(tmp_path, reference=10)
    assert not set(judge.training_names) & set(held_out_names())


def drawn_of(rows: list[dict[str, Any]]) -> Drawn:
    grey = np.full((len(rows), 64, 64, 3), 128, np.uint8)
    return Drawn(grey, np.zeros((len(rows), 16), np.int64), np.full((len(rows), 16), "kept"), rows)


@pytest.mark.usefixtures("coloured")
def test_every_method_has_a_row_under_the_floor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def fake(model: str, method: Method, captions: list[str], seeds: list[int], work: Path, workers: int) -> Drawn:
        asked.append((model, method.label, len(captions), seeds, work, workers))
        return drawn_of([counted(asked=2)] * len(captions))

    monkeypatch.setattr(pictures, "draw_many", fake)
    monkeypatch.setattr(pictures, "Judge", lambda folder: Judge(folder, reference=20))
    table = pictures.evaluate("emoji", tmp_path, Path("work"), 4, (Method("a", "device"), Method("b", "cloud")), 3)
    assert asked == [("emoji", label, 4, [0, 1, 2, 3], Path("work"), 3) for label in ("a", "b")]
    methods = [line["method"] for line in table["rows"]]
    assert methods == ["rendered scenes", "rendered scenes, through the tokenizer", "a", "b"]
    assert [(line["method"], line["seed"]) for line in table["raw"]] == [(m, i) for m in "ab" for i in range(4)]
    share = sum(line["rank"] < 10 for line in table["raw"][:4]) / 4
    assert share == table["rows"][2]["retrieval_10"]
    assert table["raw"][0]["asked_share"] == 2 / 16
    assert table["pictures"] == 4
    assert {"frechet", "retrieval_1", "retrieval_10"} <= set(table["rows"][0]) < set(table["rows"][2])


def test_the_guidance_sweep_draws_at_every_scale(parts: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    captions = ["noto cat on sky", "fluent owl on navy", "twemoji fox"]
    monkeypatch.setattr(recipes, "load_target", lambda folder: parts.target)
    monkeypatch.setattr(recipes, "load_tokenizer", lambda folder: parts.tokenizer)
    monkeypatch.setattr(guidance, "prompts", lambda folder, count: (captions, ["cat", "owl", "fox"], [0, 1, 2]))
    seen: list[NDArray[np.uint8]] = []

    class Fake(Judge):
        def __init__(self) -> None:
            pass

        def measure(self, pictures: NDArray[np.uint8], names: list[str]) -> dict[str, float]:
            seen.append(pictures)
            assert names == ["cat", "owl", "fox"]
            return {"retrieval_1": 0.5}

    rows = guidance.sweep(Path("run"), Fake(), 3, scales=(1.0, 3.0))
    assert rows == [{"guidance": 1.0, "retrieval_1": 0.5}, {"guidance": 3.0, "retrieval_1": 0.5}]
    assert [part.shape for part in seen] == [(3, 8, 8, 3)] * 2
    assert not np.array_equal(seen[0], seen[1])


def test_a_sheet_lays_methods_under_each_other(tmp_path: Path) -> None:
    rows = [np.full((3, 2, 2, 3), 10 * m, np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None, None] for m in (1, 2)]
    sheet(rows, tmp_path / "new" / "sheet.png", columns=2, zoom=3)
    with Image.open(tmp_path / "new" / "sheet.png") as image:
        lines = np.asarray(image)[::3, ::3, 0]
    expected = np.full((12, 4), 255)
    for line, picture in ((0, (0, 1)), (8, (2,))):
        for method in range(2):
            for column, number in enumerate(picture):
                top = line + 2 * method
                expected[top : top + 2, 2 * column : 2 * column + 2] = 10 * (method + 1) + number
    np.testing.assert_array_equal(lines, expected)


def test_features_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(FeatureError, match=r"the feature network is missing: pip install 'pixdraft\[evaluate\]'"):
        Features()


@pytest.mark.slow
def test_features_do_not_depend_on_the_batch() -> None:
    features = Features()
    pixels = np.random.default_rng(1).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    together = features(pixels)
    assert together.shape == (3, 1280)
    assert together.dtype == np.float64
    np.testing.assert_allclose(features(pixels, batch=2), together, atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 0.01
