"""Text conditions: what stands before the image tokens.

Every condition module turns an array that can travel (word ids, or text-encoder features) into embeddings and the
mask of what is no padding. Both sides of the wire use it: the cloud encodes the text once, the device gets the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixdraft.models.prompts import shortened, split
from pixdraft.models.target import PromptError

PADDING = 0


class TextEncoder(Protocol):
    """Text to the array that a condition module takes."""

    def encode(self, prompt: str) -> NDArray[np.int32] | NDArray[np.float16]:
        """One prompt, without the batch axis. Raises PromptError where it holds nothing the model knows."""


class WordEncoder:
    """Prompts as word ids, left-padded with 0.

    Args:
        words: the vocabulary; word i has id i + 1.
        length: condition tokens P; a longer prompt keeps its first and its last words.
        framing: words that alone name nothing to draw, such as a style.
    """

    def __init__(self, words: list[str], length: int, framing: Sequence[str] = ()) -> None:
        self.words = list(words)
        self.length = length
        self.framing = frozenset(framing)
        self._ids = {word: i + 1 for i, word in enumerate(self.words)}

    def known(self, prompt: str) -> list[str]:
        """The words of a prompt that are in the vocabulary, in order."""
        return [word for word in split(prompt) if word in self._ids]

    def encode(self, prompt: str) -> NDArray[np.int32]:
        """Word ids, int32 [P].

        Raises:
            PromptError: no word of the prompt is known, framing aside.
        """
        words = self.known(prompt)
        if self.framing.issuperset(words):
            raise PromptError(
                f"no word of the prompt {prompt[:80]!r} is known to the model: name an everyday thing, "
                "for example 'red apple on sky'"
            )
        words = shortened(words, self.length)
        ids = np.full(self.length, PADDING, np.int32)
        ids[self.length - len(words) :] = [self._ids[word] for word in words]
        return ids


class WordCondition(nn.Module):
    """Embeds word ids [B, P]: a vector a word plus one a slot; a learned row of its own stands for "no prompt".

    The unconditional row keeps the prompt's padding mask, as LlamaGen does.
    """

    def __init__(self, words: int, length: int, dim: int) -> None:
        super().__init__()
        self.embedding_table = nn.Embedding(words + 1, dim)
        self.slots = nn.Parameter(torch.empty(length, dim))
        self.uncond_embedding = nn.Parameter(torch.empty(length, dim))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, condition: Tensor, drop: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Embeddings [B, P, d] and what is no padding, bool [B, P]; rows of `drop` [B] are unconditional."""
        embedded = self.embedding_table(condition) + self.slots
        if drop is not None:
            embedded = torch.where(drop[:, None, None], self.uncond_embedding, embedded)
        return embedded, condition != PADDING


class CaptionEmbedder(nn.Module):
    """LlamaGen's text condition: a projection of T5 features [B, P, features], left-padded with zero rows."""

    uncond_embedding: Tensor

    def __init__(self, features: int, length: int, dim: int) -> None:
        super().__init__()
        self.cap_proj = nn.ModuleDict(
            {"fc1": nn.Linear(features, dim, bias=False), "fc2": nn.Linear(dim, dim, bias=False)}
        )
        self.register_buffer("uncond_embedding", torch.zeros(length, features))

    def forward(self, condition: Tensor, drop: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `WordCondition.forward`."""
        valid = condition.abs().sum(-1) > 0
        if drop is not None:
            condition = torch.where(drop[:, None, None], self.uncond_embedding, condition)
        hidden = nn.functional.gelu(self.cap_proj["fc1"](condition), approximate="tanh")
        return self.cap_proj["fc2"](hidden), valid
