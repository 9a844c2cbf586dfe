"""Strategies by name, from what the wire carries."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.decoding.strategies import JD, SJD, STRATEGIES, Sequential, StrategyError, create


def test_every_strategy_is_made_by_name_and_from_its_own_parameters() -> None:
    assert list(STRATEGIES) == ["sequential", "jd", "sjd"]
    for name, kind in STRATEGIES.items():
        strategy = create(name)
        assert (type(strategy), strategy.name) == (kind, name)
        assert create(name, strategy.parameters) == strategy


def test_parameters_come_as_the_wire_has_them() -> None:
    assert create("sjd", {"window": 64.0, "init": "left", "coupling": "gumbel"}) == SJD(64, "left", "gumbel")
    assert create("jd", {"coupling": "common"}) == JD(16, "uniform-onehot", "common")
    assert isinstance(create("sjd", {"window": 8.0}).parameters["window"], int)
    assert Sequential().parameters == {}


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("magic", {}, "there is no strategy 'magic': the known ones are sequential, jd, sjd"),
        ("sequential", {"window": 2}, "sequential: there is no parameter 'window'; the strategy takes none"),
        ("sjd", {"gamma": 2}, "sjd: there is no parameter 'gamma'; the strategy takes window, init, coupling"),
        ("sjd", {"window": 0}, "sjd: window is 0: give a whole number from 1 to 256"),
        ("sjd", {"window": 257}, "sjd: window is 257"),
        ("sjd", {"window": 1.5}, r"sjd: window is 1\.5"),
        ("sjd", {"window": float("nan")}, "sjd: window is nan"),
        ("sjd", {"window": float("inf")}, "sjd: window is inf"),
        ("sjd", {"window": "wide"}, "sjd: window is 'wide'"),
        ("sjd", {"init": "right"}, "sjd: init is 'right': the known ones are uniform-onehot, left, uniform"),
        ("sjd", {"init": 3.0}, r"sjd: init is 3\.0"),
        ("sjd", {"coupling": "loose"}, "coupling is 'loose': the known ones are none, common, gumbel, maximal"),
        ("jd", {"coupling": "gumbel"}, "jd: coupling is 'gumbel': the known ones are none, common"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrategyError, match=sentence):
        create(name, parameters)
