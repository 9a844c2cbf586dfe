"""A target and a draft that are tables: exact probabilities, no network, microseconds a pass."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.models.target import OpenedPrompt, PromptError, TargetInfo
from pixdraft.runtime.backends import DraftInfo, DraftOutput


@dataclass
class TableCache:
    """What was fed, in order."""

    prompt: str
    guidance: float
    tokens: list[int] = field(default_factory=list)
    features: list[NDArray[np.float32]] = field(default_factory=list)
    tree: list[tuple[int, int, NDArray[np.float32]]] = field(default_factory=list)


class TableTarget:
    """Logits of a position are a hashed function of the prompt and the last two tokens, shifted by their features.

    It satisfies `models.target.TargetModel`. The words it knows are all but "xyzzy".

    Attributes:
        passes: arguments (tokens, whether features were given) of every `forward` so far.
        delay: seconds that every pass sleeps.
        gate: a pass waits here while it is clear.
        broken: raise from the next pass on.
    """

    def __init__(self, vocab_size: int = 6, image_tokens: int = 16, bottleneck: int = 4, name: str = "table") -> None:
        digest = hashlib.sha256(f"{name} {vocab_size} {image_tokens}".encode()).hexdigest()
        self.info = TargetInfo(name, digest, digest[::-1], vocab_size, image_tokens, bottleneck, guidance=1.0)
        self.codebook: NDArray[np.float64] | None = np.random.default_rng(2).normal(size=(vocab_size, 2))
        self.passes: list[tuple[list[int], bool]] = []
        self.delay = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self.drafter: TableDrafter | None = TableDrafter(self)
        self._mix = np.random.default_rng(1).normal(size=(bottleneck, vocab_size)).astype(np.float32)
        self._tables: dict[tuple[str, float], NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        if "xyzzy" in prompt:
            raise PromptError("the prompt holds no word that the model knows: name a picture")
        words = np.array([len(word) for word in prompt.split()], np.int32)
        return OpenedPrompt(TableCache(prompt, guidance), self.logits(prompt, [], guidance=guidance), words)

    def forward(
        self, tokens: NDArray[np.integer[Any]], cache: TableCache, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        assert tokens.ndim == 1
        assert tokens.size
        assert len(cache.tokens) + tokens.size < self.info.image_tokens, "the last token has nothing after it"
        self._work(tokens, features)
        cache.tree.clear()
        rows = np.empty((tokens.size, self.info.vocab_size), np.float32)
        for i, token in enumerate(tokens):
            cache.tokens.append(int(token))
            cache.features.append(np.zeros(self.info.bottleneck, np.float32) if features is None else features[i])
            rows[i] = self.logits(cache.prompt, cache.tokens, cache.features, cache.guidance)
        return rows

    def forward_tree(
        self,
        tokens: NDArray[np.integer[Any]],
        parents: NDArray[np.integer[Any]],
        cache: TableCache,
        features: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        assert tokens.size == parents.size > 0
        assert parents[0] == -1
        self._work(tokens, features)
        none = np.zeros(self.info.bottleneck, np.float32)
        cache.tree = [
            (int(token), int(parent), none if features is None else features[i])
            for i, (token, parent) in enumerate(zip(tokens, parents, strict=True))
        ]
        rows = np.empty((tokens.size, self.info.vocab_size), np.float32)
        for node in range(tokens.size):
            path: list[int] = []
            while node >= 0:
                path.insert(0, node)
                node = cache.tree[node][1]
            assert len(cache.tokens) + len(path) < self.info.image_tokens, "the last token has nothing after it"
            before = cache.tokens + [cache.tree[i][0] for i in path]
            sent = cache.features + [cache.tree[i][2] for i in path]
            rows[path[-1]] = self.logits(cache.prompt, before, sent, cache.guidance)
        return rows

    def keep(self, cache: TableCache, path: Sequence[int]) -> None:
        assert [cache.tree[node][1] for node in path] == [-1, *path[:-1]], "no path from the root down"
        cache.tokens += [cache.tree[node][0] for node in path]
        cache.features += [cache.tree[node][2] for node in path]
        cache.tree.clear()

    def truncate(self, cache: TableCache, length: int) -> None:
        assert 0 <= length <= len(cache.tokens)
        cache.tree.clear()
        del cache.tokens[length:], cache.features[length:]

    def decode(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        side = int(self.info.image_tokens**0.5)
        grey = (np.asarray(tokens) * 255 // (self.info.vocab_size - 1)).astype(np.uint8).reshape(side, side, 1)
        return np.repeat(grey, 3, axis=2)

    def _work(self, tokens: NDArray[np.integer[Any]], features: NDArray[np.float32] | None) -> None:
        with self._lock:
            self.passes.append(([int(t) for t in tokens], features is not None))
        assert self.gate.wait(60), "nobody opened the gate"
        if self.delay:  # even a sleep of 0 gives the processor away
            time.sleep(self.delay)
        if self.broken:
            raise RuntimeError("the table is broken, and says so with a secret")

    def logits(
        self,
        prompt: str,
        tokens: list[int],
        features: list[NDArray[np.float32]] | None = None,
        guidance: float = 1.0,
    ) -> NDArray[np.float32]:
        """Logits [V] of the position after `tokens`: what any right implementation must sample from."""
        last = tokens[-1] if tokens else self.info.vocab_size
        before = tokens[-2] if len(tokens) > 1 else self.info.vocab_size
        row = self._table(prompt, guidance)[before, last]
        if features:
            row = row + features[-1] @ self._mix + 0.5 * sum(features[:-1], np.zeros_like(features[-1])) @ self._mix
        return np.asarray(row, np.float32)

    def _table(self, prompt: str, guidance: float) -> NDArray[np.float32]:
        key = (prompt, guidance)
        if key not in self._tables:
            seed = int.from_bytes(hashlib.sha256(f"{prompt} {guidance}".encode()).digest()[:8], "little")
            size = self.info.vocab_size
            table = np.random.default_rng(seed).normal(size=(size + 1, size + 1, size)) * 1.5
            self._tables[key] = table.astype(np.float32)
        return self._tables[key]


class TableDrafter:
    """A drafter whose logits are the target's table, blurred. It satisfies `models.target.TreeDrafter`.

    Attributes:
        blur: how far it is from the target; 0 makes every first guess the target's favourite.
    """

    def __init__(self, target: TableTarget, blur: float = 1.0) -> None:
        self.blur = blur
        self._target = target
        self._layer: list[list[int]] = []

    def begin(self, tokens: NDArray[np.integer[Any]], cache: TableCache) -> NDArray[np.float32]:
        assert cache.tokens == tokens[:-1].tolist(), "the target has not seen all but the last"
        self._layer = [tokens.tolist()]
        return self.logits(cache, self._layer[0])

    def expand(
        self, tokens: NDArray[np.integer[Any]], parents: NDArray[np.integer[Any]], cache: TableCache
    ) -> NDArray[np.float32]:
        self._layer = [[*self._layer[at], int(token)] for token, at in zip(tokens, parents, strict=True)]
        return np.stack([self.logits(cache, path) for path in self._layer])

    def logits(self, cache: TableCache, tokens: list[int]) -> NDArray[np.float32]:
        """What it says of the position after some tokens, [V]."""
        size = self._target.info.vocab_size
        noise = np.random.default_rng([3, *tokens[-2:]]).normal(size=size)
        return np.asarray(self._target.logits(cache.prompt, tokens) + self.blur * noise, np.float32)


class TableDraft:
    """A draft whose logits are the target's table, blurred: some tokens agree, some do not. It sees no features.

    It satisfies `runtime.backends.DraftModel`, and holds the loop to it: tokens are fed without gaps, and feeding at a
    position forgets what was fed from there on.

    Attributes:
        steps: arguments (tokens, position) of every `step` so far.
    """

    def __init__(self, target: TableTarget, blur: float = 1.0, statistic: str = "risk") -> None:
        info = target.info
        self.target = target
        self.blur = blur
        self.steps: list[tuple[list[int], int]] = []
        self.info = DraftInfo(
            "table-draft",
            info.model_hash,
            info.tokenizer_hash,
            info.vocab_size,
            info.image_tokens,
            info.bottleneck,
            info.guidance,
            statistic,
            {"risk": [(0.1, 0.9), (0.3, 0.7), (0.5, 0.5), (0.9, 0.1)]},
        )
        self._tokens: list[int] = []
        self._rows: dict[tuple[str, int, int], DraftOutput] = {}
        self._prompt = ""

    def open(self, condition: NDArray[Any]) -> DraftOutput:
        self._tokens = []
        self._prompt = " ".join("x" * int(length) for length in condition)
        return self._row()

    def step(self, tokens: NDArray[np.integer[Any]], position: int) -> DraftOutput:
        assert tokens.size
        assert 0 <= position <= len(self._tokens), "a gap in what the draft was fed"
        self.steps.append(([int(t) for t in tokens], position))
        del self._tokens[position:]
        rows = []
        for token in tokens:
            self._tokens.append(int(token))
            rows.append(self._row())
        return rows[0] if len(rows) == 1 else DraftOutput(*(np.concatenate(part) for part in zip(*rows, strict=True)))

    def decode(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        return self.target.decode(tokens)

    def _row(self) -> DraftOutput:
        end = self.info.vocab_size
        last, before = (self._tokens[-1:] or [end])[0], (self._tokens[-2:-1] or [end])[0]
        key = (self._prompt, before, last)
        if key not in self._rows:
            rng = np.random.default_rng([before, last, len(self._prompt)])
            center = self.target.logits(self._prompt, self._tokens[-2:]) + self.blur * rng.normal(size=end)
            self._rows[key] = DraftOutput(
                center[None].astype(np.float32),
                rng.uniform(0, 2, (1, end)).astype(np.float32),
                rng.normal(size=(1, 3)).astype(np.float32),
                rng.uniform(size=1).astype(np.float32),
                rng.normal(size=(1, self.info.bottleneck)).astype(np.float32),
            )
        return self._rows[key]
