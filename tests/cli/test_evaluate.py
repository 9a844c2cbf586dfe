"""`pixdraft evaluate` hands its options to the evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import Run, sentence
from pixdraft.trials import compare, evaluate, in_graph, rule_cost, smoothness
from pixdraft.trials.plan import Local, Plan

PLAN = '[methods]\nAR = "cloud"\nSJD = "sjd"\n'


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the comparison was called with; it leaves a table."""
    calls: list[Any] = []

    def fake(plan: Plan, model: str, data: Path, out: Path, workers: int, command: str) -> dict[str, Any]:
        calls.append((plan, model, data, out, workers, command))
        (out / f"{plan.name}.txt").write_text("a table\n", encoding="utf-8")
        return {"rows": []}

    monkeypatch.setattr(compare, "compare", fake)
    (tmp_path / "some.toml").write_text(PLAN, encoding="utf-8")
    return calls


@pytest.mark.parametrize("verb", [["evaluate", "compare"], ["evaluate"]])
def test_a_plan_is_compared(run: Run, compared: list[Any], verb: list[str]) -> None:
    result = run(
        *verb, "--plan", "some.toml", "--prompts", 5, "--workers", 1, "--clip", "clip-folder", "--out", "there"
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "a table\n"
    plan, model, data, out, workers, command = compared[0]
    assert plan == Plan("some", {"AR": "cloud", "SJD": "sjd"}, prompts=5, metrics=Local(clip=Path("clip-folder")))
    assert (model, data, out, workers) == ("emoji", Path("runs/emoji"), Path("there"), 1)
    said = "--plan some.toml --prompts 5 --model emoji --workers 1 --clip clip-folder"
    assert command == f"pixdraft evaluate {said}"


def test_methods_are_compared_without_a_plan(run: Run, compared: list[Any]) -> None:
    words = ["--method", "AR=cloud", "--method", "ciar:rate=0.3+csd:delta=0.35@rho=0.06", "--seeds", 2, "--json"]
    result = run("evaluate", *words)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {"rows": []}
    plan, command = compared[0][0], compared[0][-1]
    ciar = "ciar:rate=0.3+csd:delta=0.35@rho=0.06"
    assert plan == Plan("methods", {"AR": "cloud", ciar: ciar}, seeds=2)
    assert command == f"pixdraft evaluate --method AR=cloud --method {ciar} --seeds 2 --model emoji --workers 2"


def test_some_methods_of_a_plan(run: Run, compared: list[Any]) -> None:
    assert run("evaluate", "--plan", "some.toml", "--only", "AR").exit_code == 0
    assert dict(compared[0][0].methods) == {"AR": "cloud"}
    assert compared[0][0].name == "some.only-AR"  # the whole plan's files stay


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either a plan or methods"),
        (["--plan", "some.toml", "--method", "cloud"], "give either a plan or methods"),
        (["--plan", "gone.toml"], "gone.toml cannot be read as a plan"),
        (["--plan", "some.toml", "--only", "XD"], "there is no method 'XD'"),
        (["--method", "cloud", "--method", "cloud"], "'cloud' is given twice"),
        (["--method", "cloud:rate"], "'rate' is no parameter"),
        (["--method", "cloud", "--prompts", "0"], "--prompts"),
        (["--method", "cloud", "--prompts", "99999999999999999999"], "prompts is 99999999999999999999: give at most"),
        (["--method", "cloud", "--seeds", "99999999999999999999"], "seeds is 99999999999999999999: give at most"),
        (["--method", " =cloud"], "the label '' is blank"),
        (["--method", "A\nR=cloud"], "cannot stand in a table"),
    ],
)
def test_a_comparison_names_mistakes(run: Run, compared: list[Any], words: list[str], said: str) -> None:
    result = run("evaluate", "compare", *words)
    assert result.exit_code == 2
    assert said in sentence(result)
    assert not compared


@pytest.mark.parametrize("taken", [".txt", ".png"])
def test_a_place_that_cannot_be_written_is_told_before_drawing(
    run: Run, compared: list[Any], tmp_path: Path, taken: str
) -> None:
    (tmp_path / "there" / f"some{taken}").mkdir(parents=True)
    result = run("evaluate", "--plan", "some.toml", "--out", "there")
    assert result.exit_code == 2
    assert f"cannot write there/some{taken}" in (said := sentence(result))
    assert "--out" in said
    assert not compared


def test_a_place_below_a_file_is_told_before_drawing(run: Run, compared: list[Any]) -> None:
    result = run("evaluate", "--plan", "some.toml", "--out", "some.toml/there")
    assert result.exit_code == 2
    assert "--out" in sentence(result)
    assert not compared


def test_pictures_without_a_metric_for_them_are_refused(run: Run, tmp_path: Path) -> None:
    result = run("evaluate", "--method", "cloud", "--pictures", tmp_path)
    assert result.exit_code == 2
    assert "no metric would look at metrics.pictures (--pictures)" in sentence(result)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("relaxatoin", "there is no verb 'relaxatoin': do you mean 'relaxation'? the verbs are compare, "),
        ("mine", "a plan is given as --plan FILE"),
        ("mine.toml", "'mine.toml' is no verb: if it is a plan, write --plan before it"),
    ],
)
def test_a_word_that_is_no_verb_gets_a_hint(run: Run, word: str, said: str) -> None:
    result = run("evaluate", word, "--prompts", 5)
    assert result.exit_code == 2
    assert said in sentence(result)


def test_a_policy_that_is_not_there_is_one_sentence(run: Run) -> None:
    result = run("evaluate", "--method", "telepathy")
    assert result.exit_code == 2
    assert "the method 'telepathy' cannot run here: there is no policy 'telepathy'" in sentence(result)


def test_the_model_s_parts_get_their_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(evaluate, "main", lambda *options: called.append(options))
    words = ["there", "--pictures", 3, "--out", "tables", "--part", "sheet", "--part", "guidance"]
    result = run("evaluate", "model", *words)
    assert result.exit_code == 0
    assert called == [(Path("there"), "emoji", 3, 2, Path("tables"), ("sheet", "guidance"))]
    assert result.stdout.split() == ["tables/sheet.json", "tables/guidance.json"]


def test_an_unknown_part_is_named(run: Run) -> None:
    result = run("evaluate", "model", "--part", "weather")
    assert result.exit_code == 2
    assert "there is no part 'weather'" in sentence(result)


def test_no_pictures_are_refused(run: Run) -> None:
    result = run("evaluate", "model", "--pictures", 0)
    assert result.exit_code == 2
    assert "--pictures" in sentence(result)


def test_a_relaxation_is_mapped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def fake(*options: Any) -> dict[str, Any]:
        called.append(options)
        return {"verdicts": ["smooth regions accept more: undecided"]}

    monkeypatch.setattr(smoothness, "run", fake)
    result = run("evaluate", "relaxation", "--prompt", "red apple", "--seed", 4, "--pictures", 1, "--out", "there")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == ["smooth regions accept more: undecided", "there/relaxation.png"]
    method, asked, model, out, command = called[0]
    assert (method, asked, model, out) == (smoothness.METHOD, [("red apple", 4)], "emoji", Path("there"))
    assert command.startswith("pixdraft evaluate relaxation --method sjd:init=uniform")


def test_a_rule_s_cost_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def fake(*options: Any) -> dict[str, Any]:
        called.append(options)
        return {"median_ms": {"pass": 35.4, "entropy": 0.038}, "share": 0.0016, "published": rule_cost.PUBLISHED}

    monkeypatch.setattr(rule_cost, "run", fake)
    result = run("evaluate", "rule-cost", "--shape", "B", "--rounds", 7)
    assert result.exit_code == 0, result.stderr
    assert called[0][0] == rule_cost.setting("B", 16, 7, "cpu", "float32")
    assert result.stdout.splitlines() == [
        "pass         35.4000 ms",
        "entropy       0.0380 ms",
        "entropy, TV and filter: 0.160% of the pass; the paper says 0.17%",
    ]
    assert "there is no shape 'huge'" in sentence(run("evaluate", "rule-cost", "--shape", "huge"))
    refused = run("evaluate", "rule-cost", "--device", "foo")
    assert "there is no device 'foo'" in sentence(refused)
    assert refused.exit_code == 2


def test_the_tail_of_a_graph_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def fake(*options: Any) -> dict[str, Any]:
        called.append(options)
        return {"cases": [], "missing": {"executorch": "it is not installed"}}

    monkeypatch.setattr(in_graph, "run", fake)
    result = run("evaluate", "in-graph", "--target", "onnx", "--quant", "fp32", "--rounds", 3, "--out", "there")
    assert result.exit_code == 0, result.stderr
    given, out, command = called[0]
    assert given == in_graph.setting((), ["onnx"], "fp32", 1.0, 20, 3)
    assert out == Path("there")
    assert command.startswith("pixdraft evaluate in-graph --target onnx --quant fp32 --temperature 1.0")
    assert result.stdout.splitlines()[1:] == ["executorch is left out: it is not installed"]
    assert "onnx is not timed as '8da4w'" in sentence(
        run("evaluate", "in-graph", "--target", "onnx", "--quant", "8da4w")
    )


def test_help_lists_the_verbs(run: Run) -> None:
    for words in (["evaluate"], ["evaluate", "--help"]):
        shown = run(*words)
        for verb in ("compare", "model", "relaxation", "rule-cost", "in-graph"):
            assert verb in shown.stdout + shown.stderr
        assert "evaluate compare --help" in " ".join((shown.stdout + shown.stderr).split())
