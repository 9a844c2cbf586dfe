"""What the cloud asks of a full model: the seam between the service and any network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class PromptError(ValueError):
    """The prompt cannot be used; the message says why and what would do."""


@dataclass(frozen=True)
class TargetInfo:
    """What is served.

    Attributes:
        name: of the model.
        model_hash, tokenizer_hash: SHA-256 (hex) of the weights.
        vocab_size: V.
        image_tokens: T.
        bottleneck: width of the features that a device sends beside its tokens; 0 takes none.
        guidance: the scale that the model's draft was trained for, the default.
    """

    name: str
    model_hash: str
    tokenizer_hash: str
    vocab_size: int
    image_tokens: int
    bottleneck: int
    guidance: float


@dataclass(frozen=True)
class OpenedPrompt:
    """A prompt in the model: its cache, the logits of image token 0, and the condition for the device.

    Attributes:
        cache: opaque to the service; `TargetModel.forward` extends it, `TargetModel.truncate` cuts it.
        logits: guided, float32 [V].
        condition: what the device's model needs: int32 word ids [P], or float16 features.
    """

    cache: Any
    logits: NDArray[np.float32]
    condition: NDArray[Any]


class TargetModel(Protocol):
    """A full autoregressive picture model. Methods are called from worker threads, one call a cache at a time."""

    info: TargetInfo

    @property
    def codebook(self) -> NDArray[Any] | None:
        """Codes as the tokenizer looks them up, float [V, e]; None where rules that compare codes cannot be served."""

    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        """Encode a prompt. Raises PromptError where it holds nothing the model knows."""

    def forward(
        self, tokens: NDArray[np.integer], cache: Any, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Extend the cache by image tokens [n], in one pass; guided logits of the positions after each, [n, V].

        `features` are bottleneck features [n, bottleneck] of the device (ciar.md, section 3); None, or a row of
        zeros, adds nothing to the token's embedding.
        """

    def truncate(self, cache: Any, length: int) -> None:
        """Keep the first `length` image tokens of a cache."""

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """The picture of all T tokens, uint8 [H, W, 3]."""
