"""Constants of an ONNX model: added, dropped, kept in fewer bits and widened where a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pixdraft.export.rounding import round_to_levels

TOP = 127
"""The highest level of int8; the one below -127 is not used."""

_LARGE = 1024  # elements; less costs more as a node than it saves as bytes


def store(model: onnx.ModelProto, scheme: str) -> onnx.ModelProto:
    """The model with its large constants in fewer bits; ONNX Runtime widens them when it loads, so it runs as before.

    Args:
        model: it is changed.
        scheme: "fp32" changes nothing; "fp16"; "int8" has a scale for every output of a convolution, the rest is fp16.
    """
    nodes: list[onnx.NodeProto] = []
    for tensor in list(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if scheme == "fp32" or array.dtype != np.float32 or array.size < _LARGE:
            continue
        name = tensor.name
        tensor.name = f"{name}.dropped"  # nothing takes it any more
        nodes += _levels(model, name, array) if scheme == "int8" and array.ndim == 4 else [half(model, name, array)]
    replace_nodes(model, [*nodes, *model.graph.node])
    return model


def half(model: onnx.ModelProto, name: str, array: NDArray[np.float32]) -> onnx.NodeProto:
    """Hold a constant in float16; the node that widens it gives it the name."""
    stored = hold(model, f"{name}.fp16", array.astype(np.float16))
    return helper.make_node("Cast", [stored], [name], to=onnx.TensorProto.FLOAT, name=f"{name}.widen")


def _levels(model: onnx.ModelProto, name: str, array: NDArray[np.float32]) -> Iterator[onnx.NodeProto]:
    """A constant in int8, and the nodes that widen it: DequantizeLinear would run in every pass, these run once."""
    rows = round_to_levels(torch.from_numpy(array.reshape(len(array), -1).copy()), array[0].size, TOP).numpy()
    scales = steps(rows, TOP)
    levels = hold(model, f"{name}.int8", np.rint(rows / scales).astype(np.int8).reshape(array.shape))
    scale = hold(model, f"{name}.scales", scales.reshape(-1, 1, 1, 1))
    yield helper.make_node("Cast", [levels], [f"{name}.wide"], to=onnx.TensorProto.FLOAT, name=f"{name}.widen")
    yield helper.make_node("Mul", [f"{name}.wide", scale], [name], name=f"{name}.scale")


def steps(values: NDArray[np.float32], top: int) -> NDArray[np.float32]:
    """The step of the grid -top .. top that values [..., n] lie on, float32 [..., 1]; 1 where all are zero."""
    found = np.abs(values).max(axis=-1, keepdims=True) / np.float32(top)
    return np.where(found > 0, found, np.float32(1.0))


def hold(model: onnx.ModelProto, name: str, array: NDArray[Any]) -> str:
    """Add a constant; returns its name."""
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name


def replace_nodes(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give the model other nodes, and drop the constants that none of them takes."""
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
