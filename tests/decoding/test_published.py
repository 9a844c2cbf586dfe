"""What the papers published, by rule and model family."""

from __future__ import annotations

import numpy as np
import pytest

from pixdraft.decoding.acceptance import RULES, RuleError, create
from pixdraft.decoding.published import FAMILIES, defaults, published

CODEBOOK = np.random.default_rng(0).normal(size=(8, 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_setting_builds_its_rule(family: str) -> None:
    assert set(FAMILIES[family].rules) <= set(RULES)
    for name in FAMILIES[family].rules:
        for setting in published(name, family):
            rule = create(name, setting, CODEBOOK)
            assert {key: getattr(rule, key) for key in setting} == setting


def test_the_numbers_are_the_papers() -> None:
    assert defaults("csd", "lumina-mgpt") == {"lam": 0.5, "delta": 0.35}
    assert [s["delta"] for s in published("csd", "janus-pro-1b")] == [0.35, 0.65]
    assert [s["delta"] for s in published("csd", "janus-pro-7b")] == [0.65, 0.8]
    assert (defaults("addition", "lumina-mgpt"), defaults("addition", "janus-pro-7b")) == (
        {"epsilon": 0.1},
        {"epsilon": 0.4},
    )
    assert (defaults("amplify", "lumina-mgpt"), defaults("amplify", "janus-pro-7b")) == ({"factor": 1.3}, {"factor": 4})
    assert (defaults("gsd", "lumina-mgpt"), defaults("gsd", "janus-pro-1b")) == ({"group": 3}, {"group": 35})
    assert defaults("lantern", "llamagen") == {"k": 1000, "delta": 0.1}
    assert [(s["k"], s["lam"]) for s in published("lantern++", "llamagen")] == [(10, 5), (5, 10), (5, 20)]
    assert FAMILIES["lumina-mgpt"].sampling == {"guidance": 3, "top_k": 2000}
    assert FAMILIES["janus-pro-7b"].sampling == {"guidance": 5}


def test_a_table_row_cannot_be_changed_by_its_reader() -> None:
    defaults("csd", "lumina-mgpt")["delta"] = 1.0
    assert defaults("csd", "lumina-mgpt")["delta"] == 0.35


@pytest.mark.parametrize(
    ("rule", "family", "sentence"),
    [
        ("csd", "gpt", "no model family 'gpt': the known ones are lumina-mgpt, janus-pro-1b"),
        ("lantern", "janus-pro-7b", "no parameters of 'lantern' are published for janus-pro-7b: take those for llama"),
        ("cool", "llamagen", "no parameters of 'cool' are published for llamagen: give them by hand"),
    ],
)
def test_what_is_not_published_says_so(rule: str, family: str, sentence: str) -> None:
    with pytest.raises(RuleError, match=sentence):
        defaults(rule, family)
