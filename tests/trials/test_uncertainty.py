"""The table of statistics: what is observed is what the cloud would do, and a better statistic scores better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pixdraft.decoding import intervals
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.training.losses import InterDRO
from pixdraft.training.train_heads import States, train_bounds
from pixdraft.trials import uncertainty
from pixdraft.trials.uncertainty import (
    CODES,
    Positions,
    interval_statistics,
    observe,
    plain_statistics,
    score,
    summary,
    truncated,
)
from tiny import GUIDANCE, SHAPE, Networks


@pytest.fixture(scope="module")
def drawn() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 50, (20, SHAPE.condition_length), generator=rng)
    return ids, torch.randint(0, 16, (20, 16), generator=rng)


@pytest.fixture(scope="module")
def seen(parts: Networks, drawn: tuple[Tensor, Tensor]) -> Positions:
    return observe(parts.target, parts.draft, *drawn, GUIDANCE)


def test_every_position_is_observed(parts: Networks, drawn: tuple[Tensor, Tensor], seen: Positions) -> None:
    assert seen.p.shape == seen.q.shape == seen.center.shape == (320, 16)
    assert seen.risk.shape == seen.rejected.shape == (320,)
    np.testing.assert_allclose(seen.p.sum(-1), 1.0)
    np.testing.assert_allclose(seen.q.sum(-1), 1.0, atol=1e-6)
    with torch.inference_mode():
        row = parts.draft.heads(parts.draft.decoder.hidden(drawn[0][3:4], drawn[1][3:4, :-1])[0])
    np.testing.assert_allclose(seen.center[48:64], row.center.numpy(), atol=1e-4)
    np.testing.assert_allclose(seen.risk[48:64], row.risk.numpy(), atol=1e-5)


def test_rejections_are_as_frequent_as_the_total_variation(seen: Positions) -> None:
    tv = seen.total_variation
    np.testing.assert_allclose(tv, np.maximum(seen.p - seen.q, 0).sum(-1), atol=1e-6)
    error = np.sqrt((tv * (1 - tv)).sum()) / len(tv)
    assert abs(seen.rejected.mean() - tv.mean()) < 4 * error
    facts = summary(seen)
    assert facts["positions"] == 320
    assert facts["mean_tv"] == pytest.approx(tv.mean())
    assert facts["rejected"] == pytest.approx(seen.rejected.mean())
    assert facts["greedy_agreement"] == pytest.approx((seen.p.argmax(-1) == seen.q.argmax(-1)).mean())


def test_nothing_scores_better_than_the_true_variation(seen: Positions) -> None:
    best = score(seen.total_variation, seen)
    assert best["spearman_tv"] == pytest.approx(1.0)
    assert best["auroc"] > 0.55
    assert best["kept_tv"] == pytest.approx(np.sort(seen.total_variation)[:224].mean())
    worst = score(-seen.total_variation, seen)
    assert worst["auroc"] == pytest.approx(1.0 - best["auroc"])
    rows = plain_statistics(seen)
    assert set(rows) == {"entropy", "max", "random", "risk", "true TV"}
    assert rows["true TV"] == best
    assert all(row["kept_tv"] >= best["kept_tv"] for row in rows.values())


@pytest.mark.parametrize("normalised", [False, True])
def test_interval_statistics_are_those_of_the_method(parts: Networks, seen: Positions, normalised: bool) -> None:
    found = interval_statistics(parts.draft.radius, seen, normalised)
    with torch.inference_mode():
        radius = nn.functional.softplus(parts.draft.radius(seen.feature)).numpy()
    if normalised:
        c, r = (torch.from_numpy(x).double() for x in (seen.center, radius))
        lower, upper = (c - r).softmax(-1).numpy(), (c + r).softmax(-1).numpy()
    else:
        lower, upper = intervals.fuse(seen.center, radius)
    assert found["mean_width"] == pytest.approx(np.abs(upper - lower).sum(-1).mean())
    assert found["width"] == score(intervals.width(lower, upper), seen)
    assert found["interval"]["auroc"] == pytest.approx(score(intervals.uncertainty(lower, upper), seen)["auroc"])


def test_the_table_has_every_loss_with_and_without_dro(
    parts: Networks, drawn: tuple[Tensor, Tensor], seen: Positions, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[tuple[str, float]] = []

    def quick(draft: DraftTransformer, states: States, name: str, weights: InterDRO) -> nn.Linear:
        learned.append((name, weights.dro))
        return train_bounds(draft, states, name, weights, steps=2, size=8)

    monkeypatch.setattr(uncertainty, "train_bounds", quick)
    states = States(seen.feature.half(), torch.from_numpy(seen.q).half())
    rows: list[dict[str, Any]] = uncertainty.compare(parts.target, {1: parts.draft}, {1: states}, *drawn, GUIDANCE)
    assert learned == [(name, dro) for name in ("paper", "normalised", "pinball") for dro in (0.1, 0.0)]
    assert rows[0]["loss"] is None
    assert rows[0]["statistics"]["true TV"] == score(seen.total_variation, seen)
    assert [(row["layers"], row["loss"], row["dro"]) for row in rows[1:]] == [(1, *pair) for pair in learned]
    assert all(0 < row["mean_width"] < 16 for row in rows[1:])


def test_a_truncated_draft_is_measured_as_it_is_sent() -> None:
    rng = np.random.default_rng(4)
    p, q = rng.dirichlet(np.full(300, 0.1), (2, 20))
    seen = Positions(np.log(p).astype(np.float32), torch.zeros(20, 2), np.zeros(20), p, q, np.zeros(20, np.bool_))
    found = truncated(seen)
    assert set(found) == {str(k) for k in CODES}
    for k in CODES:
        kept = np.argsort(-p, axis=1)[:, :k]
        sent = np.zeros_like(p)
        np.put_along_axis(sent, kept, np.take_along_axis(p, kept, 1), 1)
        sent /= sent.sum(1, keepdims=True)
        assert found[str(k)] == pytest.approx(0.5 * np.abs(sent - q).sum(1).mean(), abs=1e-12)
