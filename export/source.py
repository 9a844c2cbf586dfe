"""What is exported: a draft with its heads, its tables, its tokenizer's decoder, and what it was made for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pixdraft.export.errors import ExportError
from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import LLAMAGEN, VQConfig
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.runtime.backends import DraftInfo

XL_SHAPE = "llamagen-xl-random"


@dataclass(frozen=True, eq=False)
class Source:
    """A draft to export.

    Attributes:
        info: what it was made for.
        network: the draft, in eval mode.
        tokenizer: only its decoder and codebook are exported.
        prompts: real ones to judge a quantised draft by; empty for random weights.
        model: the model folder's path or bundled name, which a real run against the cloud needs; None for random
            weights.
    """

    info: DraftInfo
    network: DraftTransformer
    tokenizer: VQTokenizer
    prompts: tuple[str, ...] = ()
    model: str | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over all that is exported: facts and weights."""
        digest = hashlib.sha256(json.dumps(asdict(self.info), sort_keys=True).encode())
        for module in (self.network, self.tokenizer):
            for name, weight in module.state_dict().items():
                digest.update(f"{name} {tuple(weight.shape)}".encode())
                digest.update(weight.numpy().tobytes())
        return digest.hexdigest()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the linear layers that a recipe may name."""
        from pixdraft.export.graph import DraftGraph

        graph = DraftGraph(self.network, self.network.config.length)
        return tuple(name for name, module in graph.named_modules() if isinstance(module, torch.nn.Linear))

    def tables(self) -> dict[str, NDArray[Any]]:
        """What the device looks up by itself, float16 (float32 where that would round):

        ``prompt`` [words + 1, d] and ``slots`` [P, d], whose sum embeds a word at its place; ``tokens`` [V, d].

        Raises:
            ExportError: the draft's prompts are no words.
        """
        condition = self.network.decoder.cls_embedding
        if not isinstance(condition, WordCondition):
            raise ExportError(f"a draft with {type(condition).__name__} has no table: take one whose prompts are words")
        parts = {
            "prompt": condition.embedding_table.weight,
            "slots": condition.slots,
            "tokens": self.network.decoder.tok_embeddings.weight,
        }
        return {name: _narrow(part.detach().numpy()) for name, part in parts.items()}


def _narrow(table: NDArray[Any]) -> NDArray[Any]:
    half = table.astype(np.float16)
    return half if np.array_equal(half.astype(np.float32), table) else table.astype(np.float32)


def load(name_or_path: str | Path) -> Source:
    """The draft of a model folder or bundled model; `XL_SHAPE` is a LlamaGen-XL-shaped one of random weights.

    Raises:
        ModelError: the folder cannot be used; the message says why.
    """
    from pixdraft.export.prompts import prompts_of
    from pixdraft.models.registry import find, load_draft_transformer, load_tokenizer
    from pixdraft.runtime.backends.torch_backend import draft_info

    if str(name_or_path) == XL_SHAPE:
        return random_xl()
    folder = find(name_or_path)
    network, tokenizer = load_draft_transformer(folder), load_tokenizer(folder)
    return Source(draft_info(folder), network, tokenizer, prompts_of(folder), str(name_or_path))


def random_xl(seed: int = 0) -> Source:
    """A draft of one LlamaGen-XL layer (d 1280, V 16,384, 120 condition tokens) with random weights.

    For sizes, parity and speed: it draws nothing. Its tokenizer is the bundled model's shape with 16,384 codes.
    """
    torch.manual_seed(seed)
    shape = DraftTransformer.shape(LLAMAGEN["XL"])
    draft = DraftTransformer(shape, WordCondition(1000, shape.condition_length, shape.dim))
    torch.nn.init.normal_(draft.radius.weight, std=0.02)
    tokenizer = VQTokenizer(VQConfig(codebook_size=shape.vocab_size))
    thresholds = {"risk": [(0.0, 1.0), (0.3, 0.5), (1.0, 0.0)]}
    info = DraftInfo(XL_SHAPE, "0" * 64, "0" * 64, shape.vocab_size, shape.image_tokens, 32, 1.0, "risk", thresholds)
    return Source(info, draft.requires_grad_(False).eval(), tokenizer.requires_grad_(False).eval())
