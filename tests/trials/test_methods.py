"""Methods as one line of text, and what the installed version says of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pixdraft.models.registry import ModelFolder, find
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.policies import POLICIES, CiarPolicy, SjdPolicy
from pixdraft.trials.methods import Described, MethodError, check, parse
from repository import ROOT
from tiny import GUIDANCE


@pytest.fixture(scope="module")
def folder(model: str) -> ModelFolder:
    return find(model)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cloud", Described("cloud")),
        (" sjd : init = left , window=8 ", Described("sjd", {"init": "left", "window": 8})),
        ("speculative+lantern++", Described("speculative", rule="lantern++")),
        ("speculative+lantern++:k=5,lam=10", Described("speculative", {}, "lantern++", {"k": 5, "lam": 10})),
        ("ciar:tau=1e+3", Described("ciar", {"tau": 1000.0})),
        ("ciar:statistic=discrete-100", Described("ciar", {"statistic": "discrete-100"})),
        (
            "ciar:rate=0.3 + csd:delta=0.65 @ rho=0.06,top_k=200,conditioning=no",
            Described(
                "ciar", {"rate": 0.3}, "csd", {"delta": 0.65}, {"rho": 0.06, "conditioning": False}, {"top_k": 200}
            ),
        ),
        ("cloud@temperature=0.9", Described("cloud", sampling={"temperature": 0.9})),
    ],
)
def test_a_method_is_read(text: str, expected: Described) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is no method: write POLICY"),
        ("ciar rate=0.3", "is no method: write POLICY"),
        ("ciar:rate", "'rate' is no parameter: write name=value"),
        ("ciar:rate=0.3,rate=0.4", "rate is given twice"),
        ("ciar@colour=red", "'colour' is unknown after the @: take rho, "),
        ("ciar@guidence=2", r"'guidence' is unknown after the @: do you mean 'guidance'\? take rho, "),
        ("sjd+csd:delta=much", "the rule's delta is 'much': give a number"),
        ("speculative:gamma=nan", "gamma is nan: give a finite number"),
        ("ciar:tau=inf", "tau is inf: give a finite number"),
        ("ciar:tau=-1e999", "tau is -1e999: give a finite number"),
        ("ciar@draft_top_k=nan", "draft_top_k is nan: give a finite number"),
        ("speculative+cool:weight=inf", "weight is inf: give a finite number"),
        (f"sjd:window=1{'0' * 400}", "window is 10{63}: give a finite number"),
        ("ciar@conditioning=bogus", "conditioning is 'bogus': give yes or no"),
        ("cloud@conditioning=low", "conditioning is 'low': give yes or no"),
        ("ciar@conditioning=1", "conditioning is 1: give yes or no"),
        ("ciar@rho=much", "rho is 'much': give a number"),
        ("cloud@temperature=yes", "temperature is True: give a number"),
    ],
)
def test_what_is_no_method(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        parse(text)


def test_a_method_asks_for_pictures(folder: ModelFolder) -> None:
    method = check("ciar:rate=0.5 + csd:lam=0.5,delta=0.65 @ rho=0.1,top_k=5", folder)
    request = method.ask_for("red apple", 7)
    assert (request.prompt, request.seed) == ("red apple", 7)
    assert request.policy == CiarPolicy(rate=0.5)
    assert request.rule == Rule("csd", {"lam": 0.5, "delta": 0.65})
    assert request.sampling == Sampling(guidance=GUIDANCE, top_k=5)  # the model's own, where none is given
    assert request.rho == 0.1
    plain = check("sjd:init=uniform", folder).ask_for("red apple", 7)
    assert (plain.policy, plain.rule, plain.sampling) == (SjdPolicy(init="uniform"), Rule(), None)


def test_equal_methods_share_a_label(folder: ModelFolder) -> None:
    labels = {check(text, folder).label for text in ("sjd:window=8,init=left", "sjd : init=left, window=8 + lossless")}
    assert len(labels) == 1
    others = ("sjd:window=9,init=left", "sjd:window=8,init=left+csd", "sjd:window=8,init=left@top_k=5")
    assert not labels & {check(text, folder).label for text in others}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("telepathy", "the method 'telepathy' cannot run here: there is no policy 'telepathy': the known ones are"),
        ("ciar:mood=good", "the policy 'ciar' has no parameter 'mood'"),
        ("ciar:rate=much", "cannot run here"),
        ("ciar:statistic=weather", "there is no statistic 'weather'"),
        ("ciar@guidance=9", "the draft 'tiny' learned 2"),
        ("sjd+kindness", "there is no acceptance rule 'kindness'"),
        ("sjd+csd:delta=2", "delta is 2, but must be"),
        ("sjd+lantern:depth=2", "there is no parameter 'depth'"),
        ("sjd:window=0", "window is 0"),
        ("device@rho=0.5", "takes no prefix"),
        ("speculative:gamma=1.5", r"gamma is 1\.5: give the tokens of a block, a whole number from 1 to 256"),
        ("speculative:gamma=1000", "gamma is 1000: give"),
        ("speculative:gamma=1e30", r"gamma is 1e\+30: give"),
        ("speculative:gamma=abc", "gamma is 'abc': give"),
        ("ciar:rate=yes", "rate is True: give a share"),
        ("cloud + csd", "rule is 'csd', but under the policy 'cloud' no rule judges: leave rule out"),
        ("device + csd:lam=0.5", "under the policy 'device' no rule judges"),
        ("jd + csd", "under the policy 'jd' no rule judges"),
        ("code + csd", "under the policy 'code' no rule judges"),
        ("cloud@draft_top_k=5", "draft_top_k is of the draft, but the policy 'cloud' draws without one: leave draft_"),
        ("jd@draft_temperature=0.5", "draft_temperature is of the draft, but the policy 'jd' draws without one"),
        ("sjd@draft_top_k=5", "the policy 'sjd' draws without one"),
        ("eagle2@draft_top_k=5", "the policy 'eagle2' draws without one"),
        ("ciar@draft_top_k=1.5", r"draft_top_k is 1\.5: give a whole number from 1 to 2147483647, or 0 to keep every"),
        ("sjd@top_k=99999999999999999999999999", "top_k is 9{26}: it must be a whole number from 0 to 2147483647"),
        ("sjd+gsd:group=1000001", "group is 1000001, but must be a whole number from 1 to 1000000"),
        ("speculative+lantern:k=1e30", r"k is 1e\+30, but must be a whole number from 1 to 1000000"),
    ],
)
def test_what_cannot_run_is_one_sentence(folder: ModelFolder, text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words) as refused:
        check(text, folder)
    assert text.split("@")[0] in str(refused.value)


@pytest.mark.parametrize("text", ["code:share=0.3", "device", "speculative:gamma=256", "ciar + csd"])
def test_what_drafts_takes_what_is_of_the_draft(folder: ModelFolder, text: str) -> None:
    request = check(f"{text} @ draft_top_k=5,draft_temperature=0.5", folder).ask_for("x", 0)
    assert (request.draft_top_k, request.draft_temperature) == (5, 0.5)


def test_a_whole_float_is_a_whole_number(folder: ModelFolder) -> None:
    request = check("speculative:gamma=8.0 @ top_k=1e2,draft_top_k=5.0", folder).ask_for("x", 0)
    assert request.sampling is not None
    assert repr((request.policy, request.sampling.top_k, request.draft_top_k)) == "(SpeculativePolicy(gamma=8), 100, 5)"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_lossless_rule_goes_with_every_policy(folder: ModelFolder, policy: str) -> None:
    files = {**folder.config["files"], "eagle.safetensors": "0"}
    drafted = ModelFolder(folder.path, {**folder.config, "files": files})
    assert check(f"{policy} + lossless", drafted).ask_for("x", 0).rule == Rule()


PLANS = sorted((ROOT / "benchmarks" / "plans").glob("*.toml"))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_the_methods_of_the_shipped_plans_can_run(folder: ModelFolder, plan: Path) -> None:
    files = {**folder.config["files"], "eagle.safetensors": "0"}
    drafted = ModelFolder(folder.path, {**folder.config, "files": files})
    for text in tomllib.loads(plan.read_text(encoding="utf-8"))["methods"].values():
        assert check(text, drafted).policy in POLICIES


def test_a_model_without_a_drafter_grows_no_trees(folder: ModelFolder) -> None:
    assert not folder.has_eagle
    with pytest.raises(MethodError, match=r"has no drafter \(eagle\.safetensors\): run `pixdraft train eagle`"):
        check("eagle2 + lantern:k=3", folder)
    files = {**folder.config["files"], "eagle.safetensors": "0"}
    drafted = ModelFolder(folder.path, {**folder.config, "files": files})
    assert check("eagle2:depth=2 + lantern:k=3", drafted).parameters == {"depth": 2}


def test_a_codebook_rule_needs_no_codebook_yet(folder: ModelFolder) -> None:
    rule: Any = check("speculative+lantern:k=3,delta=0.2", folder).ask_for("x", 0).rule
    assert rule == Rule("lantern", {"k": 3, "delta": 0.2})
