"""Frames as a device would send them, from plain lists and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import sampling
from pixdraft.decoding.sparse import SparseDistribution, sparsify
from pixdraft.models.target import TargetInfo
from pixdraft.protocol import arrays
from pixdraft.protocol.frames import PROTOCOL_VERSION, Generate, Open, Strategy, Verify


def open_frame(info: TargetInfo, *, seed: int = 1, tokens: Sequence[int] = (), **fields: Any) -> Open:
    known = {"model": info.model_hash, "tokenizer": info.tokenizer_hash, "prompt": "a fox"}
    written = arrays.write_tokens(np.array(tokens, int), info.vocab_size)
    return Open(protocol=PROTOCOL_VERSION, seed=seed, tokens=written, **(known | fields))


def verify_frame(
    session: str,
    before: Sequence[int],
    block: Sequence[int],
    drafts: dict[int, SparseDistribution],
    features: NDArray[np.floating[Any]] | None = None,
    vocab_size: int = 6,
) -> Verify:
    """A block after the tokens `before`; `drafts` by asked offset."""
    codes, scales = (b"", b"") if features is None else arrays.quantise(features)
    return Verify(
        session,
        len(before),
        arrays.prefix_hash(np.array(before, int), vocab_size),
        arrays.write_tokens(np.array(block, int), vocab_size),
        tuple(drafts),
        tuple(arrays.write_draft(draft, vocab_size) for draft in drafts.values()),
        codes,
        scales,
    )


def generate_frame(session: str, before: Sequence[int], count: int, strategy: Strategy | None = None) -> Generate:
    return Generate(session, len(before), arrays.prefix_hash(np.array(before, int)), count, strategy or Strategy())


def certain(token: int) -> SparseDistribution:
    """The draft of a device that would draw nothing else: q(x) / 1 decides."""
    return SparseDistribution(np.array([token], np.uint32), np.zeros(1, np.float16))


def faithful(logits: NDArray[np.floating[Any]]) -> SparseDistribution:
    """The draft of a device that knows the target's logits, but for float16."""
    return sparsify(sampling.probabilities(logits))
