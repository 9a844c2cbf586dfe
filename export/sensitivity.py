"""What each layer loses by itself: one linear layer quantised at a time, all others left as they are.

Where the loss of a layer is out of proportion to the bytes that it saves, a mixed recipe leaves it alone. Every draft
is exported for real, so that what is measured, and what a layer weighs, is the target's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import intervals
from pixdraft.decoding.sampling import Floats, probabilities, total_variation
from pixdraft.export.bundle import Job, Show, recorded, size_of
from pixdraft.export.description import TABLES, code, describe, tools
from pixdraft.export.engines import open_draft
from pixdraft.export.errors import ExportError
from pixdraft.export.gate.quality import Drawn, led
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.source import Source
from pixdraft.export.stages import Result, Stages
from pixdraft.models.config import VQConfig
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.runtime.backends import DraftModel
from pixdraft.runtime.backends.torch_backend import TorchDraft

LEFT = 0.5
"""Share of the summed loss that a mixed recipe leaves in its quantised layers."""


@dataclass(frozen=True)
class Layer:
    """One layer alone.

    Attributes:
        layer: its name.
        top1: share of positions whose most probable token stays the fp32 draft's.
        tv: mean total variation from the fp32 draft.
        u: mean error of U over its mean.
        saved: bytes that quantising it saves; 0 where the target leaves it as it is anyway.
    """

    layer: str
    top1: float
    tv: float
    u: float
    saved: int

    @property
    def loss(self) -> float:
        """Total variation for each million bytes saved; what only costs bytes is never worth it."""
        if self.saved <= 0:
            return float("inf") if self.saved else 0.0
        return self.tv / self.saved * 1e6


class _Said(NamedTuple):
    """Of one picture: distributions [T, V] and U [T]."""

    p: Floats
    u: Floats


def measure(job: Job, show: Show) -> list[Layer]:
    """All layers, the worst bargain first.

    A layer that is done is not done again, see `export.stages`.

    Raises:
        ExportError: the scheme quantises nothing, or there are no pictures to measure on.
    """
    plainest = job.exporter.schemes[0]
    if job.recipe.scheme == plainest:
        raise ExportError(f"--quant {plainest} quantises nothing: choose one of {', '.join(job.exporter.schemes[1:])}")
    pictures, drawn = recorded(job, show)
    if pictures is None:
        raise ExportError("random weights draw nothing that a layer could be judged by: name a trained model")
    small = replace(job.source, tokenizer=_smallest_tokenizer(job.source))
    reference = TorchDraft(job.source.info, job.source.network, job.source.tokenizer)
    fp32 = [_along(reference, *pair) for pair in _pictures(pictures)]
    stages = Stages(job.work / "sensitivity", lambda name, done: None)
    names = job.source.layers
    facts = {
        "code": code(),
        "source": job.source.fingerprint,
        "target": job.exporter.target,
        "scheme": job.recipe.scheme,
        "tools": tools(job.exporter),
        "pictures": drawn,
    }

    def alone(place: int, layer: str) -> Result:
        show(f"layer {layer}" if layer else "no layer", place, len(names) + 1)
        recipe = Recipe(job.recipe.scheme, {name: FLOAT for name in names if name != layer})
        work = partial(_export_and_measure, replace(job, source=small, recipe=recipe), pictures, fp32)
        return stages.run(layer or "none", facts | {"layer": layer}, (), (), work)

    whole = alone(0, "")["bytes"]
    results = [(layer, alone(i, layer)) for i, layer in enumerate(names, 1)]
    rows = [
        Layer(layer, result["top1"], result["tv"], result["u"], whole - result["bytes"]) for layer, result in results
    ]
    return sorted(rows, key=lambda row: -row.loss)


def mixed(job: Job, layers: Sequence[Layer], other: str = FLOAT, count: int | None = None) -> Recipe:
    """A recipe that gives the worst bargains another scheme.

    Args:
        job: whose recipe is the start.
        layers: of `measure`.
        other: the scheme of the layers that are spared.
        count: how many are; None spares them until `LEFT` of the summed loss remains.
    """
    if count is None:
        left, whole, count = sum(row.tv for row in layers), sum(row.tv for row in layers), 0
        while count < len(layers) and left > LEFT * whole:
            left -= layers[count].tv
            count += 1
    return replace(job.recipe, overrides=job.recipe.overrides | {row.layer: other for row in layers[:count]})


def _export_and_measure(job: Job, pictures: Drawn, fp32: list[_Said]) -> Result:
    folder = job.work / "sensitivity" / "one"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = job.exporter.export(job.source, job.recipe, folder)
    size = size_of(folder / made.draft)
    np.savez(folder / TABLES, **job.source.tables())  # type: ignore[arg-type]
    draft = open_draft(folder, describe(job.source, job.exporter, job.recipe, made, folder), job.threads)
    pairs = [(said, _along(draft, *pair)) for said, pair in zip(fp32, _pictures(pictures), strict=True)]
    shutil.rmtree(folder)
    agree = np.concatenate([a.p.argmax(-1) == b.p.argmax(-1) for a, b in pairs])
    variation = np.concatenate([total_variation(a.p, b.p) for a, b in pairs])
    error = (
        np.concatenate([np.abs(a.u - b.u) for a, b in pairs]).mean() / np.concatenate([a.u for a, _ in pairs]).mean()
    )
    return {"top1": float(agree.mean()), "tv": float(variation.mean()), "u": float(error), "bytes": size}


def _pictures(pictures: Drawn) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    return list(zip(pictures.condition, pictures.tokens, strict=True))


def _along(draft: DraftModel, condition: NDArray[np.int32], tokens: NDArray[np.int64]) -> _Said:
    row = led(draft, condition, tokens)
    return _Said(probabilities(row.center), intervals.uncertainty(*intervals.fuse(row.center, row.radius)))


def _smallest_tokenizer(source: Source) -> VQTokenizer:
    """A decoder that costs an exporter nothing: it is written with every draft, and nobody looks at it here."""
    config = VQConfig(
        channels=4,
        multipliers=(1,),
        res_blocks=1,
        latent_channels=4,
        codebook_size=source.info.vocab_size,
        codebook_dim=4,
        norm_groups=2,
    )
    return VQTokenizer(config).requires_grad_(False).eval()
