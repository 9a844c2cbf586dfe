"""Plans: small TOML files, checked field by field; the ones that ship are among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixdraft.trials.methods import MethodError
from pixdraft.trials.plan import LONGEST, MOST, RESERVED, Local, Plan, PlanError, read
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
        (("prompts = 30", "prompts = 99999999999999999999"), "prompts is 99999999999999999999: give at most 100,000"),
        (("seeds = 2", f"seeds = {'9' * 5000}"), "cannot be read as a plan"),
        (("seeds = 2", "seeds = 4000"), "prompts times seeds is 120,000 pictures a method: lower one"),
        (('"Two of them"', r'"Two\nof them"'), "title is 'Two.*leave out line ends"),
        (('"Two of them"', r'"\u001b[2J"'), "title is .*leave out line ends and control characters"),
        (('"SJD, left"', '" "'), "the label ' ' is blank: give the method 'sjd:init=left' a name"),
        (('"SJD, left"', '""'), "the label '' is blank"),
        (('"SJD, left"', r'"S\tJD"'), "the label .* cannot stand in a table"),
        (('"SJD, left"', r'"S\u2028JD"'), "the label .* cannot stand in a table"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(PlanError, match=words):
        read(written(tmp_path, TEXT.replace(*change)))


def test_a_method_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match="'sjd init' is no method"):
        read(written(tmp_path, TEXT.replace("sjd:init=left", "sjd init")))


def test_an_empty_method_is_named_by_its_label(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match="two: the method 'SJD, left' cannot be read: '' is no method"):
        read(written(tmp_path, TEXT.replace("sjd:init=left", "")))


def test_a_label_fits_the_table() -> None:
    assert Plan("long", {"x" * LONGEST: "cloud"}).methods
    with pytest.raises(PlanError, match="has 61 characters: take at most 60, as LABEL=METHOD for --method"):
        Plan("long", {"x" * (LONGEST + 1): "cloud"})


@pytest.mark.parametrize("label", [*RESERVED, f" {RESERVED[0]}"])
def test_a_label_is_none_of_the_table_s_own_lines(label: str) -> None:
    with pytest.raises(PlanError, match="is the table's own"):
        Plan("own", {"AR": "cloud", label: "sjd"})


def test_as_many_pictures_as_there_may_be() -> None:
    assert Plan("many", {"AR": "cloud"}, prompts=MOST // 2, seeds=2).prompts
    with pytest.raises(PlanError, match="seeds is 100001"):
        Plan("many", {"AR": "cloud"}, prompts=1, seeds=MOST + 1)


def test_a_file_that_gives_no_name_is_told_how_to(tmp_path: Path) -> None:
    file = tmp_path / "my plan.toml"
    file.write_text(TEXT, encoding="utf-8")
    with pytest.raises(PlanError, match='rename it, or give name = "my-plan" in the plan'):
        read(file)
    file.write_text(f'name = "my-plan"\n{TEXT}', encoding="utf-8")
    assert read(file).name == "my-plan"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"gone\.toml cannot be read as a plan"):
        read(tmp_path / "gone.toml")


def test_no_method_is_no_plan() -> None:
    with pytest.raises(PlanError, match="there is no method"):
        Plan("empty", {})


def test_inception_over_captions_needs_pictures() -> None:
    plan = Plan("coco", {"AR": "cloud"}, captions=Path("coco.json"), metrics=Local(inception=Path("w.pth")))
    with pytest.raises(PlanError, match=r"give metrics\.pictures"):
        plan.check_pictures()
    plan.changed({"pictures": Path("val")}).check_pictures()  # a flag may bring what the file lacks


def test_pictures_that_nothing_would_look_at_are_refused() -> None:
    plan = Plan("mine", {"AR": "cloud"}, metrics=Local(clip=Path("clip"), pictures=Path("val")))
    with pytest.raises(PlanError, match=r"no metric would look at metrics\.pictures"):
        plan.check_pictures()
    plan.changed({"inception": Path("w.pth")}).check_pictures()
    plan.changed({}, captions=Path("coco.json")).check_pictures()


def test_some_methods_of_a_plan_keep_its_baseline_and_its_files() -> None:
    plan = Plan("three", {"AR": "cloud", "JD": "jd", "SJD, 1/2": "sjd"})
    some = plan.only(["SJD, 1/2"])
    assert dict(some.methods) == {"AR": "cloud", "SJD, 1/2": "sjd"}
    assert some.name == "three.only-SJD-1-2"
    assert plan.only(["JD", "AR"]).name == "three.only-JD_AR"
    with pytest.raises(PlanError, match="there is no method 'XD': take some of AR, JD, SJD"):
        plan.only(["XD"])


def test_flags_go_over_the_plan() -> None:
    plan = Plan("one", {"AR": "cloud"}, metrics=Local(clip=Path("a")))
    changed = plan.changed({"clip": None, "hpsv2": Path("b")}, prompts=3, seeds=None)
    assert (changed.prompts, changed.seeds, changed.metrics) == (3, 1, Local(clip=Path("a"), hpsv2=Path("b")))


def test_plans_ship() -> None:
    assert {file.stem for file in SHIPPED} == {"csd", "coupled", "draft-free", "drafted", "collaborative"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_plans_compare_with_the_full_model(file: Path) -> None:
    plan = read(file)
    assert plan.methods[plan.baseline] == "cloud"
    assert plan.prompts >= 200
    assert plan.title
