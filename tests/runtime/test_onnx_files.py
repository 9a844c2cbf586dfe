"""ONNX files that are not what their manifest says, told by their inputs and outputs before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pixdraft.runtime.backends import onnx_backend
from pixdraft.runtime.backends.onnx_backend import _decoder_values, _draft_values, _fitting
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import Shapes

SHAPES = Shapes(20, 2, 1, 8, 4, 2, 3, 14, 8)


class Value(NamedTuple):
    name: str
    type: str
    shape: list[int | str]


@dataclass
class Session:
    """Says what a model takes and gives."""

    values: dict[str, tuple[str, list[int | str]]]
    outputs: tuple[str, ...] = field(default=("center", "pixels"))

    def get_inputs(self) -> list[Value]:
        return [Value(name, *value) for name, value in self.values.items() if name not in self.outputs]

    def get_outputs(self) -> list[Value]:
        return [Value(name, *value) for name, value in self.values.items() if name in self.outputs]


def test_models_that_fit() -> None:
    for values in (_draft_values(SHAPES), _decoder_values(SHAPES)):
        session = Session(values)
        assert _fitting(Path("x.onnx"), session, values) is session
    assert _draft_values(SHAPES)["past_keys_1"] == ("tensor(float)", [1, 1, "slots", 32]), "filled up to 32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": ("tensor(float)", [1, "rows", 24])}, "its 'x' is tensor(float) [1, 'rows', 24], should be"),
        ({"x": ("tensor(float16)", [1, "rows", 20])}, "its 'x' is tensor(float16)"),
        ({"center": ("tensor(float)", ["any", 8])}, "its 'center' is tensor(float) ['any', 8]"),
        ({"past_keys_1": None}, "its 'past_keys_1' is none, should be tensor(float) [1, 1, 'slots', 32]"),
        ({"more": ("tensor(float)", [1])}, "its 'more' is tensor(float) [1], should be none"),
    ],
)
def test_models_that_do_not(changes: dict[str, Any], said: str) -> None:
    wanted = _draft_values(SHAPES)
    session = Session({name: value for name, value in (wanted | changes).items() if value is not None})
    with pytest.raises(BundleError) as caught:
        _fitting(Path("b/draft.onnx"), session, wanted)
    assert f"b/draft.onnx does not fit manifest.json: {said}" in str(caught.value)
    assert str(caught.value).endswith(": export the bundle again")


def test_a_decoder_that_is_a_draft() -> None:
    with pytest.raises(BundleError, match=r"decoder\.onnx does not fit manifest\.json"):
        _fitting(Path("b/decoder.onnx"), Session(_draft_values(SHAPES)), _decoder_values(SHAPES))


def test_what_onnx_runtime_refuses_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusal(Exception):
        pass

    class Failing:
        def run(self, *_: object) -> None:
            raise Refusal("[ONNXRuntimeError] : 1 : FAIL\nand more")

    monkeypatch.setattr(onnx_backend, "_refusals", lambda: (Refusal,))
    engine = onnx_backend.OnnxEngine.__new__(onnx_backend.OnnxEngine)
    engine._decoder = Failing()
    with pytest.raises(BundleError, match=r"cannot run the decoder \(\[ONNXRuntimeError\] : 1 : FAIL\): export"):
        engine.decode(np.zeros(4, np.int64))
