"""Plans: small TOML files, checked field by field; the ones that ship are among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pixdraft.trials.methods import MethodError
from pixdraft.trials.plan import Local, Plan, PlanError, read
from repository import ROOT

SHIPPED = sorted((ROOT / "benchmarks" / "plans").glob("*.toml"))
TEXT = """
title = "Two of them"
prompts = 30
seeds = 2
baseline = "AR"
pareto = "cloud_share"

[methods]
"SJD, left" = "sjd:init=left"
AR = "cloud"

[metrics]
clip = "there/clip"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "two.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_plan_is_read(tmp_path: Path) -> None:
    plan = read(written(tmp_path, TEXT))
    assert plan == Plan(
        "two",
        {"SJD, left": "sjd:init=left", "AR": "cloud"},
        "Two of them",
        30,
        2,
        baseline="AR",
        pareto="cloud_share",
        metrics=Local(clip=Path("there/clip")),
    )
    assert list(plan.methods) == ["SJD, left", "AR"]
    assert plan.to_dict()["metrics"] == {"clip": "there/clip", "hpsv2": None, "inception": None, "pictures": None}


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    plan = read(written(tmp_path, '[methods]\nAR = "cloud"\nJD = "jd"'))
    assert (plan.baseline, plan.prompts, plan.seeds, plan.pareto, plan.captions) == ("AR", 200, 1, "steps", None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("prompts = 30", "prompts = 0"), "prompts is 0: give a whole number"),
        (("seeds = 2", "seeds = true"), "seeds is True: give a whole number"),
        (("seeds = 2", "seed = 2"), r"no field 'seed': do you mean 'seeds'\? the known ones are name, methods"),
        (('baseline = "AR"', 'baseline = "ER"'), "baseline is 'ER': take one of SJD, left, AR"),
        (('"cloud_share"', '"money"'), "pareto is 'money': take steps or cloud_share"),
        (('"Two of them"', "2"), "title is 2: give text"),
        (('"sjd:init=left"', "7"), "the method 'SJD, left' is 7: write it as text"),
        (("clip =", "klip ="), "there is no field 'metrics.klip'"),
        (('"there/clip"', "3"), "metrics.clip is 3: give a path"),
        (("prompts = 30", 'name = "a/b"'), "name is 'a/b'"),
        (("[methods]", "[methods"), "cannot be read as a plan"),
        (("[methods]", "[other]"), "there is no field 'other'"),
        (('AR = "cloud"', ""), "baseline is 'AR'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(PlanError, match=words):
        read(written(tmp_path, TEXT.replace(*change)))


def test_a_method_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match="'sjd init' is no method"):
        read(written(tmp_path, TEXT.replace("sjd:init=left", "sjd init")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"gone\.toml cannot be read as a plan"):
        read(tmp_path / "gone.toml")


def test_no_method_is_no_plan() -> None:
    with pytest.raises(PlanError, match="there is no method"):
        Plan("empty", {})


def test_inception_over_captions_needs_pictures() -> None:
    some: dict[str, Any] = {"methods": {"AR": "cloud"}, "captions": Path("coco.json")}
    with pytest.raises(PlanError, match=r"give metrics\.pictures"):
        Plan("coco", **some, metrics=Local(inception=Path("w.pth")))
    assert Plan("coco", **some, metrics=Local(inception=Path("w.pth"), pictures=Path("val"))).captions


def test_some_methods_of_a_plan_keep_its_baseline(tmp_path: Path) -> None:
    plan = Plan("three", {"AR": "cloud", "JD": "jd", "SJD": "sjd"})
    assert dict(plan.only(["SJD"]).methods) == {"AR": "cloud", "SJD": "sjd"}
    with pytest.raises(PlanError, match="there is no method 'XD': take some of AR, JD, SJD"):
        plan.only(["XD"])


def test_flags_go_over_the_plan() -> None:
    plan = Plan("one", {"AR": "cloud"}, metrics=Local(clip=Path("a")))
    changed = plan.changed({"clip": None, "hpsv2": Path("b")}, prompts=3, seeds=None)
    assert (changed.prompts, changed.seeds, changed.metrics) == (3, 1, Local(clip=Path("a"), hpsv2=Path("b")))


def test_plans_ship() -> None:
    assert {file.stem for file in SHIPPED} == {"csd", "draft-free", "drafted", "collaborative"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_plans_compare_with_the_full_model(file: Path) -> None:
    plan = read(file)
    assert plan.methods[plan.baseline] == "cloud"
    assert plan.prompts >= 200
    assert plan.title
