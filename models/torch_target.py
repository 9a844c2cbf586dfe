"""The full model in torch, as the cloud runs it: a KV cache a picture, guided logits out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixdraft.models.conditions import TextEncoder
from pixdraft.models.inter_head import Conditioning
from pixdraft.models.target import OpenedPrompt, TargetInfo
from pixdraft.models.tokenizer import VQTokenizer, to_bytes
from pixdraft.models.transformer import StaticCache, Transformer


@dataclass
class TargetCache:
    """Keys and values of one picture: row 0 with the prompt, row 1 (where guidance is not 1) without.

    Attributes:
        length: image tokens in it.
    """

    kv: StaticCache
    valid: Tensor
    guidance: float
    length: int = 0


def guide(logits: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance u + s (c - u) of logits [2, ...] (prompt, none); [1, ...] passes as it is."""
    if logits.shape[0] == 1:
        return logits[0]
    return logits[1] + scale * (logits[0] - logits[1])


class TorchTarget:
    """Implements `pixdraft.models.target.TargetModel` over a `Transformer`.

    Args:
        info: what to tell devices.
        decoder, conditioning, tokenizer: the networks, in eval mode.
        encoder: of prompts.
    """

    def __init__(
        self,
        info: TargetInfo,
        decoder: Transformer,
        conditioning: Conditioning,
        tokenizer: VQTokenizer,
        encoder: TextEncoder,
    ) -> None:
        self.info = info
        self.decoder = decoder
        self.conditioning = conditioning
        self.tokenizer = tokenizer
        self.encoder = encoder

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
        cache = TargetCache(StaticCache(self.decoder.config, rows), valid, guidance)
        states = self.decoder.core(embedded, valid, 0, cache.kv)[:, -1]
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
        embedded = self.decoder.tok_embeddings(torch.as_tensor(np.asarray(tokens, dtype=np.int64)))
        if features is not None:
            embedded = embedded + self.conditioning(torch.from_numpy(np.asarray(features, dtype=np.float32)))
        rows = cache.valid.shape[0]
        first = config.condition_length + cache.length
        states = self.decoder.core(embedded.expand(rows, -1, -1), cache.valid, first, cache.kv)
        cache.length += len(tokens)
        logits: NDArray[np.float32] = guide(self.decoder.output(states), cache.guidance).numpy()
        return logits

    def truncate(self, cache: TargetCache, length: int) -> None:
        """See `TargetModel.truncate`: later writes go over what is cut."""
        if not 0 <= length <= cache.length:
            raise ValueError(f"cannot keep {length} of {cache.length} cached tokens")
        cache.length = length

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """See `TargetModel.decode`."""
        pixels: NDArray[np.uint8] = to_bytes(self.tokenizer.decode(torch.as_tensor(np.asarray(tokens))[None].long()))[
            0
        ].numpy()
        return pixels
