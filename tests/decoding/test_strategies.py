"""Strategies by name, from what the wire carries."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.decoding.strategies import EAGLE2, JD, SJD, STRATEGIES, Sequential, StrategyError, create


def test_every_strategy_is_made_by_name_and_from_its_own_parameters() -> None:
    assert list(STRATEGIES) == ["sequential", "jd", "sjd", "eagle2"]
    for name, kind in STRATEGIES.items():
        strategy = create(name)
        assert (type(strategy), strategy.name) == (kind, name)
        assert create(name, strategy.parameters) == strategy


def test_parameters_come_as_the_wire_has_them() -> None:
    assert create("sjd", {"window": 64.0, "init": "left", "coupling": "gumbel"}) == SJD(64, "left", "gumbel")
    assert create("jd", {"coupling": "common"}) == JD(16, "uniform-onehot", "common")
    assert isinstance(create("sjd", {"window": 8.0}).parameters["window"], int)
    assert create("eagle2", {"depth": 6.0}) == EAGLE2(59, 6, 10)
    assert EAGLE2().parameters == {"total_tokens": 59, "depth": 4, "top_k": 10}
    assert Sequential().parameters == {}


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("magic", {}, "there is no strategy 'magic': the known ones are sequential, jd, sjd"),
        ("sequential", {"window": 2}, "sequential: there is no parameter 'window'; the strategy takes none"),
        ("sjd", {"gamma": 2}, "sjd: there is no parameter 'gamma'; the strategy takes window, init, coupling"),
        ("sjd", {"windows": 2}, r"no parameter 'windows'; do you mean 'window'\? the strategy takes window"),
        ("sjd", {"window": 0}, "sjd: window is 0: give a whole number from 1 to 256"),
        ("sjd", {"window": 257}, "sjd: window is 257"),
        ("sjd", {"window": 1.5}, r"sjd: window is 1\.5"),
        ("sjd", {"window": float("nan")}, "sjd: window is nan"),
        ("sjd", {"window": float("inf")}, "sjd: window is inf"),
        ("sjd", {"window": 10**400}, "sjd: window is 10"),
        ("sjd", {"window": "wide"}, "sjd: window is 'wide'"),
        ("sjd", {"init": "right"}, "sjd: init is 'right': the known ones are uniform-onehot, left, uniform"),
        ("sjd", {"init": 3.0}, r"sjd: init is 3\.0"),
        ("sjd", {"coupling": "loose"}, "coupling is 'loose': the known ones are none, common, gumbel, maximal"),
        (
            "eagle2",
            {"window": 3},
            "there is no parameter 'window'; the strategy takes total_tokens, depth, top_k",
        ),
        ("eagle2", {"total_tokens": 1}, "eagle2: total_tokens is 1: give a whole number from 2 to 256"),
        ("eagle2", {"depth": -1}, "eagle2: depth is -1: give a whole number from 0 to 16"),
        ("eagle2", {"top_k": 65.0}, r"eagle2: top_k is 65\.0: give a whole number from 1 to 64"),
        ("eagle2", {"top_k": True}, "eagle2: top_k is True"),
        ("jd", {"coupling": "gumbel"}, "jd: coupling is 'gumbel': the known ones are none, common"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrategyError, match=sentence):
        create(name, parameters)
