from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pixdraft.decoding.thresholds import DEFAULT_RATES, Learner, ThresholdTable, Tracker, calibrate, uniform

TABLE = ThresholdTable("width", ((0.1, 0.9), (0.5, 0.5), (0.9, 0.1)))


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=st.floats(-1e6, 1e6)))
def test_tau_falls_as_the_rate_grows(values: np.ndarray) -> None:
    table = calibrate("width", values)
    taus = [table.tau(rate) for rate in np.linspace(0, 1, 41)]
    assert all(b <= a for a, b in pairwise(taus))
    assert (taus[0], taus[-1]) == (math.inf, -math.inf)


@pytest.mark.parametrize("rate", DEFAULT_RATES)
def test_the_share_at_or_above_tau_is_the_rate(rate: float) -> None:
    values = np.random.default_rng(0).gamma(0.5, size=50_000)
    assert (values >= calibrate("interval", values).tau(rate)).mean() == pytest.approx(rate, abs=1e-3)


def test_tau_is_linear_between_the_pairs_and_flat_beyond() -> None:
    assert TABLE.tau(0.3) == pytest.approx(0.7)
    assert TABLE.tau(0.05) == 0.9
    assert TABLE.tau(0.95) == 0.1


def test_json_and_back() -> None:
    table = calibrate("risk", np.random.default_rng(1).random(1000))
    assert ThresholdTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"statistic": "max"}, "fields statistic and pairs"),
        ({"statistic": "max", "pairs": [[0.1, 2], [0.2]]}, "numbers"),
        ({"statistic": "max", "pairs": [["a", 2]]}, "numbers"),
        ({"statistic": "max", "pairs": 3}, "numbers"),
        ({"statistic": "max", "pairs": []}, "table of 'max' is empty"),
        ({"statistic": "max", "pairs": [[0.2, 1], [0.1, 1]]}, "rates must ascend"),
        ({"statistic": "max", "pairs": [[0.0, 1]]}, "rates must ascend"),
        ({"statistic": "max", "pairs": [[0.1, 1], [0.2, 2]]}, "tau"),
        ({"statistic": "max", "pairs": [[0.1, math.nan]]}, "tau"),
    ],
)
def test_a_bad_table_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThresholdTable.from_dict(values)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"rate is 1\.5"):
        TABLE.tau(1.5)
    with pytest.raises(ValueError, match="values of 'risk'"):
        calibrate("risk", [])
    with pytest.raises(ValueError, match="values of 'risk'"):
        calibrate("risk", [0.1, math.nan])
    with pytest.raises(ValueError, match="rates"):
        calibrate("risk", [0.1], [0.0, 0.5])
    with pytest.raises(ValueError, match="eta is -1"):
        Tracker(TABLE, 0.3, -1)
    with pytest.raises(ValueError, match="rate is nan"):
        Tracker(TABLE, math.nan)


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "flat": lambda random, n: random.random(n),
    "skewed": lambda random, n: random.gamma(0.3, 1e-4, n),
    "wide": lambda random, n: random.normal(5, 300, n),
}


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tracker_brings_the_asked_share_to_the_rate(shape: str, rate: float) -> None:
    random = np.random.default_rng(2)
    held_out = SHAPES[shape](random, 20_000)
    table = calibrate(shape, held_out)
    # surer than the held-out pictures, so that the calibrated tau asks too few
    stream = np.quantile(held_out, random.random(256 * 40) ** 1.5)
    fixed = (stream >= table.tau(rate)).mean()
    tracker = Tracker(table, rate)
    asked = np.array([tracker.update(value) for value in stream])
    assert abs(fixed - rate) > 0.03
    assert asked.mean() == pytest.approx(rate, abs=0.01)
    assert asked[-256 * 10 :].mean() == pytest.approx(rate, abs=0.02)


def test_scaling_the_statistic_changes_no_decision() -> None:
    values = np.random.default_rng(3).gamma(1.0, size=5000)
    runs = []
    for scale in (1.0, 2.0**-20):
        tracker = Tracker(calibrate("width", values * scale), 0.3)
        runs.append([bool(tracker.update(value * scale * 0.8)) for value in values])
    assert runs[0] == runs[1]


def test_one_picture_is_enough_to_feel_it() -> None:
    random = np.random.default_rng(4)
    tracker = Tracker(calibrate("risk", random.random(5000)), 0.3)
    first = [tracker.update(value) for value in 0.75 * random.random(256)]
    assert np.mean(first[128:]) > 0.2  # without tracking: 0.3 -> 0.07


def test_tau_stays_within_the_table() -> None:
    tracker = Tracker(TABLE, 0.5, eta=10.0)
    tracker.update(2.0)
    assert tracker.tau == 0.9
    tracker.update(0.0)
    assert tracker.tau == 0.1


@pytest.mark.parametrize(("rate", "eta", "asked"), [(0.0, 0.1, False), (1.0, 0.1, True), (0.5, 0.0, True)])
def test_the_ends_and_eta_zero_hold_tau(rate: float, eta: float, asked: bool) -> None:
    tracker = Tracker(TABLE, rate, eta)
    before = tracker.tau
    assert [tracker.update(0.5) for _ in range(50)] == [asked] * 50
    assert tracker.tau == before


def test_a_tied_middle_still_tracks() -> None:
    values = np.array([0.0] * 90 + list(np.linspace(0.01, 1, 10)))
    tracker = Tracker(calibrate("max", values), 0.4)
    random = np.random.default_rng(6)
    asked = [tracker.update(value) for value in random.choice(values, 20_000)]
    assert np.mean(asked) == pytest.approx(0.4, abs=0.02)  # a tau that stood still would ask always


def test_a_uniform_statistic_has_a_table_without_values() -> None:
    table = uniform("random")
    assert [table.tau(rate) for rate in (0.001, 0.3, 0.98)] == pytest.approx([0.999, 0.7, 0.02])
    assert (table.tau(0.0), table.tau(1.0)) == (math.inf, -math.inf)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.7])
def test_learning_asks_the_wanted_share_whatever_the_scale(rate: float) -> None:
    values = np.random.default_rng(7).gamma(0.5, size=1024)
    runs = []
    for scale in (1.0, 2.0**-30):
        learner = Learner("interval", rate)
        assert learner.tau == 0.0
        runs.append([learner.update(value * scale) for value in values])
    assert runs[0] == runs[1]
    assert np.mean(runs[0]) == pytest.approx(rate, abs=0.02)
    assert np.mean(runs[0][:256]) == pytest.approx(rate, abs=0.06)


def test_learning_is_the_quantile_of_what_was_seen() -> None:
    values = np.random.default_rng(9).random(60)
    learner = Learner("max", 0.25, eta=0.0)
    for n, value in enumerate(values, 1):
        learner.update(value)
        assert learner.tau == pytest.approx(np.quantile(values[:n], 0.75))


@pytest.mark.parametrize(("rate", "asked"), [(0.0, False), (1.0, True)])
def test_learning_holds_the_ends(rate: float, asked: bool) -> None:
    learner = Learner("risk", rate)
    assert [learner.update(0.5) for _ in range(20)] == [asked] * 20
