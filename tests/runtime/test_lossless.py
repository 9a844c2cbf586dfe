"""End to end, over the frames: where every token is asked, whole pictures are distributed as the target's own.

V = 3 and T = 4 leave 81 pictures, whose exact probabilities under the target are counted against 20,000 seeds. That is
a statement about all positions jointly: what follows an accepted, a corrected and a bonus token must be right as well.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from exactness import joint, p_value
from fakes import TableDraft, TableTarget
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.decoding.acceptance import Lossless
from pixdraft.protocol.frames import Sampling
from pixdraft.runtime.picture import Decision, Picture
from pixdraft.runtime.policies import CiarPolicy, CloudPolicy, Policy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession

V, T, SEEDS = 3, 4, 20_000
PROMPT = "xx xx"
TEMPERATURE = 0.9


def count(target: TableTarget, policy: Policy, top_k: int, seeds: int) -> tuple[NDArray[np.int64], list[Picture]]:
    """How often each picture was drawn, and some of them."""
    session = DeviceSession(TableDraft(target), LocalCloud(target))
    counts, some = np.zeros(V**T, np.int64), []

    async def run() -> None:
        for seed in range(seeds):
            request = DrawRequest(
                PROMPT,
                seed,
                policy,
                sampling=Sampling(temperature=TEMPERATURE),
                rho=0,
                draft_top_k=top_k,
                conditioning=False,
            )
            picture = await session.draw(request)
            counts[int("".join(map(str, picture.tokens)), V)] += 1
            if seed < 200:
                some.append(picture)

    asyncio.run(run())
    return counts, some


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "top_k"),
    [
        (SpeculativePolicy(gamma=1), 0),
        (SpeculativePolicy(gamma=2), 2),
        (SpeculativePolicy(gamma=T), 0),
        (CiarPolicy(tau=0.0), 0),
        (CiarPolicy(tau=0.0), 1),
    ],
    ids=lambda value: f"{value.name}-{value.block}" if isinstance(value, Policy) else f"top{value}",
)
def test_pictures_are_the_targets_own(policy: Policy, top_k: int) -> None:
    target = TableTarget(V, T)
    counts, some = count(target, policy, top_k, SEEDS)
    assert p_value(counts, joint(target, PROMPT, TEMPERATURE)) > 1e-3
    decisions = {d for picture in some for d in picture.decisions}
    assert {Decision.ACCEPTED, Decision.CORRECTED} <= decisions <= {*Decision} - {Decision.KEPT, Decision.ALONE}


@pytest.mark.slow
def test_pictures_of_the_target_alone_are_its_own() -> None:
    target = TableTarget(V, T)
    counts, _ = count(target, CloudPolicy(), 0, SEEDS)
    assert p_value(counts, joint(target, PROMPT, TEMPERATURE)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("policy", [SpeculativePolicy(gamma=2), CiarPolicy(tau=0.0)], ids=lambda policy: policy.name)
def test_a_wrong_residual_is_found(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_the_draft(self: Lossless, q: NDArray[np.float64], p: NDArray[np.float64], token: int) -> object:
        return q

    monkeypatch.setattr(Lossless, "residual", forgets_the_draft)
    target = TableTarget(V, T)
    counts, _ = count(target, policy, 0, 4_000)
    assert p_value(counts, joint(target, PROMPT, TEMPERATURE)) < 1e-12


@pytest.mark.slow
def test_keeping_tokens_is_found_too() -> None:
    target = TableTarget(V, T)
    counts, _ = count(target, CiarPolicy(tau=0.3), 0, 4_000)
    assert p_value(counts, joint(target, PROMPT, TEMPERATURE)) < 1e-12
