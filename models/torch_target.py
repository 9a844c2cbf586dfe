"""The full model in torch, as the cloud runs it: a KV cache a picture, guided logits out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixdraft.decoding.tree import lineage
from pixdraft.models.branches import BranchCache
from pixdraft.models.conditions import TextEncoder
from pixdraft.models.eagle import Eagle
from pixdraft.models.inter_head import Conditioning
from pixdraft.models.target import OpenedPrompt, TargetInfo
from pixdraft.models.tokenizer import VQTokenizer, to_bytes
from pixdraft.models.torch_drafter import DrafterCache, TorchDrafter
from pixdraft.models.transformer import StaticCache, Transformer, guide

__all__ = ["TargetCache", "TorchTarget", "guide"]


@dataclass
class TargetCache:
    """Keys and values of one picture: row 0 with the prompt, row 1 (where guidance is not 1) without.

    Attributes:
        drafter: what a drafter knows of the picture; None where the target has none.
        length: image tokens in it.
        tree: the last tree's keys, values and states, until a path of it is kept or the picture goes on otherwise.
    """

    kv: StaticCache
    valid: Tensor
    guidance: float
    drafter: DrafterCache | None = None
    length: int = 0
    tree: tuple[BranchCache, Tensor] | None = None


class TorchTarget:
    """Implements `pixdraft.models.target.TargetModel` over a `Transformer`.

    Args:
        info: what to tell devices.
        decoder, conditioning, tokenizer: the networks, in eval mode.
        encoder: of prompts.
        eagle: the network of a drafter, in eval mode, if there is one.
    """

    def __init__(
        self,
        info: TargetInfo,
        decoder: Transformer,
        conditioning: Conditioning,
        tokenizer: VQTokenizer,
        encoder: TextEncoder,
        eagle: Eagle | None = None,
    ) -> None:
        self.info = info
        self.decoder = decoder
        self.conditioning = conditioning
        self.tokenizer = tokenizer
        self.encoder = encoder
        self.drafter = None if eagle is None else TorchDrafter(eagle, decoder)

    @property
    def codebook(self) -> NDArray[np.float32]:
        """See `TargetModel.codebook`."""
        codes: NDArray[np.float32] = self.tokenizer.quantize.units().detach().numpy()
        return codes

    @torch.inference_mode()
    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        """See `TargetModel.open`."""
        condition = self.encoder.encode(prompt)
        rows = 1 if guidance == 1.0 else 2
        ids = torch.from_numpy(condition).long().expand(rows, -1)
        embedded, valid = self.decoder.cls_embedding(ids, torch.arange(rows) == 1)
        own = None if self.drafter is None else DrafterCache.fresh(self.drafter.network, rows)
        cache = TargetCache(StaticCache(self.decoder.config, rows), valid, guidance, own)
        states = self.decoder.core(embedded, valid, 0, cache.kv)[:, -1]
        if own is not None:
            own.states[:, 0] = states
        logits = guide(self.decoder.output(states), guidance)
        return OpenedPrompt(cache, logits.numpy(), condition)

    @torch.inference_mode()
    def forward(
        self, tokens: NDArray[np.integer], cache: TargetCache, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `TargetModel.forward`. Raises ValueError where the picture has no room for the tokens."""
        config = self.decoder.config
        if cache.length + len(tokens) > config.image_tokens:
            raise ValueError(
                f"{len(tokens)} tokens after {cache.length} are more than the picture's {config.image_tokens}"
            )
        embedded = self._embedded(tokens, features, cache)
        first = config.condition_length + cache.length
        states = self.decoder.core(embedded, cache.valid, first, cache.kv)
        cache.tree = None
        self._extend(cache, states)
        return self._logits(states, cache)

    @torch.inference_mode()
    def forward_tree(
        self,
        tokens: NDArray[np.integer],
        parents: NDArray[np.integer],
        cache: TargetCache,
        features: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """See `TargetModel.forward_tree`. Raises ValueError where the picture has no room for the deepest node."""
        config, seen = self.decoder.config, torch.from_numpy(lineage(np.asarray(parents, np.int64)))
        if cache.length + (deep := int(seen.sum(-1).max())) > config.image_tokens:
            raise ValueError(
                f"a branch of {deep} tokens after {cache.length} is longer than the picture's {config.image_tokens}"
            )
        embedded = self._embedded(tokens, features, cache)
        first = config.condition_length + cache.length
        nodes = BranchCache(cache.kv, first)
        states = self.decoder.branches(embedded, cache.valid, first, seen, nodes)
        cache.tree = (nodes, states)
        return self._logits(states, cache)

    @torch.inference_mode()
    def keep(self, cache: TargetCache, path: Sequence[int]) -> None:
        """See `TargetModel.keep`. Raises ValueError where no tree has just been looked at."""
        if cache.tree is None:
            raise ValueError("there is no tree to keep a path of: call forward_tree first")
        nodes, states = cache.tree
        nodes.settle(path)
        cache.tree = None
        self._extend(cache, states[:, list(path)])

    def _embedded(
        self, tokens: NDArray[np.integer], features: NDArray[np.float32] | None, cache: TargetCache
    ) -> Tensor:
        embedded: Tensor = self.decoder.tok_embeddings(torch.as_tensor(np.asarray(tokens, dtype=np.int64)))
        if features is not None:
            embedded = embedded + self.conditioning(torch.from_numpy(np.asarray(features, dtype=np.float32)))
        return embedded.expand(cache.valid.shape[0], -1, -1)

    def _extend(self, cache: TargetCache, states: Tensor) -> None:
        """Count tokens whose keys and values are in the cache, and keep their states for a drafter."""
        start, cache.length = cache.length, cache.length + states.shape[1]
        if cache.drafter is not None:
            cache.drafter.states[:, start + 1 : cache.length + 1] = states

    def _logits(self, states: Tensor, cache: TargetCache) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = guide(self.decoder.output(states), cache.guidance).numpy()
        return logits

    def truncate(self, cache: TargetCache, length: int) -> None:
        """See `TargetModel.truncate`: later writes go over what is cut."""
        if not 0 <= length <= cache.length:
            raise ValueError(f"cannot keep {length} of {cache.length} cached tokens")
        cache.length, cache.tree = length, None
        if cache.drafter is not None:
            cache.drafter.truncate(length)

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """See `TargetModel.decode`."""
        pixels: NDArray[np.uint8] = to_bytes(self.tokenizer.decode(torch.as_tensor(np.asarray(tokens))[None].long()))[
            0
        ].numpy()
        return pixels
