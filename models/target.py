"""What the cloud asks of a full model: the seam between the service and any network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class PromptError(ValueError):
    """The prompt cannot be used; the message says why and what would do."""


def no_drafter(name: str) -> str:
    """What is said where a model should draw by eagle2 and has no drafter: one sentence with the mend."""
    return (
        f"the model {name!r} has no drafter (eagle.safetensors): run `pixdraft train eagle` and then "
        "`pixdraft train weights`, and take the model that it writes, or draw by sjd"
    )


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


class TreeDrafter(Protocol):
    """A small network beside the target that guesses what it will draw, for `decoding.tree.grow`.

    It works on the target's caches, and forgets with them. Its logits are guided as the target's are.
    """

    def begin(self, tokens: NDArray[np.integer], cache: Any) -> NDArray[np.float32]:
        """Begin a tree after the settled tokens [n], n >= 1, of which the cache holds all but the last.

        Returns the logits of what follows them, float32 [V].
        """

    def expand(self, tokens: NDArray[np.integer], parents: NDArray[np.integer], cache: Any) -> NDArray[np.float32]:
        """Logits of what follows k guesses, float32 [k, V]. See `decoding.tree.Expand`."""


class TargetModel(Protocol):
    """A full autoregressive picture model. Methods are called from worker threads, one call a cache at a time."""

    info: TargetInfo

    @property
    def codebook(self) -> NDArray[Any] | None:
        """Codes as the tokenizer looks them up, float [V, e]; None where rules that compare codes cannot be served."""

    @property
    def drafter(self) -> TreeDrafter | None:
        """What guesses ahead for the strategy `eagle2`; None where that cannot be served."""

    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        """Encode a prompt. Raises PromptError where it holds nothing the model knows."""

    def forward(
        self, tokens: NDArray[np.integer], cache: Any, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Extend the cache by image tokens [n], in one pass; guided logits of the positions after each, [n, V].

        `features` are bottleneck features [n, bottleneck] of the device (ciar.md, section 3); None, or a row of
        zeros, adds nothing to the token's embedding.
        """

    def forward_tree(
        self,
        tokens: NDArray[np.integer],
        parents: NDArray[np.integer],
        cache: Any,
        features: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """`forward` for the n nodes of a tree: guided logits of the position after each, [n, V].

        The root, node 0, is the token after those in the cache; a node sees itself, its ancestors and the cache, and
        stands where its depth puts it. The cache is as long as before, until `keep`.

        Args:
            tokens: [n].
            parents: [n], see `decoding.tree.Tree`.
            cache: of the tokens before the root.
            features: as in `forward`, [n, bottleneck].
        """

    def keep(self, cache: Any, path: Sequence[int]) -> None:
        """Extend the cache by a path of the last `forward_tree`: nodes from the root down. Costs no pass."""

    def truncate(self, cache: Any, length: int) -> None:
        """Keep the first `length` image tokens of a cache."""

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """The picture of all T tokens, uint8 [H, W, 3]."""
