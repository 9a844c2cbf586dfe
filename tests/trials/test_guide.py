"""What docs/evaluate.md says of plans and methods: every field, as the code has it."""

from __future__ import annotations

import re
from dataclasses import fields

from pixdraft.decoding.acceptance import RULES
from pixdraft.decoding.coupling import COUPLINGS
from pixdraft.decoding.statistics import STATISTICS
from pixdraft.decoding.strategies import INITS
from pixdraft.runtime.policies import POLICIES
from pixdraft.trials.methods import REQUEST, SAMPLING
from pixdraft.trials.plan import LONGEST, MOST, RESERVED, Local, Plan
from repository import ROOT

TOLD = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")


def test_every_field_of_a_rule_is_told_with_its_default() -> None:
    lines = {line.split("`")[1]: line for line in TOLD.splitlines() if line.startswith("| `")}
    for name, rule in RULES.items():
        for field in fields(rule):  # type: ignore[arg-type]
            if field.name != "codebook":
                assert re.search(rf"`{field.name}`[^;|]*\({field.default:g}\)", lines[name]), (name, field.name)


def test_every_field_of_a_policy_and_what_it_may_be_is_told() -> None:
    words = {field.name for policy in POLICIES.values() for field in fields(policy)}
    for word in words.union(INITS, COUPLINGS, STATISTICS, REQUEST, SAMPLING):
        assert f"`{word}`" in TOLD, word


def test_every_field_of_a_plan_is_told() -> None:
    for field in fields(Plan):
        assert re.search(rf"^(# )?(\[{field.name}\]|{field.name} =)", TOLD, re.MULTILINE), field.name
    for field in fields(Local):
        assert f"`--{field.name} " in TOLD, field.name
    for word in (*RESERVED, f"{LONGEST} characters", f"{MOST:,} pictures"):
        assert word in " ".join(TOLD.split())
