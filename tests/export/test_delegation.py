"""Shares of operators, and of time where it is known."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.export.delegation import measure, measure_time, read, timed

VALUES: dict[str, dict[str, Any]] = {
    "draft": {"delegated": {"linear": 6, "mul": 2}, "left": {"custom_sdpa": 2}},
    "decoder": {"delegated": {"conv": 3}, "left": {}, "seconds": {"delegated": {"conv": 0.3}, "left": {"add": 0.1}}},
}
SECONDS = {"draft": {"delegated": {"XNNPACK": 2e-5, "sum": 0.0}, "left": {"sum": 1e-5, "custom_sdpa": 2e-5}}}


def test_shares() -> None:
    draft, decoder = read(VALUES)
    assert (draft.share, decoder.share) == (0.8, 1.0)
    assert draft.time_share is None
    assert decoder.time_share == pytest.approx(0.75)


def test_time_comes_to_the_counts() -> None:
    values = timed(VALUES, SECONDS)
    draft, decoder = read(values)
    assert values["draft"]["left"] == VALUES["draft"]["left"]
    assert draft.time_share == pytest.approx(0.4)
    assert [name for name, _ in draft.slowest] == ["XNNPACK", "custom_sdpa", "sum"]
    assert sum(share for _, share in draft.slowest) == pytest.approx(1.0)
    assert decoder == read(VALUES)[1], "what was not timed now stays as it was"
    assert timed({}, SECONDS) == {}
    assert timed(VALUES, {}) == VALUES
    assert "seconds" not in VALUES["draft"]


def test_the_gate_looks_at_the_least_share_of_the_time() -> None:
    found = measure_time(timed(VALUES, SECONDS))
    assert found.value == pytest.approx(0.4)
    assert found.why == "the draft's time is 40.0% XNNPACK, 40.0% custom_sdpa, 20.0% sum"
    assert measure_time(VALUES).value == pytest.approx(0.75)
    assert measure_time({"draft": VALUES["draft"]}).value is None
    assert read(timed(VALUES, {"draft": {"delegated": {}, "left": {}}}))[0].time_share is None


def test_the_gate_looks_at_the_least() -> None:
    found = measure(VALUES)
    assert (found.value, found.why) == (0.8, "the draft leaves 2 custom_sdpa")
    assert measure({"draft": VALUES["decoder"]}).why == "nothing is left"


def test_a_target_without_such_a_thing() -> None:
    assert measure({}).value is None
