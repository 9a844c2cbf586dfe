"""The papers' figures: they say what the specification says, and stand beside the right methods."""

from __future__ import annotations

import pytest

from pixdraft.decoding.acceptance import RULES
from pixdraft.decoding.published import FAMILIES
from pixdraft.runtime.policies import POLICIES
from pixdraft.trials.methods import parse
from pixdraft.trials.published import FIGURES, beside


def models(text: str) -> dict[str, float | None]:
    """Steps of the figures beside a method, by the model that the paper ran."""
    return {figure.model: figure.steps for figure in beside(parse(text).method(1.0))}


def test_every_figure_names_a_way_to_draw() -> None:
    for figure in FIGURES:
        said = parse(figure.method)
        assert said.policy in POLICIES
        assert said.rule in RULES
        assert figure.source
        assert figure.standing


def test_csd_stands_beside_its_own_delta() -> None:
    csd = "sjd:init=uniform + csd:lam=0.5,delta="
    assert models(f"{csd}0.35") == {"Lumina-mGPT 7B, 768 px": 922.8, "Janus-Pro 1B, 384 px": 270.9}
    assert models(f"{csd}0.65") == {"Janus-Pro 1B, 384 px": 173.0, "Janus-Pro 7B, 384 px": 166.1}
    assert models("sjd + csd") == models(f"{csd}0.65")  # by the rule's defaults
    assert models(f"{csd}0.7") == {}
    assert models("speculative + csd:delta=0.65") == {}


def test_a_coupled_method_is_not_the_published_one() -> None:
    assert len(models("sjd:init=left")) == 3
    assert models("sjd:coupling=gumbel") == {}
    assert models("sjd:coupling=none + cool") == {}


def test_ciar_is_published_with_its_own_statistic_and_three_others() -> None:
    found = beside(parse("ciar:statistic=interval,rate=0.3").method(1.0))
    assert [(f.latency_x, f.cloud_share, f.fid) for f in found] == [
        (2.53, 0.3044, 24.25),
        (2.13, 0.3446, 39.31),
        (1.87, 0.2988, 23.86),
    ]
    assert found[0].fid_x == pytest.approx(24.25 / 23.69)
    assert len(beside(parse("ciar:statistic=random").method(1.0))) == 1
    assert beside(parse("ciar:statistic=risk").method(1.0)) == []
    assert beside(parse("ciar:statistic=interval + csd").method(1.0)) == []


def test_ratios_agree_with_the_steps_of_plain_decoding() -> None:
    plain = {figure.model: figure.steps for figure in FIGURES if figure.method == "cloud" and figure.steps}
    for figure in FIGURES:
        if figure.steps is not None:
            base = plain[figure.model]
            assert base is not None
            assert figure.step_x == pytest.approx(base / figure.steps, rel=0.02)
    best = next(f for f in FIGURES if f.steps == 134.3)
    assert (best.step_x, best.latency_x) == (4.29, 4.33)


def test_the_settings_are_those_that_rules_are_published_with() -> None:
    for figure in FIGURES:
        said = parse(figure.method)
        if said.rule in ("csd", "gsd", "addition", "amplify"):
            settings = [s for family in FAMILIES.values() for s in family.rules.get(said.rule, ())]
            assert said.rule_parameters in [dict(setting) for setting in settings]
