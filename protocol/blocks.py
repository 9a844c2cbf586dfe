"""`Verify` and `Verdict` with their bytes read and every rule between their fields checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding.sparse import SparseDistribution
from pixdraft.protocol import arrays
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Verdict, Verify


@dataclass(frozen=True)
class Shape:
    """What lengths and ranges of a frame follow from.

    Attributes:
        vocab_size: V.
        image_tokens: T.
        bottleneck: width b of the features a token carries; 0 takes none.
    """

    vocab_size: int
    image_tokens: int
    bottleneck: int


@dataclass(frozen=True, eq=False)
class Block:
    """A `Verify` as arrays.

    Attributes:
        base: image position of the first token.
        tokens: int64 [n].
        asked: ascending offsets in the block.
        drafts: the distribution at each asked offset.
        features: float32 [n, b], or None.
    """

    base: int
    tokens: NDArray[np.int64]
    asked: tuple[int, ...]
    drafts: tuple[SparseDistribution, ...]
    features: NDArray[np.float32] | None


def read_block(frame: Verify, shape: Shape) -> Block:
    """The block of a `Verify`. Raises ProtocolError by the name of the field."""
    read_prefix(frame.prefix)
    tokens = arrays.read_tokens(frame.tokens, shape.vocab_size)
    n = tokens.size
    if not n:
        raise ProtocolError("request", "tokens is empty: a block has at least one token")
    if frame.base + n > shape.image_tokens:
        raise ProtocolError("request", f"base {frame.base} and {n} tokens pass the picture's {shape.image_tokens}")
    if any(later <= earlier for earlier, later in zip(frame.asked, frame.asked[1:], strict=False)):
        raise ProtocolError("request", "asked is not strictly ascending")
    if frame.asked and frame.asked[-1] >= n:
        raise ProtocolError("request", f"asked holds offset {frame.asked[-1]}, but the block has {n} tokens")
    if len(frame.drafts) != len(frame.asked):
        raise ProtocolError("request", f"drafts holds {len(frame.drafts)} entries for {len(frame.asked)} asked tokens")
    drafts = tuple(arrays.read_draft(d, shape.vocab_size, f"drafts[{i}]") for i, d in enumerate(frame.drafts))
    for i, (offset, draft) in enumerate(zip(frame.asked, drafts, strict=True)):
        if tokens[offset] not in draft.ids:
            raise ProtocolError("request", f"drafts[{i}].ids lacks its own token {tokens[offset]}")
    return Block(
        frame.base, tokens, frame.asked, drafts, arrays.dequantise(frame.features, frame.scales, n, shape.bottleneck)
    )


def read_prefix(prefix: bytes) -> bytes:
    """A prefix hash of the right length."""
    if len(prefix) != arrays.HASH_BYTES:
        raise ProtocolError("request", f"prefix is {len(prefix)} bytes long, not {arrays.HASH_BYTES}")
    return prefix


def read_verdict(verdict: Verdict, frame: Verify, shape: Shape) -> NDArray[np.float32]:
    """The audit float32 [k] of a verdict, once it is known to be a possible answer to `frame`."""
    n = len(frame.tokens) // arrays.token_dtype(shape.vocab_size).itemsize
    if (verdict.session, verdict.base) != (frame.session, frame.base):
        raise ProtocolError("protocol", f"base {verdict.base} of the verdict answers another frame")
    if verdict.settled not in (frame.asked if verdict.rejected else (n,)):
        raise ProtocolError("protocol", f"settled {verdict.settled} of the verdict ends at no token that was asked")
    full = not verdict.rejected and frame.base + n == shape.image_tokens
    if (verdict.token == -1) != full or verdict.token >= shape.vocab_size:
        raise ProtocolError("protocol", f"token {verdict.token} of the verdict cannot follow")
    kept = verdict.settled - sum(offset < verdict.settled for offset in frame.asked)
    audit: NDArray[Any] = arrays.read_floats(verdict.audit, "float32", kept, "audit")
    return audit
