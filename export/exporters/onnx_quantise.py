"""Linear layers of an ONNX model in fewer bits, layer by layer.

fp16   float16 weights that ONNX Runtime widens when it loads: half the file at the speed of fp32
int8   one scale a row; activations in 8 bits too, one scale a pass (optimum's ORTQuantizer, dynamic)
int8b  one scale a block of a row; activations in 8 bits too, by the same blocks (MatMulNBits)
int4   the same in four bits, activations in 8
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pixdraft.export.exporters.onnx_graph import CONTRIB
from pixdraft.export.exporters.onnx_store import TOP, half, hold, replace_nodes, steps
from pixdraft.export.exporters.quiet import quiet
from pixdraft.export.rounding import round_to_levels

Floats = NDArray[np.float32]

HALF, ROWS = "fp16", "int8"


@dataclass(frozen=True)
class Blocks:
    """A grid of MatMulNBits: signed levels of `bits`, a scale for `size` neighbouring inputs."""

    bits: int
    size: int

    @property
    def top(self) -> int:
        """The highest level; the one below -top is not used."""
        return int(2 ** (self.bits - 1) - 1)


BLOCKS = {"int8b": Blocks(8, 128), "int4": Blocks(4, 64)}  # smaller ones cost more time than they save error


@dataclass(frozen=True)
class _Step:
    """A node of the chain that a layer becomes: its operator, the constants after its input, its attributes."""

    operator: str
    constants: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, int | str]


def rounded(weight: torch.Tensor, scheme: str) -> torch.Tensor:
    """The weights [outputs, inputs] that a scheme gives back."""
    if scheme in BLOCKS:
        grid, inputs = BLOCKS[scheme], weight.shape[1]
        padded = torch.nn.functional.pad(weight, (0, -inputs % grid.size))
        return round_to_levels(padded, grid.size, grid.top)[:, :inputs]
    if scheme == ROWS:
        return round_to_levels(weight, weight.shape[1], TOP)
    return weight.half().float() if scheme == HALF else weight


@dataclass(frozen=True, eq=False)
class _Layer:
    """A linear layer of the graph: its name, what it reads and gives, weights [outputs, inputs], bias."""

    name: str
    given: str
    result: str
    weight: Floats
    bias: Floats | None

    @classmethod
    def of(cls, node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], scheme: str) -> _Layer:
        stored = numpy_helper.to_array(constants[node.input[1]])
        weight = torch.from_numpy((stored if node.op_type == "Gemm" else stored.T).copy())
        bias = numpy_helper.to_array(constants[node.input[2]]) if len(node.input) > 2 else None
        return cls(node.name, node.input[0], node.output[0], rounded(weight, scheme).numpy(), bias)


def quantise(model: onnx.ModelProto, schemes: Mapping[str, str]) -> onnx.ModelProto:
    """The model with its linear layers quantised; those of another scheme stay as they are.

    Layers of one scheme that read the same rows become one product, whose result is split: a call less is worth more
    than the copy. It bears their names, joined by a plus.

    Args:
        model: nodes of linear layers bear the layers' names; it may be changed.
        schemes: by the layer's name.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    groups: dict[tuple[str, str], list[_Layer]] = {}
    for node in model.graph.node:
        if (scheme := schemes.get(node.name, "")) in (ROWS, *BLOCKS):
            groups.setdefault((node.input[0], scheme), []).append(_Layer.of(node, constants, scheme))
    by_rows = ["+".join(layer.name for layer in group) for (_, scheme), group in groups.items() if scheme == ROWS]
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        scheme = schemes.get(node.name, "")
        if scheme == HALF:
            stored = numpy_helper.to_array(constants[node.input[1]])
            node.input[1] = f"{node.name}.matrix"
            nodes += [half(model, node.input[1], stored), node]
        elif scheme not in (ROWS, *BLOCKS):
            nodes.append(node)
        elif group := groups.pop((node.input[0], scheme), None):
            nodes += _product(model, group, scheme)
    replace_nodes(model, nodes)
    return _through_optimum(model, by_rows) if by_rows else model


def _product(model: onnx.ModelProto, group: list[_Layer], scheme: str) -> list[onnx.NodeProto]:
    """One product for layers that read the same rows."""
    name, given = "+".join(layer.name for layer in group), group[0].given
    weight = np.concatenate([layer.weight for layer in group])
    shifts = [np.zeros(len(layer.weight), np.float32) if layer.bias is None else layer.bias for layer in group]
    bias = np.concatenate(shifts) if any(layer.bias is not None for layer in group) else None
    chain = _by_rows(weight, bias) if scheme == ROWS else _by_blocks(weight, bias, BLOCKS[scheme])
    if len(group) == 1:
        return list(_chained(model, name, given, group[0].result, chain))
    sizes = hold(model, f"{name}.sizes", np.array([len(layer.weight) for layer in group]))
    split = helper.make_node(
        "Split", [f"{name}.all", sizes], [layer.result for layer in group], name=f"{name}.split", axis=-1
    )
    return [*_chained(model, name, given, f"{name}.all", chain), split]


def _by_rows(weight: Floats, bias: Floats | None) -> list[_Step]:
    """A product with rows that are all equally wide, then their widths.

    One scale for all of them is then as good as one each, and ONNX Runtime, which handles scales of rows one by one,
    takes two thirds of the time. The bias comes before the widths: so it becomes a part of the product.
    """
    widths = steps(weight, TOP)[:, 0]
    ratios = widths / widths.max()
    shift = [] if bias is None else [_Step("Add", {"shift": bias / ratios}, {})]
    return [_Step("MatMul", {"matrix": (weight / ratios[:, None]).T}, {}), *shift, _Step("Mul", {"widths": ratios}, {})]


def _by_blocks(weight: Floats, bias: Floats | None, grid: Blocks) -> list[_Step]:
    outputs, inputs = weight.shape
    levels, scales = packed(weight, grid)
    facts = {"K": inputs, "N": outputs, "bits": grid.bits, "block_size": grid.size, "accuracy_level": 4}
    product = _Step("MatMulNBits", {"levels": levels, "scales": scales}, {**facts, "domain": CONTRIB})
    return [product] if bias is None else [product, _Step("Add", {"shift": bias}, {})]


def packed(weight: Floats, grid: Blocks) -> tuple[NDArray[np.uint8], Floats]:
    """Weights [outputs, inputs] that lie on a grid, as MatMulNBits stores them.

    Returns:
        Levels, the middle one being zero, uint8 [outputs, blocks, bytes], the first of two in the low half of a byte;
        scales [outputs, blocks].
    """
    outputs, inputs = weight.shape
    blocks = np.pad(weight, ((0, 0), (0, -inputs % grid.size))).reshape(outputs, -1, grid.size)
    scales = steps(blocks, grid.top)
    levels = (np.rint(blocks / scales).astype(np.int16) + (grid.top + 1)).astype(np.uint8)
    if grid.bits == 4:
        levels = levels[..., 0::2] | (levels[..., 1::2] << 4)
    return levels, scales[..., 0]


def _chained(
    model: onnx.ModelProto, name: str, given: str, result: str, chain: list[_Step]
) -> Iterator[onnx.NodeProto]:
    """Nodes one after the other, from what is given to the result; the first bears the name."""
    for i, step in enumerate(chain):
        constants = [hold(model, f"{name}.{key}", array) for key, array in step.constants.items()]
        own = f"{name}.{step.operator.lower()}" if i else name
        made = result if i == len(chain) - 1 else f"{own}.out"
        yield helper.make_node(step.operator, [given, *constants], [made], name=own, **step.attributes)
        given = made


def _through_optimum(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The named products in 8 bits, dynamically: a scale for all weights, and one for the activations of a pass."""
    with quiet(), tempfile.TemporaryDirectory() as folder:
        from onnxruntime.quantization import QuantFormat, QuantizationMode, QuantType
        from optimum.onnxruntime import ORTQuantizer
        from optimum.onnxruntime.configuration import QuantizationConfig
        from transformers import PretrainedConfig

        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        config = QuantizationConfig(
            is_static=False,
            format=QuantFormat.QOperator,
            mode=QuantizationMode.IntegerOps,
            activations_dtype=QuantType.QUInt8,
            weights_dtype=QuantType.QInt8,
            nodes_to_quantize=names,
            operators_to_quantize=["MatMul"],
        )
        ORTQuantizer(path, PretrainedConfig()).quantize(config, Path(folder) / "made", file_suffix=None)
        model = onnx.load(Path(folder) / "made" / path.name)
    # Zero points of symmetric weights are zero; without the input, ONNX Runtime corrects nothing for them.
    zeros = {tensor.name for tensor in model.graph.initializer if not numpy_helper.to_array(tensor).any()}
    for node in model.graph.node:
        if node.op_type == "MatMulInteger" and node.input[3] in zeros:
            del node.input[3]
    replace_nodes(model, model.graph.node)
    return model
