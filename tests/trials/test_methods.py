"""Methods as one line of text, and what the installed version says of them."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.models.registry import ModelFolder, find
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.policies import CiarPolicy, SjdPolicy
from pixdraft.trials.methods import Described, MethodError, check, parse
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
    ],
)
def test_what_cannot_run_is_one_sentence(folder: ModelFolder, text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words) as refused:
        check(text, folder)
    assert text.split("@")[0] in str(refused.value)


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
