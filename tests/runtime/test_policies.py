"""Who asks, when; and what is refused, in one sentence."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from fakes import TableDraft, TableTarget
from pixdraft.decoding import strategies
from pixdraft.decoding.statistics import STATISTICS, Evidence
from pixdraft.protocol.frames import Strategy
from pixdraft.runtime import policies
from pixdraft.runtime.errors import RequestError
from pixdraft.runtime.policies import POLICIES, CiarPolicy, CodePolicy, SpeculativePolicy

INFO = TableDraft(TableTarget()).info


def evidence(risk: float, position: int = 0) -> Evidence:
    center = np.array([2.0, 1.0, 0.0])
    p = np.exp(center) / np.exp(center).sum()
    return Evidence(center, np.full(3, 0.5), p, risk, 7, position)


def test_every_policy_is_known_by_its_name() -> None:
    assert list(POLICIES) == ["cloud", "jd", "sjd", "eagle2", "device", "code", "speculative", "ciar"]
    for name, policy in POLICIES.items():
        assert policies.create(name) == policy()
        assert policy.name == name


def test_parameters_go_through_and_none_means_the_default() -> None:
    assert policies.create("speculative", gamma=7) == SpeculativePolicy(7)
    assert policies.create("ciar", tau=None, rate=0.2, statistic="entropy") == CiarPolicy("entropy", rate=0.2)
    assert policies.create("ciar", tau=np.inf) == CiarPolicy(tau=np.inf)  # asks nothing
    assert policies.create("device", tau=None) == POLICIES["device"]()


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("magic", {}, r"there is no policy 'magic': the known ones are cloud, jd, sjd, eagle2, device, "),
        ("device", {"tau": 0.1}, r"the policy 'device' has no parameter 'tau': leave it out, the policy takes none"),
        ("ciar", {"gamma": 2}, r"'ciar' has no parameter 'gamma': .* takes statistic, tau, rate, eta"),
        ("code", {"share": 1.0}, r"share is 1\.0: give what the cloud draws first, at least 0 and below 1"),
        ("code", {"share": float("nan")}, r"share is nan"),
        ("code", {"rate": 0.3}, r"the policy 'code' has no parameter 'rate': leave it out, the policy takes share"),
        ("speculative", {"gamma": 0}, r"gamma is 0: give .* a whole number from 1 to 256"),
        ("speculative", {"gamma": 257}, r"gamma is 257"),
        ("speculative", {"gamma": 1.5}, r"gamma is 1\.5"),
        ("speculative", {"gamma": float("nan")}, r"gamma is nan"),
        ("speculative", {"gamma": "abc"}, r"gamma is 'abc'"),
        ("speculative", {"gamma": True}, r"gamma is True"),
        ("code", {"share": "much"}, r"share is 'much'"),
        ("sjd", {"window": 0}, r"sjd: window is 0: give a whole number from 1 to 256"),
        ("sjd", {"init": "right"}, r"sjd: init is 'right': the known ones are uniform-onehot, left, uniform"),
        ("jd", {"coupling": "maximal"}, r"jd: coupling is 'maximal': the known ones are none, common"),
        ("eagle2", {"depth": 17}, r"eagle2: depth is 17: give a whole number from 0 to 16"),
        ("eagle2", {"window": 4}, r"'eagle2' has no parameter 'window': .* takes total_tokens, depth, top_k"),
        ("eagle2", {"tree_tokens": 4}, r"no parameter 'tree_tokens': do you mean 'total_tokens'\? the policy takes"),
        ("cloud", {"window": 4}, r"'cloud' has no parameter 'window'"),
        ("ciar", {"tau": 0.1, "rate": 0.1}, r"tau and rate are both given"),
        ("ciar", {"tau": -0.1}, r"tau is -0\.1: give a threshold of at least 0"),
        ("ciar", {"tau": float("nan")}, r"tau is nan"),
        ("ciar", {"rate": 1.1}, r"rate is 1\.1: give a share from 0"),
        ("ciar", {"eta": -1.0}, r"eta is -1\.0"),
        ("ciar", {"eta": float("inf")}, r"eta is inf: give a finite number"),
        ("ciar", {"tau": "low"}, r"tau is 'low'"),
        ("ciar", {"rate": "much"}, r"rate is 'much': give a share"),
        ("ciar", {"statistic": "mood"}, r"there is no statistic 'mood': the known ones are interval"),
    ],
)
def test_what_cannot_be_is_one_sentence(name: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        policies.create(name, **parameters)


def test_a_policy_tells_the_cloud_how_to_draw() -> None:
    assert policies.create("cloud").strategy == Strategy()
    made = policies.create("sjd", window=8, coupling="maximal").strategy
    assert made == Strategy("sjd", {"window": 8, "init": "uniform-onehot", "coupling": "maximal"})
    assert policies.create("eagle2", depth=2).strategy == Strategy(
        "eagle2", {"total_tokens": 59, "depth": 2, "top_k": 10}
    )
    for name in ("jd", "sjd", "eagle2"):
        policy = policies.create(name)
        assert (policy.streams, policy.keeps, policy.injects) == (True, False, False)
        assert strategies.create(policy.strategy.name, policy.strategy.parameters).parameters == asdict(policy)


def test_cloud_and_speculative_ask_always_and_device_never() -> None:
    for name, asks in (
        ("cloud", True),
        ("jd", True),
        ("sjd", True),
        ("eagle2", True),
        ("speculative", True),
        ("device", False),
    ):
        judge = POLICIES[name]().judge(INFO)
        assert judge(evidence(0.5)) == (asks, None, None)


@pytest.mark.parametrize(
    ("share", "total", "first"), [(0.3, 256, 76), (0.3, 100, 30), (0.3, 1024, 307), (0.29, 100, 29), (0.0, 16, 0)]
)
def test_code_streams_the_floor_of_its_share(share: float, total: int, first: int) -> None:
    policy = CodePolicy(share)
    assert policy.streamed(total) == first
    judge = policy.judge(replace(INFO, image_tokens=total))
    assert [judge(evidence(0.5, n)).ask for n in range(total)] == [n < first for n in range(total)]


def test_where_a_rule_judges() -> None:
    assert {name for name, policy in POLICIES.items() if policy.ruled} == {"sjd", "eagle2", "speculative", "ciar"}


def test_what_streams_and_what_asks() -> None:
    assert {name: policy().streamed(16) for name, policy in POLICIES.items()} == {
        **dict.fromkeys(["cloud", "jd", "sjd", "eagle2"], 16),
        **dict.fromkeys(["device", "speculative", "ciar"], 0),
        "code": 4,
    }


def test_ciar_asks_from_tau_on() -> None:
    judge = CiarPolicy(tau=0.5).judge(INFO)
    assert judge(evidence(0.49)) == (False, 0.49, 0.5)
    assert judge(evidence(0.5)) == (True, 0.5, 0.5)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_tau_zero_asks_everything_whatever_the_statistic(statistic: str) -> None:
    judge = CiarPolicy(statistic, tau=0.0).judge(INFO)
    assert all(judge(evidence(risk, position)).ask for position, risk in enumerate((0.0, 0.5, 1.0)))
    seen = judge(evidence(0.25, 3)).statistic
    assert seen == float(STATISTICS[statistic](evidence(0.25, 3)))


def test_a_rate_starts_at_the_table_and_is_steered() -> None:
    judge = CiarPolicy(rate=0.3).judge(INFO)
    first, second = judge(evidence(0.9)), judge(evidence(0.0))
    assert (first.ask, first.statistic) == (True, 0.9)
    assert first.tau == pytest.approx(0.7)
    assert second.tau is not None
    assert second.tau > 0.7  # one asked: tau rises
    third = judge(evidence(0.0))
    assert third.tau is not None
    assert third.tau < second.tau
    again = CiarPolicy(rate=0.3).judge(INFO)
    assert again(evidence(0.9)) == first  # every picture starts anew
    held = CiarPolicy(rate=0.3, eta=0.0).judge(INFO)
    assert [held(evidence(0.9)).tau for _ in range(3)] == [pytest.approx(0.7)] * 3


def test_a_rate_is_kept_over_a_picture_unlike_the_held_out_ones() -> None:
    judge = CiarPolicy(rate=0.3).judge(INFO)
    risks = np.random.default_rng(0).uniform(0.2, 0.4, 2000)  # at the table's tau nothing would be asked
    asked = [judge(evidence(risk)).ask for risk in risks]
    assert np.mean(asked[200:]) == pytest.approx(0.3, abs=0.03)


def test_rates_of_none_and_all_hold_exactly() -> None:
    assert not any(CiarPolicy(rate=0.0).judge(INFO)(evidence(1.0)).ask for _ in range(5))
    assert all(CiarPolicy(rate=1.0).judge(INFO)(evidence(0.0)).ask for _ in range(5))


def test_without_a_rate_it_is_thirty_percent() -> None:
    assert CiarPolicy().judge(INFO)(evidence(0.0)).tau == pytest.approx(0.7)


def test_a_draft_that_names_an_unknown_statistic_is_named() -> None:
    with pytest.raises(RequestError, match="names the unknown statistic 'mood'"):
        CiarPolicy().judge(replace(INFO, statistic="mood"))


def test_without_a_table_tau_is_learned_from_the_picture() -> None:
    assert "entropy" not in INFO.thresholds
    for judge in (CiarPolicy("entropy").judge(INFO), CiarPolicy().judge(replace(INFO, thresholds={}))):
        assert judge(evidence(0.3))[::2] == (True, 0.0)  # the first is asked
    judge = CiarPolicy(rate=0.3).judge(replace(INFO, thresholds={}))
    asked = [judge(evidence(risk)).ask for risk in np.random.default_rng(0).uniform(0.2, 0.4, 256)]
    assert np.mean(asked) == pytest.approx(0.3, abs=0.02)
    assert np.mean(asked[:64]) == pytest.approx(0.3, abs=0.1)


def test_random_asks_the_share_it_is_told_and_needs_no_table() -> None:
    judge = CiarPolicy("random", rate=0.2, eta=0.0).judge(INFO)
    seen = [judge(evidence(0.5, position)) for position in range(4000)]
    assert seen[0].tau == pytest.approx(0.8)
    assert np.mean([judgement.ask for judgement in seen]) == pytest.approx(0.2, abs=0.02)
