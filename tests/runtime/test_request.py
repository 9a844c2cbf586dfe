"""A request checks itself when it is built."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from fakes import TableDraft, TableTarget
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.errors import DeviceError, RequestError
from pixdraft.runtime.policies import CiarPolicy, CloudPolicy, CodePolicy, DevicePolicy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest

INFO = TableDraft(TableTarget()).info


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt": "  "}, "prompt is empty: say what to draw"),
        ({"seed": -1}, "seed is -1: give a whole number"),
        ({"seed": 1 << 64}, r"below 2\*\*64"),
        ({"rho": -0.1}, r"rho is -0\.1: give the share to inject, at least 0 and below 1"),
        ({"rho": 1.0}, r"rho is 1\.0: give the share to inject, at least 0 and below 1"),
        ({"rho": float("nan")}, "rho is nan"),
        (
            {"rho": 0.1, "policy": DevicePolicy()},
            "the policy 'device' takes no prefix: leave rho out",
        ),
        ({"rho": 0.1, "policy": CloudPolicy()}, "the policy 'cloud' takes no prefix"),
        ({"rho": 0.1, "policy": CodePolicy()}, "the policy 'code' takes no prefix"),
        ({"draft_top_k": -1}, "draft_top_k is -1"),
        ({"draft_top_k": float("nan")}, "draft_top_k is nan: give a whole number from 1 to 2147483647, or 0"),
        ({"draft_top_k": 1 << 31}, "draft_top_k is 2147483648"),
        ({"rule": Rule("kind")}, "rule: there is no acceptance rule 'kind'"),
        ({"rule": Rule("csd", {"delta": -1.0})}, "rule: .*delta"),
        ({"rule": Rule("csd"), "policy": CloudPolicy()}, "under the policy 'cloud' no rule judges: leave rule out"),
        ({"rule": Rule("lantern"), "policy": DevicePolicy()}, "rule is 'lantern', but under the policy 'device'"),
        ({"sampling": Sampling(top_k=1 << 31)}, "top_k is 2147483648: it must be a whole number from 0 to 2147483647"),
        ({"sampling": Sampling(temperature=-1.0)}, r"temperature is -1\.0"),
        ({"sampling": Sampling(top_p=0.0)}, r"top_p is 0\.0"),
        ({"sampling": Sampling(guidance=float("inf"))}, "guidance is inf"),
        ({"sampling": Sampling(guidance=1e308)}, r"guidance is 1e\+308: it must be a number from 0 to 1000"),
        ({"sampling": Sampling(temperature=1e300)}, r"temperature is 1e\+300"),
    ],
)
def test_what_cannot_be_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as caught:
        DrawRequest(**{"prompt": "a fox", **fields})
    assert isinstance(caught.value, DeviceError)
    assert "\n" not in str(caught.value)


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        DrawRequest("a fox").seed = 2  # type: ignore[misc]


def test_a_rule_that_needs_the_codebook_is_left_to_the_cloud() -> None:
    assert DrawRequest("a fox", rule=Rule("lantern", {"k": 10})).rule.name == "lantern"


@pytest.mark.parametrize(
    ("request_", "tokens", "inject"),
    [
        (DrawRequest("a fox"), 256, 15),
        (DrawRequest("a fox"), 1024, 61),
        (DrawRequest("a fox", rho=0.29), 100, 29),
        (DrawRequest("a fox", rho=0.0), 256, 0),
        (DrawRequest("a fox", policy=SpeculativePolicy()), 256, 0),
        (DrawRequest("a fox", policy=SpeculativePolicy(), rho=0.5), 256, 128),
        (DrawRequest("a fox", policy=DevicePolicy(), rho=0.0), 256, 0),
    ],
)
def test_the_prefix_is_the_floor_of_rho_t(request_: DrawRequest, tokens: int, inject: int) -> None:
    assert request_.inject(tokens) == inject


def test_a_fitted_request_leaves_nothing_open() -> None:
    fitted = DrawRequest("a fox").fitted(INFO)
    assert fitted.policy == CiarPolicy("risk", rate=0.3)
    assert fitted.sampling == Sampling(guidance=INFO.guidance)
    assert fitted.rho == 0.06
    assert fitted.fitted(INFO) == fitted
    fixed = DrawRequest("a fox", policy=CiarPolicy("entropy", tau=0.5), rho=0.2)
    assert (fixed.fitted(INFO).policy, fixed.fitted(INFO).rho) == (fixed.policy, 0.2)
    assert DrawRequest("a fox", policy=CloudPolicy()).fitted(INFO).policy == CloudPolicy()


def test_sampling_follows_the_draft_unless_given() -> None:
    assert DrawRequest("a fox").sampling_for(INFO) == Sampling(guidance=INFO.guidance)
    warm = Sampling(guidance=INFO.guidance, temperature=1.2)
    assert DrawRequest("a fox", policy=CiarPolicy(), sampling=warm).sampling_for(INFO) == warm
