"""What a plan's pictures are asked for and held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pixdraft.training import sprites as sprite_files
from pixdraft.trials import judging, local_metrics, pictures
from pixdraft.trials.judging import Judging
from pixdraft.trials.pictures import Judge, prompts
from pixdraft.trials.plan import SCENES, THROUGH, Local, Plan
from pixdraft.trials.quality import FeatureMetric, PackagedMetric
from tiny import fake_sprites


class MeanColour:
    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
        return np.asarray(pixels.mean((1, 2)), np.float64)


@pytest.fixture
def sprites(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = fake_sprites(("cat", "dog", "fox"))
    monkeypatch.setattr(sprite_files, "load", lambda folder: loaded)
    monkeypatch.setattr(judging, "available", lambda: None)
    for place in (pictures, judging):
        monkeypatch.setattr(place, "Features", MeanColour)
    monkeypatch.setattr(judging, "Judge", lambda folder: Judge(folder, reference=20))


@pytest.mark.usefixtures("sprites")
def test_the_model_s_own_prompts_are_judged_by_scenes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judging(Plan("p", {"AR": "cloud"}, prompts=5), model, tmp_path)
    assert (judged.prompts, judged.names, [0, 1, 2, 3, 4]) == prompts(tmp_path, 5)
    (metric,) = judged.metrics(64)
    assert isinstance(metric, PackagedMetric)
    assert metric.used["network"] == "efficientnet-lite0"
    assert metric.used["reference_pictures"] == 20
    references = judged.references(6)
    assert list(references) == [SCENES, THROUGH]
    scenes, through = references.values()
    assert scenes.pixels.shape == through.pixels.shape == (6, 64, 64, 3)
    assert not np.array_equal(scenes.pixels, through.pixels)
    assert scenes.prompts == through.prompts
    assert scenes.names is not None
    assert all(name in prompt for name, prompt in zip(scenes.names, scenes.prompts, strict=True))
    found = metric.measure(references, SCENES)
    assert found[SCENES].means["frechet_x"] == 1.0
    assert set(found[SCENES].each) == {"rank"}


@pytest.mark.usefixtures("sprites")
def test_captions_are_judged_by_real_pictures(model: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a cat\na dog\na fox\n", encoding="utf-8")
    alone = Judging(Plan("p", {"AR": "cloud"}, prompts=2, captions=file), model, tmp_path)
    assert (alone.prompts, alone.names) == (["a cat", "a dog"], None)
    assert (list(alone.metrics(8)), alone.references(2)) == ([], {})
    real = tmp_path / "val"
    real.mkdir()
    for i in range(5):
        Image.new("RGB", (12, 9), (50 * i, 0, 0)).save(real / f"{i}.png")
    plan = Plan("p", {"AR": "cloud"}, prompts=2, captions=file, metrics=Local(pictures=real))
    (metric,) = Judging(plan, model, tmp_path).metrics(8)
    assert isinstance(metric, FeatureMetric)
    assert not isinstance(metric, PackagedMetric)
    assert (metric.used["reference"], metric.used["reference_pictures"]) == ("val", 5)


@pytest.mark.usefixtures("sprites")
@pytest.mark.parametrize("own", [True, False])
def test_local_metrics_take_their_turn(own: bool, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(local_metrics, "check", lambda local: None)
    monkeypatch.setattr(
        local_metrics,
        "inception_metric",
        lambda weights, reference, used: asked.append((weights, sum(len(part) for part in reference), used)),
    )
    monkeypatch.setattr(local_metrics, "ClipMetric", lambda name, folder: asked.append((name, folder)))
    real = tmp_path / "val"
    real.mkdir()
    for i in range(3):
        Image.new("RGB", (8, 8)).save(real / f"{i}.png")
    local = Local(Path("c"), Path("h"), Path("w"), None if own else real)
    assert len(list(Judging(Plan("p", {"AR": "cloud"}, prompts=2, metrics=local), model, tmp_path).metrics(8))) == 4
    count, name = (20, SCENES) if own else (3, "val")
    assert asked == [(Path("w"), count, {"reference": name}), ("clip", Path("c")), ("hpsv2", Path("h"))]
