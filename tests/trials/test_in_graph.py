"""Top-k and U in the graph or after it: both ways say the same, take turns, and a tail that errs is not timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixdraft.decoding.intervals import fuse, uncertainty
from pixdraft.decoding.sampling import probabilities
from pixdraft.export.errors import ExportError
from pixdraft.export.source import Source, load
from pixdraft.trials import in_graph
from pixdraft.trials.in_graph import GRAPH, HOST, Setting, judge, measure, run, setting, table
from pixdraft.trials.in_graph_passes import FEW, FEW_U, GIVES, WHOLE, Arrays, Built, build, only, with_tail
from pixdraft.trials.in_graph_ways import BOUNDS, Draw, NumbersDifferError, check, from_graph, on_host, walk
from tiny import BOTTLENECK, SHAPE

KEPT = 5
DRAW = Draw(0.7, KEPT)


def outputs(seed: int, codes: int = SHAPE.vocab_size) -> Arrays:
    """What a pass may give, in float32; ``u`` and the rest of the tail by numpy."""
    rng = np.random.default_rng(seed)
    center, radius = rng.normal(0, 3, (1, codes)).astype(np.float32), rng.uniform(0, 2, (1, codes)).astype(np.float32)
    p = probabilities(center[0], DRAW.temperature)
    ids = np.argsort(-p)[:KEPT]
    return {
        "center": center,
        "radius": radius,
        "feature": np.zeros((1, 3), np.float32),
        "risk": rng.uniform(0, 1, 1).astype(np.float32),
        "message": np.zeros((1, BOTTLENECK), np.float32),
        "top": p[ids].astype(np.float32)[None],
        "ids": ids[None],
        "u": uncertainty(*fuse(center, radius)).astype(np.float32),
    }


class Fake:
    """A variant whose outputs follow from the slot; it may be wrong, and writes down when it ran."""

    def __init__(self, name: str, wrong: str, ran: list[str]) -> None:
        self.name, self.wrong, self.ran = name, wrong, ran

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> Arrays:
        self.ran.append(self.name)
        given = {name: part for name, part in outputs(slot).items() if name in GIVES[self.name]}
        if self.wrong in given and self.name != WHOLE:
            given[self.wrong] = given[self.wrong] * 1.01
        return given


def fakes(wrong: str = "", ran: list[str] | None = None) -> Built:
    log = [] if ran is None else ran
    return Built({name: Fake(name, wrong, log) for name in GIVES}, {"topk": 2})


@pytest.fixture(scope="module")
def source(model: str) -> Source:
    return load(model)


def test_both_ways_take_the_same_from_a_row() -> None:
    for seed in range(20):
        given = outputs(seed, codes=50)
        whole = {name: given[name] for name in GIVES[WHOLE]}
        few = {name: given[name] for name in GIVES[FEW_U]}
        for statistic in in_graph.SERIES:
            a, b = on_host(whole, statistic, DRAW, seed / 20), from_graph(few, statistic, DRAW, seed / 20)
            assert a.p.ids.size == KEPT
            np.testing.assert_array_equal(b.p.ids, a.p.ids)
            np.testing.assert_allclose(b.p.probabilities(), a.p.probabilities(), rtol=0.01)  # float16 may round apart
            assert b.token == a.token
            assert b.statistic == pytest.approx(a.statistic, rel=1e-5)
            assert b.probability == pytest.approx(a.probability, rel=0.01)


def test_a_code_without_probability_is_not_sent() -> None:
    few = {name: outputs(1)[name] for name in GIVES[FEW]}
    few["top"] = np.array([[0.75, 0.25, 0.0, 0.0, 0.0]], np.float32)
    taken = from_graph(few, "risk", DRAW, 0.0)
    np.testing.assert_array_equal(taken.p.ids, np.sort(few["ids"][0, :2]))


def test_a_walk_ends_before_the_rows_that_are_timed(source: Source) -> None:
    rows, errors = walk(source, fakes(), DRAW, 3)
    middle = SHAPE.image_tokens // 2
    assert [row.slot for row in rows] == [3 + middle, 4 + middle, 5 + middle]
    assert [row.place for row in rows] == [SHAPE.condition_length + middle + i for i in range(3)]
    check(errors, "fakes")
    with pytest.raises(ValueError, match="9 steps from the middle on leave the picture's 16 tokens: lower the steps"):
        walk(source, fakes(), DRAW, 9)


@pytest.mark.parametrize(("wrong", "named"), [("u", "u"), ("top", "probabilities"), ("risk", "risk")])
def test_wrong_numbers_are_not_timed(source: Source, wrong: str, named: str) -> None:
    errors = walk(source, fakes(wrong), DRAW, 2)[1]
    assert errors[named] > BOUNDS[named]
    with pytest.raises(NumbersDifferError, match=f"tiny by onnx int8: {named} of the tail is .* off where"):
        check(errors, "tiny by onnx int8")
    with pytest.raises(NumbersDifferError, match="is nan off"):
        check(dict.fromkeys(BOUNDS, float("nan")), "tiny")


def test_the_ways_take_turns(source: Source) -> None:
    ran: list[str] = []
    built = fakes(ran=ran)
    rows, _ = walk(source, built, DRAW, 2)
    ran.clear()
    samples = measure(built, rows, Setting(draw=DRAW, steps=2, rounds=3, warm=1))
    there = [WHOLE, WHOLE, FEW, FEW, WHOLE, WHOLE, FEW_U, FEW_U]
    assert ran == [*there, *there[::-1]] * 2
    assert all(len(part) == 6 for ways in samples.values() for parts in ways.values() for part in parts.values())


def test_a_way_is_faster_where_all_agree() -> None:
    def samples(graph: list[float]) -> in_graph.Samples:
        return {HOST: {"pass": [1.0] * 4, "after": [1.0] * 4}, GRAPH: {"pass": graph, "after": [0.0] * 4}}

    told = judge(samples([1.0, 1.0, 1.5, 1.5]), steps=2)
    assert told["median_ms"][HOST] == {"pass": 1.0, "after": 1.0, "whole": 2.0}
    assert told["ratio"] == pytest.approx(0.625)
    assert told["by_round"] == pytest.approx([0.5625, 0.6875])
    assert told["verdict"] == "the graph is faster"
    assert judge(samples([3.0] * 4), steps=2)["verdict"] == "the host is faster"
    assert judge(samples([2.05] * 4), steps=2)["verdict"] == "no clear difference"
    assert judge(samples([1.0, 1.0, 2.5, 2.5]), steps=2)["verdict"] == "no clear difference"  # one round says, one not


def test_a_run_keeps_samples_and_what_is_missing(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(exporter: Any) -> None:
        if exporter.target == "executorch":
            raise ExportError("executorch is not installed: pip install it")

    monkeypatch.setattr(in_graph, "check_packages", lacking)
    monkeypatch.setattr(in_graph, "build", lambda *given: fakes())
    given = Setting((model,), draw=DRAW, steps=2, rounds=2, warm=0)
    result = run(given, tmp_path / "new", "pixdraft evaluate in-graph")
    kept = json.loads((tmp_path / "new" / "in_graph.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(result))
    (case,) = kept["cases"]
    assert (case["target"], case["scheme"], case["codes"], case["left"]) == ("onnx", "int8", 16, {"topk": 2})
    assert all(len(case["samples_ms"]["interval"][way]["pass"]) == 4 for way in (HOST, GRAPH))
    assert kept["made"]["command"] == "pixdraft evaluate in-graph"
    lines = table(result).splitlines()
    assert len(lines) == 4
    assert case["statistics"]["risk"]["verdict"] in lines[1]
    assert lines[3] == "executorch is left out: executorch is not installed: pip install it"
    with pytest.raises(ExportError, match="executorch is not installed"):
        run(Setting((model,), (("executorch", "fp32"),)), tmp_path, "")


def test_settings_by_name() -> None:
    assert setting((), (), None, 1.0, 20, 20) == Setting()
    found = setting(["emoji"], ["executorch"], "fp32", 0.8, 5, 7)
    assert (found.models, found.schemes, found.draw.temperature) == (("emoji",), (("executorch", "fp32"),), 0.8)
    assert (found.steps, found.rounds) == (5, 7)
    for words, arguments in {
        "there is no target 'coreml' here: choose among onnx, executorch": ((), ["coreml"], None, 1.0, 1, 1),
        "executorch is not timed as 'int8': choose one of 8da4w": ((), ["executorch"], "int8", 1.0, 1, 1),
        "temperature is 0.0: the graph divides by it": ((), (), None, 0.0, 1, 1),
        "steps is 1, rounds 0, warm 2": ((), (), None, 1.0, 1, 0),
    }.items():
        with pytest.raises(ValueError, match=words):
            setting(*arguments)


@pytest.fixture(scope="module", params=["onnx", "executorch"])
def built(request: pytest.FixtureRequest, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp(request.param)
    return build(request.param, source, "fp32", folder, KEPT, DRAW.temperature)


@pytest.mark.slow
def test_a_tail_computes_what_numpy_does(built: Built, source: Source) -> None:
    rows, errors = walk(source, built, DRAW, 2)
    check(errors, "tiny")
    assert errors["probabilities"] > 0  # it was not numpy that said so
    for name, one in built.passes.items():
        given = one.run(*rows[0][:3])
        assert tuple(sorted(given)) == tuple(sorted(GIVES[name]))
        assert name == WHOLE or given["top"].shape == given["ids"].shape == (1, KEPT)


@pytest.mark.slow
def test_a_variant_computes_nothing_that_does_not_leave_it(source: Source) -> None:
    from pixdraft.export.exporters.onnx_graph import draft_model
    from pixdraft.export.graph import DraftGraph

    model = with_tail(draft_model(DraftGraph(source.network, source.network.config.length)), KEPT)
    found = {name: {node.op_type for node in only(model, outputs).graph.node} for name, outputs in GIVES.items()}
    assert "TopK" not in found[WHOLE]
    assert "TopK" in found[FEW] & found[FEW_U]
    names = {name: {value.name for value in only(model, outputs).graph.input} for name, outputs in GIVES.items()}
    assert names[FEW] - names[WHOLE] == {"inverse"}
    sizes = {name: len(only(model, outputs).graph.node) for name, outputs in GIVES.items()}
    assert sizes[FEW] < sizes[FEW_U]
