"""ExecuTorch with Core ML behind it: .pte files whose one method is one call of a Core ML program, made anywhere.

The draft is the graph of the target coreml, lowered ahead of time by ExecuTorch's own delegate. It has one method, of a
block of rows: the delegate gives every method a Core ML state of its own, so that a step would not see what a block
wrote. A step is a block whose other rows are padding.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import BLOCK, Artefact, coreml, executorch_lower
from pixdraft.export.exporters.executorch_lower import Count
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.export.pte import extract
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source

METHOD = "forward"
"""Of both files: x [1, `BLOCK`, d], slot [1], place [1] to a draft's outputs; tokens [1, T] to pixels."""

_LEVELS = {"int8": (127, -128), "int4": (7, -8)}


class ExecutorchCoreMLExporter:
    """Implements `pixdraft.export.exporters.Exporter`; runs on any system."""

    target = "executorch-coreml"
    schemes = ("fp16", "int8", "int4")
    finer = {"int4": "int8"}
    decoders = ("fp16", "int8")
    packages = ("executorch", "coremltools", "torchao", "torch")
    minimum = {"executorch": "1.5.1"}

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        """See `Exporter.export`."""
        graph = coreml.graph_of(source)
        schemes = coreml.schemes_by_layer(graph, recipe, self.target, self.schemes)
        decoder = recipe.decoder or ("fp16" if recipe.scheme == "fp16" else "int8")
        recipe.check_decoder(self.target, self.decoders)
        pictures, tokens = PictureGraph(source.tokenizer), torch.zeros(1, source.info.image_tokens, dtype=torch.int32)
        delegation = {}
        with executorch_lower.quiet(), coreml.quiet():
            module = coreml.StateGraph(quantised(coreml.rounded(graph, schemes), schemes))
            delegation["draft"] = write(module, draft_inputs(graph), folder / "draft.pte")
            with tempfile.TemporaryDirectory(dir=folder) as taken_out:
                coreml.check_states(extract(folder / "draft.pte", Path(taken_out)).package, graph.config.layers)
            delegation["decoder"] = write(pictures, (tokens,), folder / "decoder.pte", eight=decoder == "int8")
        return Artefact("draft.pte", "decoder.pte", {"method": METHOD, "rows": BLOCK}, delegation, decoder)

    def mirror(self, source: Source, recipe: Recipe) -> DraftGraph:
        """See `pixdraft.export.exporters.Mirrored`: the weights are the file's, activations stay float32."""
        graph = coreml.graph_of(source)
        return coreml.rounded(graph, coreml.schemes_by_layer(graph, recipe, self.target, self.schemes))


EXPORTER = ExecutorchCoreMLExporter()


class QuantisedLinear(nn.Module):
    """A linear layer that gives its weight back from whole numbers, in the operator that the delegate takes for that.

    Args:
        layer: whose weight lies on a grid already, see `pixdraft.export.rounding.round_to_levels`.
        block: neighbouring inputs that share a scale.
        top, least: the highest and the lowest level that the type can hold.
    """

    data: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear, block: int, top: int, least: int) -> None:
        import torchao.quantization  # noqa: F401  registers the operator of `forward`

        super().__init__()
        blocks = layer.weight.detach().unflatten(-1, (-1, block))
        # The grid reaches its highest level in every block, so the largest weight tells the scale.
        scale = (blocks.abs().amax(-1) / top).clamp_min(torch.finfo(torch.float16).smallest_normal)
        self.block, self.top, self.least = block, top, least
        self.register_buffer("data", (blocks / scale[..., None]).round().flatten(-2).to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """See `nn.Linear`."""
        weight: Tensor = torch.ops.torchao.dequantize_affine(
            self.data, [1, self.block], self.scale, None, torch.int8, self.least, self.top
        )
        return F.linear(x, weight, self.bias)


def quantised(graph: DraftGraph, schemes: dict[str, str]) -> DraftGraph:
    """The graph itself, its layers replaced as their schemes say; their weights must lie on the grids already."""
    for name, scheme in schemes.items():
        if scheme in _LEVELS:
            layer = graph.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            block = coreml.BLOCK_SIZE if scheme == "int4" else layer.in_features
            parent, _, short = name.rpartition(".")
            setattr(graph.get_submodule(parent), short, QuantisedLinear(layer, block, *_LEVELS[scheme]))
    return graph


def draft_inputs(graph: DraftGraph) -> tuple[Tensor, ...]:
    """A block at slot and place 0; two tensors, since one given twice would become one input."""
    return torch.zeros(1, BLOCK, graph.config.dim), *(torch.zeros(1, dtype=torch.int32) for _ in range(2))


def write(module: nn.Module, inputs: tuple[Tensor, ...], path: Path, *, eight: bool = False) -> Count:
    """Lower a module to one call of Core ML, float16 inside, for iOS 18, and write it as the method of a file.

    Args:
        module: of fixed shapes; buffers that it writes become states.
        inputs: an example.
        path: of the .pte file.
        eight: store weights in 8 bits.

    Returns:
        Operators that the delegate took over and those left.

    Raises:
        ExportError: the delegate does not take all operators.
    """
    import coremltools as ct
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    config: dict[str, Any] = {"mode": "linear_symmetric", "dtype": "int8", "granularity": "per_channel"}
    specs = CoreMLBackend.generate_compile_specs(
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT16,
        op_linear_quantizer_config=config if eight else None,
    )
    partitioner = CoreMLPartitioner(compile_specs=specs, take_over_mutable_buffer=True, lower_full_graph=True)
    program = executorch_lower.exported(module.eval(), inputs)
    try:
        edge = to_edge_transform_and_lower(
            {METHOD: program},
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),  # torchao's operators are not of the core set
        )
    except NotImplementedError as error:
        told = str(error).partition(",")[0]
        raise ExportError(f"{told}: install the versions that constraints.txt names") from error
    delegated, left = Counter[str](), Counter[str]()
    executorch_lower.count(edge.exported_program(METHOD).graph_module, delegated, left)
    # Inputs stay where the caller has them: nothing is copied.
    planning = MemoryPlanningPass(alloc_graph_input=False)
    edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).save(str(path))
    return {"delegated": dict(sorted(delegated.items())), "left": dict(sorted(left.items()))}
