"""From what was counted of every picture to one line a method."""

from __future__ import annotations

import pytest

from pixdraft.trials.summary import steps, summary
from rows import counted


def test_steps_count_the_prompt_and_what_it_injects() -> None:
    assert steps(counted(passes=15)) == 16  # one token a pass: T of them
    assert steps(counted(passes=0)) == 1
    assert steps(counted(injected=1, passes=3)) == 4  # the prompt's own pass tells the first token
    assert steps(counted(injected=3, passes=3)) == 6


def test_a_summary_is_the_mean_over_pictures() -> None:
    rows = [counted(2, audit=0.5, passes=3, s=1.0), counted(4, passes=5, s=2.0), counted(3, audit=1.0, passes=7, s=6.0)]
    found = summary(rows)
    assert found["asked_share"] == pytest.approx(3 / 16)
    assert found["audit"] == 0.75
    assert (found["frames_up"], found["bytes_up"], found["bytes_down"]) == (8, 1000, 500)
    assert (found["seconds"], found["seconds_median"]) == (3.0, 2.0)
    assert found["steps"] == 6.0
    assert found["steps_error"] == pytest.approx(2 / 3**0.5)
    assert found["tokens_per_step"] == pytest.approx(48 / 18)
    assert found["accepted_share"] == pytest.approx((1 + 3 + 2) / 9)
    assert found["pass_ms"] == pytest.approx(1000 * 4.5 / 15)


def test_what_was_not_there_is_none() -> None:
    found = summary([counted(0, passes=0)])
    names = ("audit", "accepted_share", "pass_ms", "steps_error")
    assert [found[name] for name in names] == [None] * len(names)
