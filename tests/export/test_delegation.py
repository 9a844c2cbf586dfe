"""Shares of operators, and of time where it is known."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.export.delegation import measure, read

VALUES: dict[str, dict[str, Any]] = {
    "draft": {"delegated": {"linear": 6, "mul": 2}, "left": {"custom_sdpa": 2}},
    "decoder": {"delegated": {"conv": 3}, "left": {}, "seconds": {"conv": 0.3, "upsample": 0.1}},
}


def test_shares() -> None:
    draft, decoder = read(VALUES)
    assert (draft.share, decoder.share) == (0.8, 1.0)
    assert draft.time_share is None
    assert decoder.time_share == pytest.approx(0.75)


def test_the_gate_looks_at_the_least() -> None:
    found = measure(VALUES)
    assert (found.value, found.why) == (0.8, "the draft leaves 2 custom_sdpa")
    assert measure({"draft": VALUES["decoder"]}).why == "nothing is left"


def test_a_target_without_such_a_thing() -> None:
    assert measure({}).value is None
