"""The draft in torch eager: the reference that every exported backend is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.registry import ModelFolder, find, load_draft_transformer, load_tokenizer
from pixdraft.models.tokenizer import VQTokenizer, to_bytes
from pixdraft.models.transformer import StaticCache
from pixdraft.runtime.backends import DraftInfo, DraftOutput


def draft_info(folder: ModelFolder) -> DraftInfo:
    """What the draft of a model folder was made for."""
    info, draft = folder.info, folder.draft
    return DraftInfo(
        name=info.name,
        model_hash=info.model_hash,
        tokenizer_hash=info.tokenizer_hash,
        vocab_size=info.vocab_size,
        image_tokens=info.image_tokens,
        bottleneck=info.bottleneck,
        guidance=info.guidance,
        statistic=draft["statistic"],
        thresholds={name: [(float(r), float(t)) for r, t in rows] for name, rows in draft["thresholds"].items()},
    )


class TorchDraft:
    """Implements `pixdraft.runtime.backends.DraftModel`.

    Args:
        info: what the draft was made for.
        network: the draft, in eval mode.
        tokenizer: the bundle's tokenizer; only its decoder is used.
    """

    def __init__(self, info: DraftInfo, network: DraftTransformer, tokenizer: VQTokenizer) -> None:
        self.info = info
        self.network = network
        self.tokenizer = tokenizer
        self.cache = StaticCache(network.config, rows=1)
        self.valid = torch.zeros(1, network.config.condition_length, dtype=torch.bool)

    @torch.inference_mode()
    def open(self, condition: NDArray[Any]) -> DraftOutput:
        """See `DraftModel.open`. Raises ValueError where the condition has another length than the draft's."""
        expected = self.network.config.condition_length
        if condition.shape[0] != expected:
            raise ValueError(f"the condition has {condition.shape[0]} positions, the draft takes {expected}")
        ids = torch.from_numpy(np.asarray(condition, dtype=np.int64))[None]
        state, self.valid = self.network.prefill(ids, self.cache)
        return self._outputs(state)

    @torch.inference_mode()
    def step(self, tokens: NDArray[np.integer], position: int) -> DraftOutput:
        """See `DraftModel.step`. Raises ValueError where the tokens leave the picture."""
        if position < 0 or position + len(tokens) > self.info.image_tokens:
            raise ValueError(
                f"{len(tokens)} tokens at position {position} leave the picture's {self.info.image_tokens}"
            )
        ids = torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None]
        return self._outputs(self.network.step(ids, position, self.valid, self.cache))

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """See `DraftModel.decode`."""
        ids = torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None]
        pixels: NDArray[np.uint8] = to_bytes(self.tokenizer.decode(ids))[0].numpy()
        return pixels

    def _outputs(self, state: torch.Tensor) -> DraftOutput:
        row = self.network.heads(state)
        return DraftOutput(*(part[0].numpy() for part in row))


def load_draft(name_or_path: str | Path = "emoji") -> TorchDraft:
    """The draft of a model folder (a bundled model's name or a path).

    Raises:
        ModelError: the folder cannot be used; the message says why.
    """
    folder = find(name_or_path)
    return TorchDraft(draft_info(folder), load_draft_transformer(folder), load_tokenizer(folder))
