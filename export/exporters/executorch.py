"""ExecuTorch: one file with the draft's two methods over the same weights and cache, and one that decodes pictures."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from pixdraft.export.exporters import Artefact
from pixdraft.export.exporters.executorch_graph import XnnGraph
from pixdraft.export.exporters.executorch_lower import Count, exported, quiet, write
from pixdraft.export.exporters.executorch_picture import XnnPicture
from pixdraft.export.exporters.executorch_quantise import (
    FP32,
    INT8,
    SCHEMES,
    mirror,
    quantise,
    schemes_by_layer,
    through_pt2e,
)
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.backends.executorch_backend import BLOCK, PICTURE, STEP

ROWS = 32
"""The most rows of a block; scratch memory for its outputs grows with it, so longer prompts are fed in parts."""


class ExecutorchExporter:
    """Implements `pixdraft.export.exporters.Exporter`."""

    target = "executorch"
    schemes = SCHEMES
    finer = {"8da4w": "8da8w"}
    decoders = (FP32, INT8)
    packages = ("executorch", "torchao", "torch")
    minimum = {"executorch": "1.5.1"}

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        """See `Exporter.export`."""
        graph = DraftGraph(source.network, source.network.config.length)
        chosen = self._schemes(graph, recipe)
        decoder = recipe.decoder or (FP32 if recipe.scheme in (FP32, FLOAT) else INT8)
        recipe.check_decoder(self.target, self.decoders)
        with quiet():
            delegation = {
                "draft": write_draft(graph, chosen, folder / "draft.pte"),
                "decoder": write_decoder(source, decoder, folder / "decoder.pte"),
            }
        return Artefact("draft.pte", "decoder.pte", {"rows": _most(graph)}, delegation, decoder)

    def mirror(self, source: Source, recipe: Recipe) -> DraftGraph:
        """See `pixdraft.export.exporters.Mirrored`."""
        graph = DraftGraph(source.network, source.network.config.length)
        return mirror(graph, self._schemes(graph, recipe))

    def _schemes(self, graph: DraftGraph, recipe: Recipe) -> dict[str, str]:
        layers = [name for name, module in graph.named_modules() if isinstance(module, nn.Linear)]
        recipe.check(self.target, self.schemes, layers)
        return schemes_by_layer(graph, recipe.scheme, recipe.overrides)


EXPORTER = ExecutorchExporter()


def write_draft(graph: DraftGraph, schemes: dict[str, str], path: Path, shared: bool = True) -> Count:
    """Write the draft's methods; see `executorch_lower.write`."""
    module = XnnGraph(graph).eval()
    later = quantise(module, schemes)
    rows = {0: torch.export.Dim("rows", min=2, max=_most(graph))}
    programs = {}
    for name, count, shapes in ((STEP, 1, None), (BLOCK, 8, (rows, None, None))):
        inputs = _inputs(graph, count)
        traced = through_pt2e(module, inputs, later, shapes) if later else module
        programs[name] = exported(traced, inputs, shapes)
    return write(programs, path, shared=shared)


def _most(graph: DraftGraph) -> int:
    """Rows of a block: the smallest pictures have fewer slots than `ROWS`."""
    return min(ROWS, graph.capacity)


def _inputs(graph: DraftGraph, rows: int) -> tuple[Tensor, ...]:
    # Two tensors for slot and place: one given twice would become one input.
    return torch.zeros(rows, graph.config.dim), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)


def write_decoder(source: Source, scheme: str, path: Path) -> Count:
    """Write the decoder of pictures; see `executorch_lower.write`."""
    module: nn.Module = XnnPicture(PictureGraph(source.tokenizer)).eval()
    tokens = torch.zeros(1, source.info.image_tokens, dtype=torch.long)
    if scheme == INT8:
        # The first one is small, and what the table gives it the delegate cannot turn into 8 bits.
        kinds = (nn.Conv2d, nn.ConvTranspose2d)
        names = {name for name, part in module.named_modules() if isinstance(part, kinds)} - {"post_quant_conv"}
        module = through_pt2e(module, (tokens,), names)
    return write({PICTURE: exported(module, (tokens,))}, path, apart=scheme == INT8)
