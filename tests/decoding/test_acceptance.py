"""The door: every rule by name, built from what the wire carries."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from pixdraft.decoding import acceptance
from pixdraft.decoding.acceptance import CSD, GSD, LANTERN, RULES, Amplify, LANTERNPlusPlus, RuleError, create

CODEBOOK = np.random.default_rng(0).normal(size=(8, 2))


def test_the_names_are_the_contract() -> None:
    assert list(RULES) == ["lossless", "csd", "addition", "amplify", "gsd", "lantern", "lantern++", "cool"]
    assert {name for name, rule in RULES.items() if rule.needs_codebook} == {"lantern", "lantern++"}
    assert all(rule.__name__ in acceptance.__all__ for rule in RULES.values())


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_made_by_name_and_judges(name: str) -> None:
    rule = create(name, codebook=CODEBOOK)
    assert (type(rule), rule.name) == (RULES[name], name)
    q = np.arange(1.0, 9.0) / 36
    assert 0 < rule.probability(q, q[::-1].copy(), 0) <= 1
    assert rule.residual(q, q[::-1].copy(), 0).sum() == pytest.approx(1)
    with pytest.raises(FrozenInstanceError):
        rule.name = "another"  # type: ignore[misc]


def test_parameters_come_as_the_wire_has_them() -> None:
    assert create("csd", {"lam": 0.25}) == CSD(0.25, 0.65)
    assert create("gsd", {"group": 35.0}) == GSD(35)
    lantern = create("lantern", {"k": 5.0, "delta": 0.2}, CODEBOOK)
    assert isinstance(lantern, LANTERN)
    assert (lantern.k, lantern.delta) == (5, 0.2)
    assert create("lantern++", None, CODEBOOK) == LANTERNPlusPlus(CODEBOOK, 10, 5.0)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("best", {}, "no acceptance rule 'best': the known ones are lossless, csd"),
        ("lossless", {"lam": 1}, "'lam'; the rule takes no parameter"),
        ("csd", {"lambda": 1}, "'lambda'; do you mean 'lam'? the rule takes lam, delta"),
        ("csd", {"mood": 1}, "'mood'; the rule takes lam, delta"),
        ("gsd", {"codebook": 1}, "'codebook'; the rule takes group, distance, gap"),
        ("csd", {"lam": -0.1}, "csd: lam is -0.1, but must be a number of at least 0"),
        ("csd", {"delta": 1.5}, "csd: delta is 1.5, but must be a number from 0 to 1"),
        ("csd", {"lam": float("nan")}, "csd: lam is nan"),
        ("csd", {"lam": float("inf")}, "csd: lam is inf"),
        ("csd", {"lam": "much"}, "csd: lam is 'much'"),
        ("csd", {"lam": True}, "csd: lam is True"),
        ("addition", {"epsilon": 2}, "addition: epsilon is 2"),
        ("amplify", {"factor": 0.9}, "amplify: factor is 0.9"),
        ("gsd", {"group": 0}, "gsd: group is 0, but must be a whole number from 1 to 1000000"),
        ("gsd", {"group": 1e30}, "gsd: group is 1e+30"),
        ("gsd", {"group": 10**400}, "gsd: group is 1000"),
        ("cool", {"weight": float("inf")}, "cool: weight is inf"),
        ("gsd", {"group": 2.5}, "gsd: group is 2.5"),
        ("cool", {"weight": 0.5}, "cool: weight is 0.5"),
        ("cool", {"decay": 1.5}, "cool: decay is 1.5"),
        ("lantern", {}, "lantern: the rule compares codes, give it the tokenizer's codebook"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError) as error:
        create(name, parameters)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("lantern", {"k": 0}), ("lantern++", {"k": 1e7}), ("lantern", {"delta": 2}), ("lantern++", {"lam": 0})],
)
def test_what_is_wrong_with_a_neighbourhood_is_named(name: str, bad: dict[str, float]) -> None:
    with pytest.raises(RuleError, match=next(iter(bad))):
        create(name, bad, CODEBOOK)


def test_rules_without_codes_ignore_the_codebook() -> None:
    assert create("amplify", {"factor": 2.0}, CODEBOOK) == Amplify(2.0)
