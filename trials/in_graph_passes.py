"""The one-row pass with and without a tail that draws top-k and U out of its logits, for ONNX Runtime and ExecuTorch.

All variants of a backend stand over the same weights and write to the same cache: they differ in nothing but the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pixdraft.export.exporters import exporter
from pixdraft.export.graph import OUTPUTS, DraftGraph
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source

if TYPE_CHECKING:
    import onnx

    from pixdraft.export.exporters.executorch_graph import XnnGraph

Arrays = dict[str, NDArray[Any]]

WHOLE, FEW, FEW_U = "whole", "few", "few_u"
GIVES: Mapping[str, tuple[str, ...]] = {
    WHOLE: OUTPUTS,
    FEW: ("risk", "message", "top", "ids"),
    FEW_U: ("risk", "message", "top", "ids", "u"),
}
"""What leaves each variant, one row: `WHOLE` what is shipped; ``top`` float32 [1, k], the largest probabilities after
temperature, descending, and ``ids`` [1, k], their codes; ``u`` [1], CIAR's U; ``risk`` [1]; ``message`` [1, b]."""

INVERSE = "inverse"
"""The input of a tail beside the pass's own: 1 / temperature, float32 [1]."""


class Pass(Protocol):
    """A variant, ready to run."""

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> Arrays:
        """Outputs as `GIVES` has them, of one embedding [d]; the next run of any variant writes over them."""


@dataclass(frozen=True, eq=False)
class Built:
    """Variants of a backend by name, and operators that the backend left to slower kernels, over all variants."""

    passes: dict[str, Pass]
    left: dict[str, int]


def build(target: str, source: Source, scheme: str, folder: Path, kept: int, temperature: float) -> Built:
    """Export every variant into a folder, and load them with one thread.

    Args:
        target: "onnx" or "executorch".
        source: what is exported.
        scheme: of the quantisation; ExecuTorch's int8 is none of them.
        folder: for the files, which must stay while the variants run.
        kept: codes that leave a tail.
        temperature: above 0.
    """
    inverse = np.array([1.0 / temperature], np.float32)
    return (_onnx if target == "onnx" else _executorch)(source, scheme, folder, kept, inverse)


def _onnx(source: Source, scheme: str, folder: Path, kept: int, inverse: NDArray[np.float32]) -> Built:
    import onnx

    from pixdraft.runtime.backends.onnx_backend import open_session

    artefact = exporter("onnx").export(source, Recipe(scheme), folder)
    model = with_tail(onnx.load(folder / artefact.draft), kept)
    cache: dict[str, Any] = {}
    passes: dict[str, Pass] = {}
    for name, outputs in GIVES.items():
        path = folder / f"{name}.onnx"
        onnx.save(only(model, outputs), path)
        passes[name] = OnnxPass(open_session(path), cache, source.network.config.length, inverse)
    return Built(passes, {})


def with_tail(model: onnx.ModelProto, kept: int) -> onnx.ModelProto:
    """An exported draft that gives ``top``, ``ids`` and ``u`` as well; the model is changed.

    The bounds of U are those that the message is made of.
    """
    from onnx import TensorProto, helper

    from pixdraft.export.exporters.onnx_store import hold

    center = next(value for value in model.graph.output if value.name == "center")
    codes = center.type.tensor_type.shape.dim[1].dim_value
    lower, upper = _bounds(model)
    count, last = hold(model, "tail.kept", np.array([kept])), hold(model, "tail.axis", np.array([-1]))
    share = hold(model, "tail.share", np.array([1.0 / codes], np.float32))
    model.graph.input.append(helper.make_tensor_value_info(INVERSE, TensorProto.FLOAT, [1]))
    model.graph.node.extend(
        [
            helper.make_node("Mul", ["center", INVERSE], ["tail.scaled"]),
            helper.make_node("Softmax", ["tail.scaled"], ["tail.p"], axis=-1),
            helper.make_node("TopK", ["tail.p", count], ["top", "ids"], axis=-1),
            helper.make_node("Sub", [upper, lower], ["tail.delta"]),
            helper.make_node("ReduceSum", ["tail.delta", last], ["tail.width"], keepdims=1),
            helper.make_node("Mul", ["tail.width", share], ["tail.mean"]),
            helper.make_node("Sub", ["tail.delta", "tail.mean"], ["tail.gap"]),
            helper.make_node("Mul", ["tail.gap", "tail.gap"], ["tail.square"]),
            helper.make_node("ReduceMean", ["tail.square", last], ["tail.variance"], keepdims=1),
            helper.make_node("Sqrt", ["tail.variance"], ["tail.deviation"]),
            helper.make_node("Mul", ["tail.width", "tail.deviation"], ["u"]),
        ]
    )
    for name, kind, width in (("top", TensorProto.FLOAT, kept), ("ids", TensorProto.INT64, kept)):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
    model.graph.output.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, ["rows", 1]))
    return model


def _bounds(model: onnx.ModelProto) -> tuple[str, str]:
    """Names of both bounds: they are joined before the product that makes a message of them."""
    made = {name: node for node in model.graph.node for name in node.output}
    node = next(node for node in model.graph.node if node.name.startswith("message.bounds"))
    while node.op_type != "Concat":
        node = made[node.input[0]]
    lower, upper = node.input
    return lower, upper


def only(model: onnx.ModelProto, outputs: Iterable[str]) -> onnx.ModelProto:
    """A copy that gives some of the outputs, and the cache, and computes nothing else."""
    import onnx

    from pixdraft.export.exporters.onnx_store import replace_nodes

    made = onnx.ModelProto()
    made.CopyFrom(model)
    wanted = {value.name for value in made.graph.output if value.name.startswith("present_")} | set(outputs)
    values = [value for value in made.graph.output if value.name in wanted]
    del made.graph.output[:]
    made.graph.output.extend(values)
    nodes = []
    for node in reversed(made.graph.node):  # they are sorted: whoever takes a value has been seen
        if wanted.intersection(filter(None, node.output)):
            nodes.append(node)
            wanted.update(node.input)
    replace_nodes(made, nodes[::-1])
    inputs = [value for value in made.graph.input if value.name in wanted]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    return made


class OnnxPass:
    """Implements `Pass`, as `runtime.backends.onnx_backend` runs a row: everything is bound once.

    Args:
        session: of ONNX Runtime.
        cache: of all variants, filled by the first one.
        slots: of the cache.
        inverse: see `INVERSE`.
    """

    def __init__(self, session: Any, cache: dict[str, Any], slots: int, inverse: NDArray[np.float32]) -> None:
        from onnxruntime import OrtValue

        self._session, self._binding = session, session.io_binding()
        self._arrays: Arrays = {}
        types = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
        sizes = {"rows": 1, "slots": slots}
        self._values = []  # the binding only points to them
        for values, bind in (
            (session.get_inputs(), self._binding.bind_ortvalue_input),
            (session.get_outputs(), self._binding.bind_ortvalue_output),
        ):
            for value in values:
                name = value.name.replace("present_", "past_")
                if (held := cache.get(name)) is None:
                    array = np.zeros([sizes.get(size, size) for size in value.shape], types[value.type])
                    held = OrtValue.ortvalue_from_numpy(array)
                    if name.startswith("past_"):
                        cache[name] = held
                    self._arrays[name] = array
                self._values.append(held)
                bind(value.name, held)
        if INVERSE in self._arrays:
            self._arrays[INVERSE][:] = inverse
        self._given = {value.name: self._arrays[value.name] for value in session.get_outputs() if "_" not in value.name}

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> Arrays:
        """See `Pass.run`."""
        arrays = self._arrays
        arrays["x"][0, 0] = x
        arrays["last"][0], arrays["length"][()], arrays["places"][0, 0] = slot, slot + 1, place
        self._session.run_with_iobinding(self._binding)
        return self._given


class Tailed(nn.Module):
    """A variant for XNNPACK; sums over V are products with a constant vector, as elsewhere in its graph.

    Args:
        graph: of the draft, quantised already; shared by all variants.
        outputs: one of `GIVES`.
        kept: codes that leave a tail.
    """

    ones: Tensor

    def __init__(self, graph: XnnGraph, outputs: tuple[str, ...], kept: int) -> None:
        super().__init__()
        self.draft, self.outputs, self.kept = graph, outputs, kept
        self.register_buffer("ones", torch.ones(1, graph.output.out_features))

    def forward(self, x: Tensor, slot: Tensor, place: Tensor, inverse: Tensor | None = None) -> tuple[Tensor, ...]:
        """Outputs of rows x [S, d]; ``ids`` as float32, which holds every code."""
        bounds: dict[str, Tensor] = {}

        def keep(part: nn.Module, given: tuple[Tensor, ...]) -> None:
            bounds["lower" if part is self.draft.message_lower else "upper"] = given[0]

        # The bounds that the message is made of: computing them again would charge the tail for what it need not do.
        hooks = [part.register_forward_pre_hook(keep) for part in (self.draft.message_lower, self.draft.message_upper)]
        given = dict(zip(OUTPUTS, self.draft(x, slot, place), strict=True))
        for hook in hooks:
            hook.remove()
        if inverse is not None:
            given["top"], ids = torch.topk((given["center"] * inverse).softmax(-1), self.kept, dim=-1)
            given["ids"] = ids.float()
        if "u" in self.outputs:
            delta = bounds["upper"] - bounds["lower"]
            width, share = F.linear(delta, self.ones), 1.0 / self.ones.shape[1]
            gap = delta - width * share
            given["u"] = width * torch.sqrt(F.linear(gap * gap, self.ones) * share)
        return tuple(given[name] for name in self.outputs)


def _executorch(source: Source, scheme: str, folder: Path, kept: int, inverse: NDArray[np.float32]) -> Built:
    from pixdraft.export.exporters.executorch_graph import XnnGraph
    from pixdraft.export.exporters.executorch_lower import exported, quiet, write
    from pixdraft.export.exporters.executorch_quantise import quantise, schemes_by_layer
    from pixdraft.runtime.backends.executorch_backend import Program

    draft = DraftGraph(source.network, source.network.config.length)
    path = folder / "passes.pte"
    with quiet():
        graph = XnnGraph(draft).eval()
        quantise(graph, schemes_by_layer(draft, scheme, {}))
        row = (torch.zeros(1, draft.config.dim), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
        programs = {
            name: exported(Tailed(graph, outputs, kept), row if name == WHOLE else (*row, torch.ones(1)))
            for name, outputs in GIVES.items()
        }
        left = write(programs, path)["left"]
    program = Program(path, pooled=True)
    return Built({name: ExecutorchPass(program.method(name), name, draft.config.dim, inverse) for name in GIVES}, left)


class ExecutorchPass:
    """Implements `Pass`, as `runtime.backends.executorch_backend` runs a row: inputs and outputs stay in place.

    Args:
        method: of ExecuTorch.
        name: of the variant.
        dim: width of the embeddings.
        inverse: see `INVERSE`.
    """

    def __init__(self, method: Any, name: str, dim: int, inverse: NDArray[np.float32]) -> None:
        self._method, self._names = method, GIVES[name]
        self._x, self._at = np.zeros((1, dim), np.float32), np.zeros((2, 1), np.int64)
        inputs = [self._x, *self._at, *(() if name == WHOLE else (inverse,))]
        for place, array in enumerate(inputs):
            method.bind(place, array)
        self._given: Arrays | None = None

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> Arrays:
        """See `Pass.run`."""
        self._x[0] = x
        self._at[0, 0], self._at[1, 0] = slot, place
        self._method.run()
        if self._given is None:
            flat = {name: self._method.output(i) for i, name in enumerate(self._names)}
            self._given = {n: part if n in ("risk", "u") else part.reshape(1, -1) for n, part in flat.items()}
        return self._given
