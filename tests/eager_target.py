"""A target whose artefact is the torch graph itself, with weights rounded by the simplest quantiser.

The gate, the stages and the command line are tested on it, without a converter. It breaks, if told, as converters do.
"""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pixdraft.export import exporters
from pixdraft.export.eager import EagerEngine
from pixdraft.export.exporters import BLOCK, Artefact
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.source import Source
from pixdraft.runtime import bundle
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.exported import Engine
from pixdraft.runtime.manifest import Manifest

TARGET = "eager"
BITS = {"fp32": 0, "int8": 8, "int4": 4, FLOAT: 0}


class EagerExporter:
    """Implements `pixdraft.export.exporters.Exporter`.

    Attributes:
        plant: what to break, a name in `PLANTS`; "" nothing.
        exports: recipes so far.
    """

    target = TARGET
    schemes: tuple[str, ...] = ("fp32", "int8", "int4")
    finer = {"int4": "int8"}
    decoders: tuple[str, ...] = ("fp32",)
    packages: tuple[str, ...] = ("torch",)
    minimum = {"numpy": "2.0"}

    def __init__(self) -> None:
        self.plant = ""
        self.exports: list[Recipe] = []
        self.delegation: dict[str, dict[str, dict[str, int]]] = {}
        self.mirror: Callable[[Source, Recipe], DraftGraph] | None = rounded

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        self.exports.append(recipe)
        graph = rounded(source, recipe)
        if self.plant == "swapped":
            ffn = graph.get_submodule("layers.0.feed_forward")
            ffn.w1, ffn.w3 = ffn.w3, ffn.w1
        if self.plant == "flipped":  # the scale of one output channel of the head
            graph.output.weight[3] *= -1
        (folder / "draft").mkdir()
        torch.save(graph, folder / "draft/graph.pt")
        torch.save(PictureGraph(source.tokenizer), folder / "decoder.pt")
        # What a real target would be smaller by, so that sizes can be compared.
        stored = sum(_bytes(recipe.of(name), module) for name, module in _linears(graph).items())
        (folder / "draft/weights.bin").write_bytes(bytes(stored))
        return Artefact("draft", "decoder.pt", {"plant": self.plant}, self.delegation)


class BreakingEngine(EagerEngine):
    """An engine that breaks as its bundle's facts say."""

    def __init__(self, graph: DraftGraph, picture: PictureGraph, plant: str) -> None:
        super().__init__(graph, picture, sizes=(1, BLOCK))
        self.plant = plant
        self.caches = {size: type(self.cache)(graph) for size in self.sizes}
        self.runs = 0

    def run(self, x: np.ndarray[Any, Any], slot: int, place: int) -> DraftOutput:
        self.runs += 1
        if self.plant == "unshared":
            self.cache = self.caches[len(x)]
        if self.plant == "dropped":
            self.cache = type(self.cache)(self.graph)
        row = super().run(x, slot, place)
        if self.plant == "nan":
            row.center[0, 0] = np.nan
        if self.plant == "restless":
            row.center[0, 0] += self.runs * 1e-3
        return row


PLANTS = ("dropped", "unshared", "swapped", "flipped", "nan", "restless")


def open_engine(folder: Path, manifest: Manifest, threads: int) -> Engine:
    graph = torch.load(folder / manifest.draft / "graph.pt", weights_only=False)
    picture = torch.load(folder / manifest.decoder, weights_only=False)
    return BreakingEngine(graph, picture, manifest.facts["plant"])


def install(patch: pytest.MonkeyPatch) -> EagerExporter:
    """Make the target known everywhere, as long as the patch lasts."""
    exporter = EagerExporter()
    module = types.ModuleType(f"pixdraft.export.exporters.{TARGET}")
    module.EXPORTER = exporter  # type: ignore[attr-defined]
    engine = types.ModuleType("pixdraft_test_eager_backend")
    engine.open_engine = open_engine  # type: ignore[attr-defined]
    patch.setitem(sys.modules, module.__name__, module)
    patch.setitem(sys.modules, engine.__name__, engine)
    patch.setattr(exporters, "TARGETS", (*exporters.TARGETS, TARGET))
    patch.setitem(bundle.ENGINES, TARGET, engine.__name__)
    return exporter


def rounded(source: Source, recipe: Recipe) -> DraftGraph:
    """The draft with its linear layers rounded; the source stays as it is."""
    graph = DraftGraph(copy.deepcopy(source.network), source.network.config.length + BLOCK)
    with torch.no_grad():
        for name, module in _linears(graph).items():
            module.weight.copy_(_rounded(module.weight, BITS[recipe.of(name)]))
    return graph.requires_grad_(False).eval()


def _linears(graph: DraftGraph) -> dict[str, nn.Linear]:
    return {name: module for name, module in graph.named_modules() if isinstance(module, nn.Linear)}


def _rounded(weight: Tensor, bits: int) -> Tensor:
    """Symmetric, one scale an output channel."""
    if not bits:
        return weight
    top = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / top
    rounded: Tensor = (weight / scale).round().clamp(-top, top) * scale
    return rounded


def _bytes(scheme: str, module: nn.Linear) -> int:
    return module.weight.numel() * (BITS[scheme] or 32) // 8
