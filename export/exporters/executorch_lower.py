"""From modules to .pte files, through ExecuTorch's edge dialect and its XNNPACK delegate."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.traceback import NodeSource

from pixdraft.export.errors import ExportError

Count = dict[str, dict[str, int]]

# Bookkeeping of the graph: names of outputs, whole numbers and checks on them, no work on tensors.
_NO_WORK = ("getitem", "alloc", "view", "sym_size", "_assert_scalar", "_local_scalar_dense", "lt", "le", "ge", "add")
_PLAIN = ("", "aten", "dim_order_ops", "torchao", "quantized_decomposed")
_COPY = "__deepcopy__"
_ROUNDING = ("quantize", "dequantize", "choose_qparams")


def exported(module: nn.Module, inputs: tuple[Tensor, ...], shapes: Any = None) -> Any:
    """The traced program of a module."""
    with torch.no_grad():
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


def write(programs: Mapping[str, Any], path: Path, *, shared: bool = True, apart: bool = False) -> Count:
    """Lower programs to XNNPACK and write them as the methods of one file.

    Args:
        programs: traced ones, by method.
        path: of the .pte file.
        shared: give the methods one copy of the buffers that they write. Without it each has its own, and a cache that
            one of them filled is empty to the others.
        apart: give each quantised layer a call of its own. Quantised convolutions need it: in one call with what
            comes before them, the delegate's change of memory layout falls between quantising and convolving, and
            the result cannot be run.

    Returns:
        Operators that the delegate took over and those left, over all methods.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackPartitioner,
    )
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    takers = [XnnpackDynamicallyQuantizedPartitioner, XnnpackPartitioner] if apart else [XnnpackPartitioner]
    edge = to_edge_transform_and_lower(
        dict(programs),
        partitioner={name: [taker() for taker in takers] for name in programs},
        compile_config=EdgeCompileConfig(_check_ir_validity=False),  # llama's operators are not of the core set
    )
    delegated, left = Counter[str](), Counter[str]()
    for name in programs:
        count(edge.exported_program(name).graph_module, delegated, left)
    # Inputs stay where the caller has them: nothing is copied.
    planning = MemoryPlanningPass(alloc_graph_input=False, share_mutable_buffers=shared)
    edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).save(str(path))
    return {"delegated": dict(sorted(delegated.items())), "left": dict(sorted(left.items()))}


def count(module: GraphModule, delegated: Counter[str], left: Counter[str]) -> None:
    """Add a lowered method's operators to those that a delegate took over and those left."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        name = _name(node)
        if name == "executorch_call_delegate":
            inner = getattr(module, node.args[0].target).original_module.graph_module
            names = (_name(n) for n in inner.graph.nodes if n.op == "call_function")
            delegated.update(n for n in names if n != "getitem" and not n.startswith(_ROUNDING))
        elif name not in _NO_WORK:
            left[name] += 1


def _name(node: Node) -> str:
    """The operator of a node: ``linear`` for aten.linear.default, ``llama.custom_sdpa`` for one of another library."""
    target = node.target
    name = getattr(target, "name", None)
    full = name() if callable(name) else getattr(target, "__name__", str(target))
    if full.startswith("auto_functionalized"):
        return _name_of(cast(Any, node.args[0]).name())
    return _name_of(full)


def _name_of(full: str) -> str:
    library, _, rest = full.rpartition("::")
    short = (rest or full).partition(".")[0]
    return short if library in _PLAIN else f"{library}.{short}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Import what exports, and keep its notes on its own insides off the screen.

    Raises:
        ExportError: a package is missing.
    """
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # Every pass copies each node's whole history; that is a third of the time, and nobody reads it here.
    setattr(NodeSource, _COPY, lambda source, memo: source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers llama's operators

            yield
    except ImportError as error:
        raise ExportError(f"the target executorch lacks a package ({error}): pip install 'pixdraft[export]'") from error
    finally:
        delattr(NodeSource, _COPY)
        logging.disable(level)
