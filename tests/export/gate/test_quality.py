"""What quantisation costs, on tables whose answer is known and on networks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fakes import TableDraft, TableTarget
from pixdraft.decoding.sampling import probabilities, total_variation
from pixdraft.export.gate import quality
from pixdraft.export.gate.quality import QUALITY, Drawn, draw, judged, led, measure
from pixdraft.export.gate.report import Measure
from pixdraft.runtime.backends import DraftOutput

PROMPTS = ("a red apple", "one big owl", "two dark cats")


class ChangedDraft(TableDraft):
    """A draft whose logits, radii or risk are not what they were."""

    def __init__(self, target: TableTarget, change: str) -> None:
        super().__init__(target)
        self.change = change

    def _row(self) -> DraftOutput:
        row = super()._row()
        if self.change == "hot":
            return row._replace(center=row.center * np.float32(0.5))
        if self.change == "shuffled risk":
            return row._replace(risk=1 - row.risk)
        if self.change == "wide":
            return row._replace(radius=row.radius * np.float32(2))
        if self.change == "nan":
            return row._replace(radius=row.radius * np.float32(np.nan))
        return row


@pytest.fixture(scope="module")
def target() -> TableTarget:
    return TableTarget(image_tokens=64)


@pytest.fixture(scope="module")
def pictures(target: TableTarget) -> Drawn:
    return draw(TableDraft(target), target, PROMPTS, lambda *_: None)


def measured(target: TableTarget, pictures: Drawn, change: str) -> dict[str, Measure]:
    shown: list[tuple[int, int]] = []
    found = measure(
        TableDraft(target), ChangedDraft(target, change), target, PROMPTS, pictures, lambda *at: shown.append(at)
    )
    by_name = {m.name: m for m in found}
    assert set(by_name) == set(QUALITY)
    assert shown == sorted(shown)
    if change != "nan":
        assert shown[-1] == (6, 6)
    return by_name


def test_pictures_are_drawn_by_ciar_at_a_fixed_tau(target: TableTarget, pictures: Drawn) -> None:
    assert pictures.tokens.shape == (3, 64)
    assert (pictures.accepted <= pictures.asked).all()
    assert (pictures.asked <= pictures.handled).all(), "the injected prefix went through the cloud too"
    assert 0.3 < pictures.calls < 0.7
    assert 0 < pictures.accept < 1
    again = draw(TableDraft(target), target, PROMPTS, lambda *_: None)
    np.testing.assert_array_equal(again.tokens, pictures.tokens)


def test_pictures_are_kept(pictures: Drawn, tmp_path: Path) -> None:
    pictures.write(tmp_path / "p.npz")
    again = Drawn.read(tmp_path / "p.npz")
    for name, values in vars(pictures).items():
        np.testing.assert_array_equal(getattr(again, name), values)


def test_the_same_draft_loses_nothing(target: TableTarget, pictures: Drawn) -> None:
    found = measured(target, pictures, "")
    assert found["top1"].value == 1.0
    assert all(found[name].value == 0.0 for name in QUALITY if name != "top1")


def test_other_logits_show_in_tv_and_in_the_run(target: TableTarget, pictures: Drawn) -> None:
    found = measured(target, pictures, "hot")
    reference, hot = TableDraft(target), ChangedDraft(target, "hot")
    rows = [
        tuple(led(d, c, t).center for d in (reference, hot))
        for c, t in zip(pictures.condition, pictures.tokens, strict=True)
    ]
    expected = np.concatenate([total_variation(probabilities(a), probabilities(b)) for a, b in rows]).mean()
    assert found["tv"].value == pytest.approx(expected)
    assert expected > 0.1
    assert found["top1"].value == 1.0, "half the logits have the same greatest one"
    assert found["statistic"].value == 0.0
    assert found["u"].value is not None
    assert found["u"].value > 0.05
    assert found["asked"].value == 0.0
    assert found["stands"].value != 0.0
    assert f"fp32 {pictures.accept:.3f}" in found["accept"].why
    assert not found["accept"].why.startswith(f"{pictures.accept:.3f}")


def test_another_statistic_shows_in_calls_and_auroc(target: TableTarget, pictures: Drawn) -> None:
    found = measured(target, pictures, "shuffled risk")
    values = {name: m.value for name, m in found.items()}
    assert values["top1"] == 1.0
    assert values["tv"] == values["u"] == 0.0
    assert values["statistic"] is not None
    assert values["statistic"] > 0.3
    assert values["auroc"] != 0.0
    drafts = (TableDraft(target), ChangedDraft(target, "shuffled risk"))
    tau = quality._tau(drafts[0].info)
    pairs = list(zip(pictures.condition, pictures.tokens, strict=True))
    asks = [np.concatenate([led(draft, *pair).risk >= tau for pair in pairs]).mean() for draft in drafts]
    assert values["asked"] == pytest.approx(abs(asks[1] - asks[0]))
    assert asks[1] != asks[0]
    before, after = (float(part.split()[-1]) for part in found["auroc"].why.split(", fp32"))
    assert after + before == pytest.approx(1.0, abs=2e-3), "1 - risk ranks the other way round"


def test_wider_intervals_show_in_u_alone(target: TableTarget, pictures: Drawn) -> None:
    values = {name: m.value for name, m in measured(target, pictures, "wide").items()}
    assert values["u"] is not None
    assert values["u"] > 0.3
    assert values["tv"] == values["statistic"] == values["calls"] == values["accept"] == 0.0


def test_nan_fails_every_check(target: TableTarget, pictures: Drawn) -> None:
    found = measured(target, pictures, "nan")
    assert all(m.value is not None and math.isnan(m.value) for m in found.values())
    assert "'a red apple' gives a number that is none" in found["tv"].why


def test_the_judge_is_the_full_model(target: TableTarget, pictures: Drawn) -> None:
    q = judged(target, PROMPTS[0], 1.0, pictures.tokens[0])
    assert q.shape == (64, 6)
    for i in (0, 1, 40):
        expected = probabilities(target.logits(PROMPTS[0], pictures.tokens[0][:i].tolist()))
        np.testing.assert_allclose(q[i], expected, rtol=1e-5)


def test_led_rows_are_those_of_steps(target: TableTarget, pictures: Drawn) -> None:
    draft = TableDraft(target)
    rows = led(draft, pictures.condition[0], pictures.tokens[0])
    assert rows.center.shape == (64, 6)
    draft.open(pictures.condition[0])
    for i in range(3):
        one = draft.step(pictures.tokens[0][i : i + 1], i)
        np.testing.assert_array_equal(one.center[0], rows.center[i + 1])


class AgreeingTarget(TableTarget):
    """Never rejects: a target that says what the draft says."""

    def __init__(self) -> None:
        super().__init__(image_tokens=16)
        self.draft: TableDraft | None = None

    def logits(
        self, prompt: str, tokens: list[int], features: Any = None, guidance: float = 1.0
    ) -> NDArray[np.float32]:
        return np.zeros(self.info.vocab_size, np.float32)


class FlatDraft(TableDraft):
    def _row(self) -> DraftOutput:
        row = super()._row()
        return row._replace(center=np.zeros_like(row.center), risk=np.full_like(row.risk, 0.01))


def test_where_nothing_is_asked_or_rejected_there_is_nothing_to_compare() -> None:
    target = AgreeingTarget()
    pictures = draw(FlatDraft(target), target, PROMPTS, lambda *_: None)
    found = {
        m.name: m for m in measure(FlatDraft(target), FlatDraft(target), target, PROMPTS, pictures, lambda *_: None)
    }
    assert found["auroc"].value is None
    assert found["auroc"].why == "the full model rejects 0% of the fp32 draft's tokens"
    assert found["accept"].value is None
    assert found["stands"].value is None
    harsh = {
        m.name: m for m in measure(FlatDraft(target), TableDraft(target), target, PROMPTS, pictures, lambda *_: None)
    }
    assert harsh["auroc"].value is None


def test_a_draft_that_asks_about_nothing_any_more_fails(target: TableTarget, pictures: Drawn) -> None:
    silent = FlatDraft(target)
    found = {m.name: m for m in measure(TableDraft(target), silent, target, PROMPTS, pictures, lambda *_: None)}
    assert math.isnan(found["accept"].value or 0.0)
    assert math.isnan(found["stands"].value or 0.0)
    assert found["calls"].value is not None
    assert found["calls"].value > 0
    assert found["calls"].why.startswith("0.047 of the tokens"), "the injected prefix alone"
    assert found["calls"].why.startswith("0.047 of the tokens"), "the injected prefix"


def counted(handled: list[int], asked: list[int], accepted: list[int], last: int = 0) -> Drawn:
    tokens = np.zeros((len(handled), 100), np.int64)
    tokens[:, -1] = last
    numbers = (np.array(values, np.int64) for values in (asked, accepted, handled))
    return Drawn(np.zeros((len(handled), 3), np.int32), tokens, *numbers)


def values(own: Drawn, fp32: Drawn) -> dict[str, float | None]:
    return {m.name: m.value for m in quality._run(own, fp32)}


def test_a_change_that_chance_explains_is_none() -> None:
    fp32 = counted([20, 40, 30, 50], [20, 40, 30, 50], [10, 20, 15, 25])
    other = counted([45, 22, 50, 31], [45, 22, 50, 31], [22, 12, 20, 17], last=1)
    assert values(other, fp32) == {"calls": 0.0, "accept": 0.0}


def test_a_change_that_is_alike_in_every_picture_counts_in_full() -> None:
    fp32 = counted([20, 40, 30, 50], [20, 40, 30, 50], [10, 20, 15, 25])
    more = counted([30, 50, 40, 60], [30, 50, 40, 60], [9, 15, 12, 18], last=1)
    found = values(more, fp32)
    assert found["calls"] == pytest.approx(0.1)
    assert found["accept"] == pytest.approx(0.2)


def test_one_picture_has_no_chance_to_tell() -> None:
    assert values(counted([30], [20], [10], last=1), counted([20], [10], [8]))["calls"] == pytest.approx(0.1)


def test_more_accepted_is_no_loss() -> None:
    fp32 = counted([20, 40], [20, 40], [10, 20])
    assert values(counted([20, 40], [20, 40], [15, 30], last=1), fp32)["accept"] == 0.0


def test_tau_is_the_table_s_and_never_below_zero() -> None:
    info = TableDraft(TableTarget()).info
    assert quality._tau(info) == 0.7
    low = replace(info, thresholds={"risk": [(0.1, -0.5), (0.5, -0.9)]})
    assert quality._tau(low) == 0.0
