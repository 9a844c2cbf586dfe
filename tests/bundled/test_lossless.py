"""The bundled networks themselves: where every token is asked, the first four tokens are the target's own, jointly.

Sampling keeps the three likeliest codes of each position, which leaves 81 beginnings to count against 20,000 seeds.
Every prefix is run through the real networks once and remembered; all else is the real loop over the real frames.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.decoding.acceptance import Lossless
from pixdraft.decoding.sampling import probabilities
from pixdraft.models.registry import load_target
from pixdraft.models.target import OpenedPrompt, TreeDrafter
from pixdraft.models.torch_target import TorchTarget
from pixdraft.protocol.frames import Sampling
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.torch_backend import TorchDraft, load_draft
from pixdraft.runtime.policies import CiarPolicy, Policy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession

T, KEPT, SEEDS = 4, 3, 20_000
PROMPT = "noto red apple on sky"


class RememberingTarget:
    """The real target, four tokens long; a cache is the list of its tokens."""

    def __init__(self, target: TorchTarget) -> None:
        self.target = target
        self.info = replace(target.info, image_tokens=T)
        self.codebook = target.codebook
        self.drafter: TreeDrafter | None = None
        self.seen: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def logits(self, prefix: tuple[int, ...]) -> NDArray[np.float32]:
        if prefix not in self.seen:
            opened = self.target.open(PROMPT, self.info.guidance)
            rows = self.target.forward(np.array(prefix), opened.cache) if prefix else [opened.logits]
            self.seen[prefix] = rows[-1]
        return self.seen[prefix]

    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        return OpenedPrompt([], self.logits(()), self.target.encoder.encode(prompt))

    def forward(self, tokens: NDArray[np.integer], cache: list[int], features: Any = None) -> NDArray[np.float32]:
        assert features is None
        rows = []
        for token in tokens:
            cache.append(int(token))
            rows.append(self.logits(tuple(cache)))
        return np.stack(rows)

    def forward_tree(self, tokens: Any, parents: Any, cache: Any, features: Any = None) -> NDArray[np.float32]:
        raise AssertionError("no tree is asked for here")

    def keep(self, cache: Any, path: Any) -> None:
        raise AssertionError("no tree is asked for here")

    def truncate(self, cache: list[int], length: int) -> None:
        del cache[length:]

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        return np.zeros((1, 1, 3), np.uint8)


class RememberingDraft:
    """The real draft, four tokens long."""

    def __init__(self, draft: TorchDraft) -> None:
        self.draft = draft
        self.info = replace(draft.info, image_tokens=T)
        self.tokens: list[int] = []
        self.seen: dict[tuple[int, ...], DraftOutput] = {}

    def open(self, condition: NDArray[Any]) -> DraftOutput:
        if () not in self.seen:
            self.seen[()] = self.draft.open(condition)
        return self.seen[()]

    def step(self, tokens: NDArray[np.integer], position: int) -> DraftOutput:
        del self.tokens[position:]
        rows = []
        for token in tokens:
            self.tokens.append(int(token))
            prefix = tuple(self.tokens)
            if prefix not in self.seen:
                self.seen[prefix] = DraftOutput(*(part[-1:] for part in self.draft.step(np.array(prefix), 0)))
            rows.append(self.seen[prefix])
        return DraftOutput(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        return np.zeros((1, 1, 3), np.uint8)


@pytest.fixture(scope="module")
def models() -> tuple[RememberingTarget, RememberingDraft]:
    return RememberingTarget(load_target()), RememberingDraft(load_draft())


def p_value(models: tuple[RememberingTarget, RememberingDraft], policy: Policy, top_k: int, seeds: int) -> float:
    """Chi-square of the drawn beginnings against the target's own probabilities; rare ones are one cell."""
    target, draft = models
    sampling = Sampling(guidance=target.info.guidance, top_k=KEPT)
    session = DeviceSession(draft, LocalCloud(target))
    counts: dict[tuple[int, ...], int] = {}

    async def run() -> None:
        for seed in range(seeds):
            request = DrawRequest(PROMPT, seed, policy, sampling=sampling, rho=0, draft_top_k=top_k, conditioning=False)
            tokens = tuple((await session.draw(request)).tokens.tolist())
            counts[tokens] = counts.get(tokens, 0) + 1

    asyncio.run(run())
    exact: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(T):
        longer: dict[tuple[int, ...], float] = {}
        for prefix, chance in exact.items():
            p = probabilities(target.logits(prefix), top_k=KEPT)
            longer |= {(*prefix, int(x)): chance * p[x] for x in np.flatnonzero(p)}
        exact = longer
    assert set(counts) <= set(exact), "a token was drawn that the target never draws"
    expected = np.array([exact[key] * seeds for key in exact])
    seen = np.array([counts.get(key, 0) for key in exact])
    rare = expected < 5
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(seen[~rare], seen[rare].sum())
    return float(stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue)


POLICIES = [(SpeculativePolicy(gamma=3), 0), (SpeculativePolicy(gamma=3), 2), (CiarPolicy(tau=0.0), 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "top_k"), POLICIES, ids=["speculative", "speculative-sparse", "ciar-tau-0"])
def test_pictures_begin_as_the_target_s(
    models: tuple[RememberingTarget, RememberingDraft], policy: Policy, top_k: int
) -> None:
    assert p_value(models, policy, top_k, SEEDS) > 1e-3


@pytest.mark.slow
def test_a_wrong_residual_is_found(
    models: tuple[RememberingTarget, RememberingDraft], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets_the_draft(self: Lossless, q: NDArray[np.float64], p: NDArray[np.float64], token: int) -> object:
        return q

    monkeypatch.setattr(Lossless, "residual", forgets_the_draft)
    assert p_value(models, SpeculativePolicy(gamma=3), 0, SEEDS) < 1e-6
