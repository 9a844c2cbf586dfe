"""Running programs: states, functions that share them, rounding, constants that are computed once, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mil_programs import PackageWriter, Results
from pixdraft.export.errors import ExportError
from pixdraft.export.mil import MilProgram, load_functions
from pixdraft.export.mil.registry import OPERATORS, Operator, operator


def counter(writer: PackageWriter, name: str, step: float) -> None:
    """y = total + step x; total = y."""
    function = writer.function(name)
    function.inputs["x"] = ("FLOAT16", (2,))
    function.states["total"] = ("FLOAT16", (2,))
    function.op("read_state", {"before": ("FLOAT16", (2,))}, input="total")
    function.const("step", "FLOAT16", np.array(step))
    function.op("mul", {"more": ("FLOAT16", (2,))}, x="x", y="step")
    function.op("add", {"y": ("FLOAT16", (2,))}, x="before", y="more")
    function.op("write_state", {}, input="total", data="y")
    function.outputs = ("y",)


def test_states_are_kept_and_reset(tmp_path: Path) -> None:
    writer = PackageWriter()
    counter(writer, "main", 2.0)
    program = MilProgram(writer.save(tmp_path / "a.mlpackage"))
    for expected in (2.0, 4.0, 6.0):
        assert program.run(x=[1.0, 0.0])["y"].tolist() == [expected, 0.0]
    program.reset()
    assert program.run(x=[0.5, 1.0])["y"].tolist() == [1.0, 2.0]


def test_a_state_is_not_the_callers_array(tmp_path: Path) -> None:
    writer = PackageWriter()
    main = writer.function()
    main.inputs["x"] = ("FLOAT32", (2,))
    main.states["last"] = ("FLOAT32", (2,))
    main.op("read_state", {"before": ("FLOAT32", (2,))}, input="last")
    main.op("write_state", {}, input="last", data="x")
    main.outputs = ("before",)
    program = MilProgram(writer.save(tmp_path / "a.mlpackage"))
    given = np.ones(2, np.float32)
    program.run(x=given)
    given[:] = 7.0
    assert program.run(x=given)["before"].tolist() == [1.0, 1.0]


def test_functions_share_one_state(tmp_path: Path) -> None:
    writer = PackageWriter()
    counter(writer, "step", 1.0)
    counter(writer, "block", 10.0)
    path = writer.save(tmp_path / "a.mlpackage", default="step")
    programs = load_functions(path)
    programs["step"].run(x=[1.0, 1.0])
    assert programs["block"].run(x=[1.0, 0.0])["y"].tolist() == [11.0, 1.0]
    assert programs["step"].state is programs["block"].state
    alone = MilProgram(path, "block")
    assert alone.run(x=[1.0, 0.0])["y"].tolist() == [10.0, 0.0]


def test_half_rounds_every_float16_result(tmp_path: Path) -> None:
    writer = PackageWriter()
    main = writer.function()
    main.inputs["x"] = ("FLOAT32", (1,))
    main.op("cast", {"h": ("FLOAT16", (1,))}, x="x", dtype=[("STRING", "fp16")])
    main.op("add", {"y": ("FLOAT16", (1,))}, x="h", y=[("FLOAT16", 1.0)])
    main.op("sub", {"z": ("FLOAT16", (1,))}, x="y", y=[("FLOAT16", 1.0)])
    main.outputs = ("z",)
    path = writer.save(tmp_path / "a.mlpackage")
    small = 2.0**-12  # lost beside 1 in float16
    assert MilProgram(path).run(x=[small])["z"].tolist() == [small]
    assert MilProgram(path, half=True).run(x=[small])["z"].tolist() == [0.0]
    assert MilProgram(path, half=True).run(x=[1e6])["z"].tolist() == [np.inf]


def test_what_follows_from_constants_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        return x + 1

    monkeypatch.setitem(OPERATORS, "counted", Operator(counted))
    writer = PackageWriter()
    for name in ("step", "block"):
        function = writer.function(name)
        function.inputs["x"] = ("FLOAT32", (2,))
        function.const("c", "FLOAT32", np.array([1.0, 2.0]))
        function.op("counted", {"d": ("FLOAT32", (2,))}, x="c")
        function.op("counted", {"e": ("FLOAT32", (2,))}, x="d")
        function.op("add", {"y": ("FLOAT32", (2,))}, x="x", y="e")
        function.outputs = ("y", "e")
    programs = load_functions(writer.save(tmp_path / "a.mlpackage", default="step"))
    before = len(calls)
    for program in programs.values():
        made = program.run(x=[1.0, 1.0])
        assert (made["y"].tolist(), made["e"].tolist()) == ([4.0, 5.0], [3.0, 4.0])
    assert before == len(calls) == 2


def test_values_go_after_their_last_use(tmp_path: Path) -> None:
    writer = PackageWriter()
    main = writer.function()
    main.inputs["x"] = ("FLOAT32", (2,))
    main.op("exp", {"unused": ("FLOAT32", (2,))}, x="x")
    main.op("abs", {"a": ("FLOAT32", (2,))}, x="x")
    main.op("add", {"b": ("FLOAT32", (2,))}, x="a", y="a")
    main.op("concat", {"c": ("FLOAT32", (4,))}, values=("b", "x"), axis=[("INT32", 0)])
    main.outputs = ("c", "b")
    program = MilProgram(writer.save(tmp_path / "a.mlpackage"))
    assert [step.done for step in program._steps] == [("unused",), (), ("a",), ("x",)]
    assert program.run(x=[-1.0, 2.0])["c"].tolist() == [2.0, 4.0, -1.0, 2.0]


def test_several_results(tmp_path: Path) -> None:
    writer = PackageWriter()
    main = writer.function()
    main.inputs["x"] = ("FLOAT32", (None, 4))
    parts: Results = {"left": ("FLOAT32", (None, 2)), "right": ("FLOAT32", (None, 2))}
    main.op("split", parts, x="x", num_splits=[("INT32", 2)], axis=[("INT32", -1)])
    main.op("sub", {"y": ("FLOAT32", (None, 2))}, x="right", y="left")
    main.outputs = ("y",)
    program = MilProgram(writer.save(tmp_path / "a.mlpackage"))
    for rows in (1, 3):
        assert program.run(x=np.arange(4 * rows).reshape(rows, 4))["y"].tolist() == [[2.0, 2.0]] * rows


def test_results_have_the_type_that_the_program_states(tmp_path: Path) -> None:
    writer = PackageWriter()
    main = writer.function()
    main.inputs["x"] = ("FLOAT32", (3,))
    main.op("cast", {"y": ("INT32", (3,))}, x="x", dtype=[("STRING", "int32")])
    main.op("cast", {"z": ("BOOL", (3,))}, x="x", dtype=[("STRING", "bool")])
    main.outputs = ("y", "z")
    made = MilProgram(writer.save(tmp_path / "a.mlpackage")).run(x=[-1.7, 0.0, 2.9])
    assert made["y"].tolist() == [-1, 0, 2]
    assert made["z"].tolist() == [True, False, True]
    assert made["y"].dtype == np.int32
    assert made["z"].dtype == np.bool_


def test_all_unknown_operators_are_named_at_once(tmp_path: Path) -> None:
    writer = PackageWriter()
    for name, kind in (("step", "crop_resize"), ("block", "gru")):
        function = writer.function(name)
        function.inputs["x"] = ("FLOAT32", (2,))
        function.op(kind, {"y": ("FLOAT32", (2,))}, x="x")
        function.outputs = ("y",)
    path = writer.save(tmp_path / "a.mlpackage", default="step")
    with pytest.raises(ExportError, match=r"does not know: crop_resize, gru: enter them in export/mil/operators"):
        MilProgram(path, "step")


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({}, "takes the inputs x: x does not fit"),
        ({"x": [0.0, 0.0], "y": 1}, "takes the inputs x: y does not fit"),
        ({"x": [0.0]}, r"the input x has the shape \(1,\): give one of \(2,\)"),
        ({"x": 0.0}, r"the input x has the shape \(\)"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path: Path, inputs: dict[str, object], told: str) -> None:
    writer = PackageWriter()
    counter(writer, "main", 1.0)
    program = MilProgram(writer.save(tmp_path / "a.mlpackage"))
    with pytest.raises(ExportError, match=told):
        program.run(**inputs)


def test_an_operator_has_one_meaning() -> None:
    with pytest.raises(ValueError, match="operator add is there twice"):
        operator("add")(lambda x, y: x)
