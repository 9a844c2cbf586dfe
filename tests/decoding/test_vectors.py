"""Golden values, to 1e-9: the same file stands beside every port."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixdraft.decoding import acceptance, intervals, rng, sampling

VECTORS = json.loads((Path(__file__).parent / "vectors" / "decoding.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = VECTORS["cases"]
case = pytest.mark.parametrize("case", CASES, ids=[f"{i}-V{c['V']}" for i, c in enumerate(CASES)])


def near(value: Any) -> Any:
    return pytest.approx(value, rel=0, abs=1e-9)


@case
def test_intervals(case: dict[str, Any]) -> None:
    lower, upper = intervals.fuse(np.array(case["center"]), np.array(case["radius"]))
    assert lower[:8] == near(case["lower_head"])
    assert upper[:8] == near(case["upper_head"])
    assert lower.sum() == near(case["lower_sum"])
    assert upper.sum() == near(case["upper_sum"])
    assert intervals.uncertainty(lower, upper) == pytest.approx(case["uncertainty"], rel=1e-9)


@case
def test_distributions(case: dict[str, Any]) -> None:
    q, p = np.array(case["q"]), np.array(case["p"])
    assert sampling.probabilities(np.array(case["center"])) == near(p)
    assert sampling.entropy(q) == near(case["entropy_nats"])
    assert sampling.total_variation(p, q) == near(case["tv"])


@case
def test_rules_without_a_codebook(case: dict[str, Any]) -> None:
    q, p, x = np.array(case["q"]), np.array(case["p"]), case["token"]
    assert acceptance.Lossless().probability(q, p, x) == near(case["lossless"])
    assert acceptance.Addition(0.1).probability(q, p, x) == near(case["addition_0.1"])
    assert acceptance.Amplify(1.3).probability(q, p, x) == near(case["amplify_1.3"])
    assert acceptance.Lossless().residual(q, p, x)[:8] == near(case["residual_head"])
    for csd in case["csd"]:
        assert acceptance.CSD(csd["lam"], csd["delta"]).probability(q, p, x) == near(csd["probability"])


@pytest.mark.parametrize("case", [c for c in CASES if c["codebook"]], ids=lambda c: f"V{c['V']}")
def test_lantern(case: dict[str, Any]) -> None:
    q, p, x, codebook = np.array(case["q"]), np.array(case["p"]), case["token"], np.array(case["codebook"])
    rules = {
        "lantern_k10_delta0.1": acceptance.LANTERN(codebook, k=10, delta=0.1),
        "lantern++_k10_lambda5": acceptance.LANTERNPlusPlus(codebook, k=10, lam=5),
    }
    for key, rule in rules.items():
        assert rule.mass(q, x) == near(case[key]["mass"])
        assert len(rule.neighbours(q, x)) == case[key]["neighbours"]
        assert rule.probability(q, p, x) == near(min(1.0, case[key]["mass"] / p[x]))


def test_rng() -> None:
    rows = VECTORS["rng"]
    assert len(rows) == 64
    assert [rng.uniform(r["seed"], r["position"], r["stream"]) for r in rows] == [r["uniform"] for r in rows]
