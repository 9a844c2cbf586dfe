from __future__ import annotations

import numpy as np
import pytest

from pixdraft.decoding import intervals, rng
from pixdraft.decoding.sampling import entropy, probabilities
from pixdraft.decoding.statistics import STATISTICS, Evidence, auroc

RANDOM = np.random.default_rng(5)
CENTER, RADIUS = RANDOM.normal(0, 3, (4, 32)), RANDOM.random((4, 32))
P = probabilities(CENTER, 0.9, 20)
MANY = Evidence(CENTER, RADIUS, P, np.array([0.1, 0.2, 0.3, 0.4]), 77, np.arange(4))


def test_the_names_are_the_contract() -> None:
    assert list(STATISTICS) == [
        "interval",
        "width",
        "discrete-100",
        "discrete-300",
        "entropy",
        "max",
        "softmaxcorr",
        "risk",
        "random",
    ]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def test_values() -> None:
    lower, upper = intervals.fuse(CENTER, RADIUS)
    expected = {
        "interval": intervals.uncertainty(lower, upper),
        "width": (upper - lower).sum(axis=1),
        "discrete-100": intervals.uncertainty(lower, upper),
        "discrete-300": intervals.uncertainty(lower, upper),
        "entropy": entropy(P),
        "max": 1 - P.max(axis=1),
        "softmaxcorr": [1 - cosine(np.outer(p, p), np.diag(p)) for p in P],
        "risk": [0.1, 0.2, 0.3, 0.4],
        "random": [rng.uniform(77, i, 4) for i in range(4)],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(STATISTICS[name](MANY), values, rtol=1e-14, err_msg=name)


@pytest.mark.parametrize("name", STATISTICS)
def test_one_position_is_a_row_of_many(name: str) -> None:
    one = Evidence(CENTER[2], RADIUS[2], P[2], 0.3, 77, 2)
    assert float(STATISTICS[name](one)) == pytest.approx(float(STATISTICS[name](MANY)[2]), rel=1e-14)


def test_intervals_are_computed_once_and_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fuse = intervals.fuse

    def counted(*arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(1)
        return fuse(*arguments)

    monkeypatch.setattr(intervals, "fuse", counted)
    evidence = Evidence(CENTER, RADIUS, P, 0.5, 1, np.arange(4))
    for name in ("entropy", "max", "random", "risk"):
        STATISTICS[name](evidence)
    assert not calls
    STATISTICS["interval"](evidence)
    STATISTICS["width"](evidence)
    assert len(calls) == 1


def test_random_draws_from_a_stream_of_its_own() -> None:
    drawn = float(STATISTICS["random"](Evidence(CENTER[0], RADIUS[0], P[0], 0.0, 9, 5)))
    assert drawn not in {rng.uniform(9, 5, stream) for stream in range(4)}


@pytest.mark.parametrize("k", [100, 300])
def test_discrete_looks_at_the_most_probable_codes_alone(k: int) -> None:
    center, radius = RANDOM.normal(0, 3, (3, 400)), RANDOM.random((3, 400))
    truncated = probabilities(center, top_k=16)  # what is drawn from does not matter
    lower, upper = intervals.fuse(center, radius)
    best = np.argsort(-center, axis=1)[:, :k]
    delta = np.take_along_axis(upper - lower, best, axis=1)
    seen = STATISTICS[f"discrete-{k}"](Evidence(center, radius, truncated, 0.0, 1, np.arange(3)))
    np.testing.assert_allclose(seen, delta.sum(axis=1) * delta.std(axis=1), rtol=1e-12)
    assert (seen != STATISTICS["interval"](Evidence(center, radius, truncated, 0.0, 1, np.arange(3)))).all()


@pytest.mark.parametrize("m", [1, 2, 7, 32])
def test_softmaxcorr_of_equally_likely_codes(m: int) -> None:
    p = np.where(np.arange(32) < m, 1 / m, 0.0)
    seen = STATISTICS["softmaxcorr"](Evidence(CENTER[0], RADIUS[0], p, 0.0, 1, 0))
    assert float(seen) == pytest.approx(1 - m**-0.5, abs=1e-12)
    assert float(seen) >= 0


def test_no_statistic_is_negative() -> None:
    """So tau = 0 asks everything."""
    rows = np.random.default_rng(8).dirichlet(np.full(64, 0.05), 500)
    rows[:64] = np.eye(64)
    with np.errstate(divide="ignore"):
        center = np.log(rows)
    evidence = Evidence(center, np.zeros(rows.shape), rows, np.zeros(500), 1, np.arange(500))
    for name, statistic in STATISTICS.items():
        assert statistic(evidence).min() >= 0, name


@pytest.mark.parametrize("levels", [3, 10, 10_000])
def test_auroc_is_how_often_a_positive_scores_higher(levels: int) -> None:
    rng = np.random.default_rng(levels)
    label = rng.uniform(size=60) < 0.3
    score = (rng.integers(levels, size=60) + np.where(label, levels // 3, 0)).astype(np.float64)
    pairs = score[label][:, None] - score[~label][None]
    assert auroc(score, label) == pytest.approx((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def test_auroc_at_its_ends() -> None:
    label = np.array([True, False, True, False])
    assert auroc(label.astype(np.float64), label) == 1.0
    assert auroc(-label.astype(np.float64), label) == 0.0
    assert auroc(np.zeros(4), label) == 0.5


def test_auroc_of_probabilities_is_its_expectation_over_the_labels() -> None:
    rng = np.random.default_rng(3)
    chance = rng.beta(0.5, 0.5, 2000)
    score = chance + rng.normal(scale=0.5, size=2000)
    drawn = [auroc(score, rng.uniform(size=2000) < chance) for _ in range(200)]
    assert auroc(score, chance) == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(200))
    assert np.std(drawn) > 0.004, "which is the noise that it does without"


@pytest.mark.parametrize("value", [True, False])
def test_auroc_needs_both_kinds(value: bool) -> None:
    with pytest.raises(ValueError, match="AUROC needs both positives and negatives"):
        auroc(np.zeros(3), np.full(3, value))
