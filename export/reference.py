"""Golden values of a source: what the fp32 model says, in one pass without a cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from pixdraft.export.eager import EagerEngine
from pixdraft.export.gate import artefact
from pixdraft.export.gate.golden import Case, Golden, chunks_for
from pixdraft.export.gate.quality import Drawn
from pixdraft.export.graph import DraftGraph
from pixdraft.export.source import Source
from pixdraft.models.tokenizer import to_bytes
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.exported import ExportedDraft

SHORT = 3
"""Words of a prompt that was made up."""


def golden(source: Source, pictures: Drawn | None, mirror: DraftGraph | None) -> Golden:
    """Two cases of a source, without what the exported draft gives.

    Args:
        source: what is exported.
        pictures: drawn of real prompts; the first of them is the first case, which is made up without them.
        mirror: the draft over the quantised weights, where the target has such a thing.
    """
    rng = np.random.default_rng(0)
    places, words = source.network.config.condition_length, source.tables()["prompt"].shape[0] - 1
    conditions = np.zeros((2, places), np.int32)
    for i, count in enumerate((min(SHORT, places), places)):
        conditions[i, places - count :] = rng.integers(1, words + 1, count)
    tokens = rng.integers(0, source.info.vocab_size, (2, source.info.image_tokens))
    if pictures is not None:
        conditions[0], tokens[0] = pictures.condition[0], pictures.tokens[0]
    chunks = chunks_for(source.info.image_tokens)
    cases = tuple(_case(source, *pair, sum(chunks)) for pair in zip(conditions, tokens, strict=True))
    if mirror is not None:
        draft = ExportedDraft(source.info, source.tables(), EagerEngine(mirror))
        cases = tuple(replace(case, mirror=artefact.run(draft, case, (sum(chunks),))) for case in cases)
    return Golden(cases, chunks)


@torch.inference_mode()
def full_pass(source: Source, condition: NDArray[np.int32], tokens: NDArray[np.int64]) -> DraftOutput:
    """The fp32 model's rows of the positions 0 .. n, in one pass of `models.transformer`, which knows no export."""
    ids, fed = torch.from_numpy(condition.astype(np.int64))[None], torch.from_numpy(tokens)[None]
    row = source.network.heads(source.network.decoder.hidden(ids, fed)[0])
    return DraftOutput(*(part.numpy() for part in row))


def _case(source: Source, condition: NDArray[np.int32], tokens: NDArray[np.int64], count: int) -> Case:
    with torch.inference_mode():
        pixels = to_bytes(source.tokenizer.decode(torch.from_numpy(tokens)[None]))[0].numpy()
    return Case(condition, tokens, full_pass(source, condition, tokens[:count]), pixels)
