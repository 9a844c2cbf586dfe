"""The seam between the loop and any engine that runs the draft: torch, ExecuTorch, ONNX Runtime, Core ML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class DraftOutput(NamedTuple):
    """What one pass of the draft says of the position AFTER each token it was fed (n rows).

    Attributes:
        center: logits c, float32 [n, V].
        radius: half-widths r >= 0 of the logit intervals [c - r, c + r], float32 [n, V].
        feature: hidden state f after the last norm, float32 [n, d].
        risk: predicted total variation from the target, float32 [n], in [0, 1].
        message: bottleneck feature z = silu(W1 [f; l^T E; u^T E]), float32 [n, bottleneck]; goes up beside the token
            that is drawn from this row.
    """

    center: NDArray[np.float32]
    radius: NDArray[np.float32]
    feature: NDArray[np.float32]
    risk: NDArray[np.float32]
    message: NDArray[np.float32]


@dataclass(frozen=True)
class DraftInfo:
    """What a draft was made for.

    Attributes:
        name: of the model.
        model_hash, tokenizer_hash: of the target and the tokenizer it drafts for; checked when a session opens.
        vocab_size, image_tokens: V and T.
        bottleneck: width of `DraftOutput.message`.
        guidance: the scale of the distribution it learned.
        statistic: the uncertainty that its thresholds were calibrated for by default ("risk", "interval", ...).
        thresholds: by statistic: ascending (upload rate, tau) pairs measured on prompts not trained on.
    """

    name: str
    model_hash: str
    tokenizer_hash: str
    vocab_size: int
    image_tokens: int
    bottleneck: int
    guidance: float
    statistic: str
    thresholds: dict[str, list[tuple[float, float]]]


class DraftModel(Protocol):
    """The device's model with its KV cache of ONE picture. Writing at a position IS the rollback."""

    info: DraftInfo

    def open(self, condition: NDArray[Any]) -> DraftOutput:
        """Start a picture: feed the condition; the one row is of image position 0."""

    def step(self, tokens: NDArray[np.integer], position: int) -> DraftOutput:
        """Feed image tokens [n] at `position` and on; row i is of image position `position + i + 1`."""

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """The picture of all T tokens, uint8 [H, W, 3]."""
