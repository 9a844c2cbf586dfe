"""A whole comparison over random weights: what it leaves, what it resumes, and what it refuses before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixdraft.trials import compare as module
from pixdraft.trials import draw_many, judging
from pixdraft.trials.compare import SEED_STEP, compare, papers, relate
from pixdraft.trials.local_metrics import LocalError
from pixdraft.trials.methods import MethodError, parse
from pixdraft.trials.plan import SCENES, THROUGH, Local, Plan, PlanError
from pixdraft.trials.quality import FeatureMetric, Pictures
from pixdraft.trials.reports import ENDINGS, notes
from pixdraft.trials.shards import Shard

METHODS = {
    "AR": "cloud",
    "SJD": "sjd:window=4,init=uniform",
    "CSD": "sjd:window=4,init=uniform + csd:lam=0.5,delta=0.65",
    "same as AR": "cloud + lossless",
    "CIAR": "ciar:rate=0.5,statistic=interval @ rho=0.1",
}
PLAN = Plan("tiny-plan", METHODS, "Tiny", prompts=4, seeds=2)


class Judging(judging.Judging):
    """Judges by mean colours, against scenes that are noise."""

    def __init__(self, plan: Plan, model: str, data: Path) -> None:
        self.prompts = [f"noto {name} on sky" for name in ("cat", "dog", "fox", "owl")][: plan.prompts]
        self.names = None

    def references(self, count: int) -> dict[str, Pictures]:
        pixels = np.random.default_rng(1).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
        return {SCENES: Pictures(pixels, ["scene"] * count), THROUGH: Pictures(pixels, ["scene"] * count)}

    def metrics(self, side: int) -> Any:
        assert side == 8
        yield FeatureMetric({"metric": "colours"}, colours, np.random.default_rng(2).uniform(0, 255, (30, 3)))


def colours(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.asarray(pixels.mean((1, 2)), np.float64)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was drawn: a method's policy and rule, and how many pictures."""
    shards: list[str] = []
    draw = draw_many._draw_shard

    def noted(shard: Shard) -> Shard:
        shards.append(f"{shard.method.label.rpartition('-')[0]} {len(shard.prompts)}")
        return draw(shard)

    monkeypatch.setattr(draw_many, "_draw_shard", noted)
    monkeypatch.setattr(module, "Judging", Judging)
    return shards


def test_a_comparison_leaves_a_table_rows_and_a_plot(model: str, tmp_path: Path, drawn: list[str]) -> None:
    out = tmp_path / "new" / "out"
    result = compare(PLAN, model, tmp_path, out, 1, "pixdraft evaluate --plan tiny-plan.toml")
    assert sorted(drawn) == sorted(["cloud 4", "sjd 4", "sjd-csd 4", "ciar 4"] * 2)  # equal methods once, two seeds
    assert sorted(file.name for file in out.iterdir()) == [f"tiny-plan{ending}" for ending in sorted(ENDINGS)]
    assert json.loads((out / "tiny-plan.json").read_text(encoding="utf-8")) == json.loads(json.dumps(result))
    rows = {row["method"]: row for row in result["rows"]}
    assert list(rows) == list(METHODS)
    assert rows["AR"]["steps"] == 16
    assert (rows["AR"]["step_x"], rows["AR"]["frechet_x"]) == (1.0, 1.0)
    assert 1 < rows["SJD"]["step_x"] < 16
    assert rows["SJD"]["step_x"] == pytest.approx(16 / rows["SJD"]["steps"])
    assert rows["CSD"]["tokens_per_step"] == pytest.approx(16 / rows["CSD"]["steps"])
    assert rows["same as AR"]["frechet"] == rows["AR"]["frechet"]
    assert rows["CIAR"]["asked_share"] > 0
    assert [row["method"] for row in result["references"]] == [SCENES, THROUGH]
    assert result["pictures"] == 8
    assert result["metrics"][0]["metric"] == "colours"
    assert result["plan"]["methods"] == METHODS
    assert result["made"]["command"] == "pixdraft evaluate --plan tiny-plan.toml"
    raw = [json.loads(line) for line in (out / "tiny-plan.rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(raw) == len(METHODS) * 8
    assert [row["seed"] for row in raw[:8]] == [0, 1, 2, 3, *(SEED_STEP + i for i in range(4))]
    assert raw[1]["prompt"] == raw[5]["prompt"] == "noto dog on sky"
    passes = [row["passes"] for row in raw if row["method"] == "SJD"]
    assert 1 + np.mean(passes) == pytest.approx(rows["SJD"]["steps"])
    words = (out / "tiny-plan.txt").read_text(encoding="utf-8")
    for word in ("Tiny", "same as AR", SCENES, "8 pictures a method, 2 of each prompt", "LlamaGen-XL stage I", "2.53"):
        assert word in words
    assert "| CSD | Janus-Pro 1B, 384 px | 3.33 |" in (out / "tiny-plan.md").read_text(encoding="utf-8")


def test_a_comparison_goes_on_and_shares_pictures(model: str, tmp_path: Path, drawn: list[str]) -> None:
    compare(Plan("one", {"AR": "cloud"}, prompts=2), model, tmp_path, tmp_path, 1, "")
    compare(Plan("one", {"AR": "cloud", "SJD": "sjd"}, prompts=2), model, tmp_path, tmp_path, 1, "")
    compare(Plan("two", {"plain": "cloud"}, prompts=2), model, tmp_path, tmp_path, 1, "")
    assert drawn == ["cloud 2", "sjd 2"]
    compare(Plan("two", {"plain": "cloud"}, prompts=2, seeds=2), model, tmp_path, tmp_path, 1, "")
    assert drawn[2:] == ["cloud 2"]
    compare(Plan("two", {"plain": "cloud"}, prompts=3, seeds=2), model, tmp_path, tmp_path, 1, "")
    assert drawn[3:] == ["cloud 3", "cloud 3"]


def test_few_pictures_have_a_table_without_distances(model: str, tmp_path: Path, drawn: list[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "few.png").write_bytes(b"of an older run")
    result = compare(Plan("few", {"AR": "cloud"}, prompts=2), model, tmp_path, out, 1, "")
    assert "frechet" not in result["rows"][0]
    assert not (out / "few.png").exists()
    words = (out / "few.txt").read_text(encoding="utf-8")
    assert "Frechet" not in words
    assert "Too few pictures a method (2): distance, precision, recall and the plot are left out below 4" in words


@pytest.mark.parametrize("text", ["telepathy", "ciar:mood=good", "sjd + kindness"])
def test_what_cannot_run_is_refused_before_any_work(text: str, model: str, tmp_path: Path, drawn: list[str]) -> None:
    plan = Plan("bad", {"AR": "cloud", "other": text}, prompts=2)
    with pytest.raises(MethodError, match="cannot run here"):
        compare(plan, model, tmp_path, tmp_path / "out", 1, "")
    assert drawn == []
    assert list(tmp_path.iterdir()) == []


def test_a_missing_metric_is_refused_before_any_work(model: str, tmp_path: Path) -> None:
    plan = Plan("bad", {"AR": "cloud"}, prompts=2, captions=Path("some.txt"), metrics=Local(pictures=tmp_path))
    with pytest.raises(LocalError, match="holds no"):
        compare(plan, model, tmp_path, tmp_path / "out", 1, "")
    assert list(tmp_path.iterdir()) == []


def test_pictures_without_a_use_are_refused_before_any_work(model: str, tmp_path: Path, drawn: list[str]) -> None:
    plan = Plan("bad", {"AR": "cloud"}, prompts=2, metrics=Local(pictures=tmp_path))
    with pytest.raises(PlanError, match="no metric would look at"):
        compare(plan, model, tmp_path, tmp_path / "out", 1, "")
    assert drawn == []
    assert list(tmp_path.iterdir()) == []


def lines(baseline: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "method": label,
            "steps": steps,
            "seconds_median": 2.0,
            "frechet_x": 1.1,
            "cloud_share": 0.4,
            "f1": 0.5,
            "fid_f1": 0.6,
        }
        for label, steps in {"AR": 100.0, "SJD": 50.0, "CIAR": 40.0}.items()
    ]
    relate(rows, baseline)
    texts = {"AR": "cloud", "SJD": "sjd", "CIAR": "ciar:statistic=interval"}
    return papers(rows, {label: parse(text).method(1.0) for label, text in texts.items()}, baseline)


def test_papers_stand_beside_ratios_to_plain_decoding() -> None:
    found = lines("AR")
    assert {line["method"] for line in found} == {"SJD", "CIAR"}
    janus = next(line for line in found if line["model"].startswith("Janus-Pro 7B"))
    assert (janus["paper_step_x"], janus["step_x"], janus["paper_steps"]) == (1.93, 2.0, 298.8)
    assert janus["distance_x"] == 1.1
    assert janus["standing"] == "stated in a published note on the paper"
    ciar = next(line for line in found if line["method"] == "CIAR")
    assert (ciar["paper_cloud_share"], ciar["cloud_share"]) == (0.3044, 0.4)
    assert (ciar["paper_f1"], ciar["f1"]) == (0.5997, 0.6)  # of Inception features, as in the paper
    assert "cloud_share" not in janus


def test_another_baseline_has_no_ratio_that_a_paper_means() -> None:
    for line in lines("SJD"):
        assert line["method"] == "CIAR" or line["method"] == "AR"
        assert "distance_x" not in line
        assert "step_x" not in line


@pytest.mark.parametrize(("pictures", "workers", "said"), [(200, 1, 0), (49, 1, 1), (200, 2, 1), (8, 3, 2)])
def test_the_table_says_what_to_bear_in_mind(pictures: int, workers: int, said: int) -> None:
    found = notes({"rows": [{"frechet": 1.0}], "pictures": pictures, "workers": workers})
    assert len(found) == said
    assert any("mean little" in note for note in found) == (pictures < 50)
    assert any("shared the cores" in note for note in found) == (workers > 1)


def test_without_distances_few_pictures_are_enough() -> None:
    assert notes({"rows": [{"steps": 1.0}], "pictures": 8}) == []
    assert notes({"rows": [{"steps": 1.0}], "pictures": 2, "metrics": [{"metric": "clip"}]}) == []
