"""One seed, one picture: over a socket and in the process, with tokens one by one and in blocks."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.models.registry import load_target
from pixdraft.models.torch_target import TorchTarget
from pixdraft.runtime.backends.torch_backend import TorchDraft, load_draft
from pixdraft.runtime.picture import Decision, Picture
from pixdraft.runtime.policies import CiarPolicy, CloudPolicy, DevicePolicy, SpeculativePolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.websocket import WebSocketConnector

REQUESTS = [
    DrawRequest("noto red heart on white", 3, CiarPolicy(rate=0.3)),
    DrawRequest("twemoji pizza on blue", 4, SpeculativePolicy(gamma=4)),
    DrawRequest("fluent cat face", 5, CloudPolicy()),
    DrawRequest("sun", 6, DevicePolicy()),
]


@pytest.fixture(scope="module")
def target() -> TorchTarget:
    return load_target()


@pytest.fixture(scope="module")
def draft() -> TorchDraft:
    return load_draft()


def drawn(draft: TorchDraft, connect: object, request: DrawRequest) -> Picture:
    return asyncio.run(DeviceSession(draft, connect).draw(request))  # type: ignore[arg-type]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: r.policy.name)
def test_a_socket_changes_nothing(target: TorchTarget, draft: TorchDraft, request_: DrawRequest) -> None:
    here = drawn(draft, LocalCloud(target), request_)
    with BackgroundServer(target, ServiceConfig(port=0)) as server:
        there = drawn(draft, WebSocketConnector(server.url), request_)
    assert here.tokens.tolist() == there.tokens.tolist()
    assert here.decisions == there.decisions
    assert np.array_equal(here.pixels, there.pixels)


def test_ciar_asks_about_the_wanted_share_and_keeps_what_the_cloud_would(
    target: TorchTarget, draft: TorchDraft
) -> None:
    def draw(policy: CiarPolicy) -> list[Picture]:
        prompts = ["noto red apple on sky", "twemoji rocket on navy", "fluent yellow heart on pink"]
        return [drawn(draft, LocalCloud(target), DrawRequest(p, s, policy)) for s in range(4) for p in prompts]

    def audit(pictures: list[Picture]) -> float:
        return float(np.mean([p.statistics.audit for p in pictures if p.statistics.audit is not None]))

    wanted = draw(CiarPolicy(rate=0.3))
    asked = np.mean([p.statistics.asked_share for p in wanted])
    kept = np.mean([p.statistics.counts[Decision.KEPT] for p in wanted]) / 256
    assert 0.15 < asked < 0.4
    assert kept > 0.4
    blind = draw(CiarPolicy(statistic="random", tau=0.7))
    assert audit(wanted) > audit(blind) + 0.01
