"""Core ML: one package with a function of one row and one of a block over the same states, and one for pictures.

The cache is a pair of states a layer. A function writes its rows into them as one slice and attends to the whole
cache under an additive mask: -1e4 is as good as minus infinity after softmax, and float16 can hold it.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import BLOCK, Artefact
from pixdraft.export.exporters import quiet as converters
from pixdraft.export.graph import OUTPUTS, DraftGraph, PictureGraph
from pixdraft.export.mil import STATE_WRITE, count_operators
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.rounding import round_to_levels, round_to_palette
from pixdraft.export.source import Source

FUNCTIONS = {"step": 1, "block": BLOCK}
"""Functions of the draft's package and the rows each takes."""

PICTURE = "pixels"
"""The output of the decoder's package; its input is ``tokens``, int32 [1, T]."""

_MASKED = -1e4
# The Neural Engine refuses states whose sizes are no multiples of this.
_STATE_STEP = 32
# Below this many elements a matrix costs less than the scales that would shrink it.
_SMALL = 1024
BLOCK_SIZE = 32
"""Neighbouring inputs that share a scale where weights have 4 bits."""
_PALETTE_ROWS = 4


class CoreMLExporter:
    """Implements `pixdraft.export.exporters.Exporter`; runs on any system."""

    target = "coreml"
    schemes = ("fp16", "int8", "int4", "pal4")
    finer = {"int4": "int8", "pal4": "int8"}
    decoders = ("fp16", "int8")
    packages = ("coremltools", "torch")
    minimum = {"coremltools": "9.0"}

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        """See `Exporter.export`."""
        graph = graph_of(source)
        schemes = schemes_by_layer(graph, recipe, self.target, self.schemes)
        decoder = recipe.decoder or ("fp16" if recipe.scheme == "fp16" else "int8")
        recipe.check_decoder(self.target, self.decoders)
        with quiet():
            _export_draft(rounded(graph, schemes), schemes, folder / "draft.mlpackage")
            _export_decoder(source, decoder, folder / "decoder.mlpackage")
        check_states(folder / "draft.mlpackage", graph.config.layers)
        facts = {"functions": dict(FUNCTIONS)}
        return Artefact("draft.mlpackage", "decoder.mlpackage", facts, decoder_scheme=decoder)

    def mirror(self, source: Source, recipe: Recipe) -> DraftGraph:
        """See `pixdraft.export.exporters.Mirrored`: the weights are the package's, activations stay float32."""
        graph = graph_of(source)
        return rounded(graph, schemes_by_layer(graph, recipe, self.target, self.schemes))


EXPORTER = CoreMLExporter()


class StateGraph(nn.Module):
    """The draft over caches that are buffers, which Core ML turns into states ``keys_0``, ``values_0``, ....

    Args:
        graph: the draft.
    """

    def __init__(self, graph: DraftGraph) -> None:
        super().__init__()
        self.draft = graph  # not `graph`: traced modules have one of their own
        config = graph.config
        shape = (1, config.heads, graph.capacity, config.head_dim)
        for layer in range(config.layers):
            self.register_buffer(f"keys_{layer}", torch.zeros(shape), persistent=False)
            self.register_buffer(f"values_{layer}", torch.zeros(shape), persistent=False)

    def forward(self, x: Tensor, slot: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        """See `DraftGraph.forward`."""
        return tuple(self.draft(x, slot, place, self))

    def attend(self, layer: int, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `pixdraft.models.transformer.Cache.attend`."""
        keys = self._write(f"keys_{layer}", positions, k)
        values = self._write(f"values_{layer}", positions, v)
        slots = torch.arange(keys.shape[2], dtype=positions.dtype)
        ahead = (slots[None] - positions[:, None]).to(q.dtype).clamp(0.0, 1.0)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=(ahead * _MASKED)[None, None])

    def _write(self, name: str, positions: Tensor, rows: Tensor) -> Tensor:
        """Rows [1, heads, S, D] into consecutive slots of a buffer; returns all of it."""
        buffer: Tensor = getattr(self, name)
        first: Any = positions[0].item()  # a symbol while the graph is traced
        torch._check(first >= 0)
        torch._check(first + rows.shape[2] <= buffer.shape[2])
        buffer.copy_(buffer.slice_scatter(rows, 2, first, first + rows.shape[2]))
        return buffer


def graph_of(source: Source) -> DraftGraph:
    """The draft with slots for a picture and a block, as many as the Neural Engine likes."""
    least = source.network.config.length + BLOCK
    return DraftGraph(source.network, -(-least // _STATE_STEP) * _STATE_STEP)


def schemes_by_layer(graph: DraftGraph, recipe: Recipe, target: str, known: Sequence[str]) -> dict[str, str]:
    """Scheme of every linear layer by name; small ones stay float16 unless the recipe names them.

    Raises:
        ExportError: the recipe names a scheme or a layer that there is not.
    """
    layers = {name: module for name, module in graph.named_modules() if isinstance(module, nn.Linear)}
    recipe.check(target, known, tuple(layers))
    chosen = {}
    for name, layer in layers.items():
        small = layer.weight.numel() <= _SMALL and name not in recipe.overrides
        chosen[name] = _fitting("fp16" if small else recipe.of(name), *layer.weight.shape)
    return chosen


def _fitting(scheme: str, outputs: int, inputs: int) -> str:
    """The scheme that a matrix gets: one that does not divide into blocks or groups takes int8, by rows."""
    if (scheme == "int4" and inputs % BLOCK_SIZE) or (scheme == "pal4" and outputs % _PALETTE_ROWS):
        return "int8"
    return "fp16" if scheme == FLOAT else scheme


def rounded(graph: DraftGraph, schemes: dict[str, str]) -> DraftGraph:
    """A copy whose linear layers hold the weights that the package will give back."""
    graph = copy.deepcopy(graph)
    for name, scheme in schemes.items():
        weight = graph.get_parameter(f"{name}.weight")
        match scheme:
            case "int8":
                weight.data = round_to_levels(weight, weight.shape[1], top=127)
            case "int4":
                weight.data = round_to_levels(weight, BLOCK_SIZE)
            case "pal4":
                weight.data = round_to_palette(weight, _PALETTE_ROWS)
        weight.data = weight.data.half().float()
    return graph


def _export_draft(graph: DraftGraph, schemes: dict[str, str], path: Path) -> None:
    import coremltools as ct

    module = StateGraph(graph).eval()
    described = ct.utils.MultiFunctionDescriptor()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name, rows in FUNCTIONS.items():
            # Two tensors for slot and place: of one given twice, the tracer makes one input and forgets the other.
            places = (torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
            inputs = (torch.zeros(1, rows, graph.config.dim), *places)
            part = str(Path(folder) / f"{name}.mlpackage")
            _quantised(_converted(module, inputs, OUTPUTS), schemes).save(part)
            described.add_function(part, src_function_name="main", target_function_name=name)
        described.default_function_name = next(iter(FUNCTIONS))
        ct.utils.save_multifunction(described, str(path))


def check_states(path: Path, layers: int) -> None:
    """Refuse a draft of which a function does not write keys and values of every layer.

    Raises:
        ExportError: the converter has dropped writes, which it is known to do without a word.
    """
    for name, counts in count_operators(path).items():
        if (written := counts[STATE_WRITE]) < 2 * layers:
            raise ExportError(
                f"the converter dropped writes of the cache: {name} has {written} of {2 * layers}: install the "
                "versions that constraints.txt names"
            )


def _export_decoder(source: Source, scheme: str, path: Path) -> None:
    import coremltools.optimize.coreml as compression

    tokens = torch.zeros(1, source.info.image_tokens, dtype=torch.int32)
    model = _converted(PictureGraph(source.tokenizer).eval(), (tokens,), (PICTURE,))
    if scheme == "int8":
        config = compression.OptimizationConfig(op_type_configs={"conv": _compressor("int8")})
        model = compression.linear_quantize_weights(model, config)
    model.save(str(path))


def _converted(module: nn.Module, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Any:
    """An ML program of one function, float16 inside, for iOS 18 (the first with states)."""
    import coremltools as ct

    with torch.no_grad():
        program = torch.export.export(module, inputs, strict=False).run_decompositions({})
    return ct.convert(
        program,
        convert_to="mlprogram",
        outputs=[ct.TensorType(name=name) for name in outputs],
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT16,
        skip_model_load=True,
    )


def _quantised(model: Any, schemes: dict[str, str]) -> Any:
    """The model with the weights of its linear layers compressed as the schemes say."""
    import coremltools.optimize.coreml as compression

    there = compression.get_weights_metadata(model, weight_threshold=0)
    for compress, kinds in (
        (compression.linear_quantize_weights, ("int8", "int4")),
        (compression.palettize_weights, ("pal4",)),
    ):
        chosen = {}
        for layer, scheme in schemes.items():
            if scheme in kinds:
                # torch.export names a parameter p_draft_LAYER_weight, the converter adds the width.
                name = f"p_draft_{layer.replace('.', '_')}_weight_to_fp16"
                if name not in there:
                    raise ExportError(f"the layer {layer} cannot be found in the converted program: leave it {FLOAT}")
                chosen[name] = _compressor(scheme)
        if chosen:
            model = compress(model, compression.OptimizationConfig(op_name_configs=chosen))
    return model


def _compressor(scheme: str) -> Any:
    """What stores weights that `rounded` has brought onto a grid: it finds that grid again."""
    import coremltools.optimize.coreml as compression

    if scheme == "pal4":
        return compression.OpPalettizerConfig(
            mode="custom",
            lut_function=_palette,
            granularity="per_grouped_channel",
            group_size=_PALETTE_ROWS,
            weight_threshold=0,
        )
    grain: dict[str, Any] = {"granularity": "per_channel"}
    if scheme == "int4":
        grain = {"granularity": "per_block", "block_size": BLOCK_SIZE}
    return compression.OpLinearQuantizerConfig(mode="linear_symmetric", dtype=scheme, weight_threshold=0, **grain)


def _palette(weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """A palette of 16 entries and the entry of each weight.

    The converter's own way to look for values takes more entries than there are: numpy 2.3 sorts float16 wrongly where
    values repeat, on processors with AVX-512.
    """
    values, places = np.unique(weight.astype(np.float32), return_inverse=True)
    entries = np.zeros(16, weight.dtype)
    entries[: len(values)] = values
    return entries, places.ravel().astype(np.uint8)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """`exporters.quiet`, and one sentence where coremltools is missing.

    What the converter might have left undone it says in such notes too, so the gate looks at the result, not at them.
    """
    try:
        with converters.quiet():
            yield
    except ImportError as error:
        raise ExportError(f"the target coreml needs coremltools ({error}): pip install 'pixdraft[coreml]'") from error
