"""The drafter beside the target in torch: what grows a tree of guesses for one picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixdraft.models.branches import BranchCache
from pixdraft.models.eagle import Eagle
from pixdraft.models.transformer import StaticCache, Transformer, guide

if TYPE_CHECKING:
    from pixdraft.models.torch_target import TargetCache


@dataclass
class Layer:
    """The guesses of a tree that were made last: where they stand, what each sees of the tree, their states.

    Attributes:
        position: of what follows them in the picture.
        seen: bool [k, m], of all m guesses so far.
        states: guessed, [B, k, d].
        nodes: of all layers so far.
    """

    position: int
    seen: Tensor
    states: Tensor
    nodes: BranchCache


@dataclass
class DrafterCache:
    """What the drafter knows of one picture, beside the target's cache.

    Attributes:
        kv: its keys and values, image position by image position.
        states: of the target, [B, T + 1, d]: first the one that image token 0 is drawn from.
        length: tokens in `kv`.
        layer: of the tree that grows.
    """

    kv: StaticCache
    states: Tensor
    length: int = 0
    layer: Layer | None = field(default=None, repr=False)

    @classmethod
    def fresh(cls, network: Eagle, rows: int) -> DrafterCache:
        """Of a picture without tokens, for B = `rows`."""
        shape = (rows, network.config.image_tokens + 1, network.config.dim)
        return cls(StaticCache(network.config, rows), torch.zeros(shape))

    def truncate(self, length: int) -> None:
        """Forget what belongs to tokens from `length` on."""
        self.length = min(self.length, length)
        self.layer = None


class TorchDrafter:
    """Implements `pixdraft.models.target.TreeDrafter`. With guidance it has two rows, as the target has.

    Args:
        network: the drafter, in eval mode.
        target: whose embeddings and head it uses.
    """

    def __init__(self, network: Eagle, target: Transformer) -> None:
        self.network = network
        self._target = target

    @torch.inference_mode()
    def begin(self, tokens: NDArray[np.integer], cache: TargetCache) -> NDArray[np.float32]:
        """See `TreeDrafter.begin`. Raises ValueError where the target has not seen all tokens but the last."""
        own, end = _of(cache), len(tokens)
        if not 1 <= end <= cache.length + 1:
            raise ValueError(f"cannot guess after {end} tokens: the target's cache holds {cache.length}")
        start = min(own.length, end - 1)
        states, positions = own.states[:, start:end], torch.arange(start, end)
        guessed = self.network(self._embedded(tokens[start:], len(states)), states, positions, None, own.kv)
        own.length = end
        last = guessed[:, -1:]
        own.layer = Layer(end, torch.zeros(1, 0, dtype=torch.bool), last, BranchCache(own.kv, end))
        return self._logits(last, cache)[0]

    @torch.inference_mode()
    def expand(
        self, tokens: NDArray[np.integer], parents: NDArray[np.integer], cache: TargetCache
    ) -> NDArray[np.float32]:
        """See `TreeDrafter.expand`."""
        own = _of(cache)
        if own.layer is None:
            raise ValueError("no tree grows here: call begin first")
        layer, picked, count = own.layer, torch.as_tensor(np.asarray(parents, np.int64)), len(tokens)
        seen = torch.cat([layer.seen[picked], torch.eye(count, dtype=torch.bool)], dim=1)
        mask = torch.cat([torch.ones(count, own.length, dtype=torch.bool), seen], dim=1)
        positions = torch.full((count,), layer.position)
        states = layer.states[:, picked]
        guessed = self.network(self._embedded(tokens, len(states)), states, positions, mask, layer.nodes)
        own.layer = Layer(layer.position + 1, seen, guessed, layer.nodes)
        return self._logits(guessed, cache)

    def _embedded(self, tokens: NDArray[np.integer], rows: int) -> Tensor:
        embedded: Tensor = self._target.tok_embeddings(torch.as_tensor(np.asarray(tokens, np.int64)))
        return embedded.expand(rows, -1, -1)

    def _logits(self, states: Tensor, cache: TargetCache) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = guide(self._target.output(states), cache.guidance).numpy()
        return logits


def _of(cache: TargetCache) -> DrafterCache:
    if cache.drafter is None:
        raise ValueError("the picture was opened without a drafter")
    return cache.drafter
