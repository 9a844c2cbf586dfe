"""Broken connections, full clouds, forgotten sessions: what is mended, what is finished alone, what is an error."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from fakes import TableDraft, TableTarget
from links import UnsteadyCloud
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.protocol import arrays
from pixdraft.protocol.frames import Busy, Failure, Generate, Open, Opened, Tokens, Verdict
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.client import Patience
from pixdraft.runtime.errors import (
    CloudBusy,
    CloudProtocol,
    CloudRefused,
    CloudRequired,
    CloudUnreachable,
    RequestError,
    WrongModel,
)
from pixdraft.runtime.picture import Decision, Picture
from pixdraft.runtime.policies import (
    CiarPolicy,
    CloudPolicy,
    CodePolicy,
    Eagle2Policy,
    JdPolicy,
    Policy,
    SjdPolicy,
    SpeculativePolicy,
)
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.websocket import WebSocketConnector

PROMPT = "xx xxxx"
TARGET = TableTarget()
TOTAL = TARGET.info.image_tokens
QUICK = Patience(tries=2, backoff=0.001, busy=0.05)
POLICIES: list[Policy] = [CloudPolicy(), JdPolicy(4), Eagle2Policy(9, 2, 3), SpeculativePolicy(3), CiarPolicy(tau=0.6)]
by_name = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


def draw(cloud: UnsteadyCloud, policy: Policy, patience: Patience = QUICK, require_cloud: bool = False) -> Picture:
    request = DrawRequest(PROMPT, 4, policy, require_cloud=require_cloud)
    return asyncio.run(DeviceSession(TableDraft(cloud.target), cloud, patience).draw(request))


@by_name
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_connection_changes_nothing_in_the_picture(policy: Policy, when: str) -> None:
    steady = UnsteadyCloud(TARGET)
    wanted = draw(steady, policy)
    for number in steady.numbers("verify", "generate"):
        cloud = UnsteadyCloud(TARGET, breaks={number: when})
        picture = draw(cloud, policy)
        assert picture.tokens.tolist() == wanted.tokens.tolist()
        assert picture.records == wanted.records
        assert picture.lost is None
        assert cloud.links == 2
        assert cloud.kinds().count("open") == 2


def test_a_rebuilt_session_starts_from_the_settled_tokens_and_their_features() -> None:
    steady = UnsteadyCloud(TARGET)
    draw(steady, CiarPolicy(tau=0.6))
    last = steady.numbers("verify")[-1]
    cloud = UnsteadyCloud(TARGET, breaks={last: "after"})
    picture = draw(cloud, CiarPolicy(tau=0.6))
    first, again = [frame for frame in cloud.sent if isinstance(frame, Open)]
    assert (first.inject, first.tokens, again.inject) == (0, b"", 0)
    prefix = arrays.read_tokens(again.tokens, TARGET.info.vocab_size)
    assert prefix.size > 1
    assert prefix.tolist() == picture.tokens[: prefix.size].tolist()
    rows = np.frombuffer(again.features, np.int8).reshape(prefix.size, -1)
    drawn = [d in (Decision.CORRECTED, Decision.BONUS, Decision.INJECTED) for d in picture.decisions[: prefix.size]]
    assert (~rows.any(axis=1)).tolist() == drawn


@by_name
def test_a_lost_cloud_leaves_the_device_to_finish_alone(policy: Policy) -> None:
    cloud = UnsteadyCloud(TARGET, received={1: 2}, gone_after=1)
    picture = draw(cloud, policy)
    assert picture.lost is not None
    assert picture.lost.startswith("the cloud was lost mid-picture and 2 tries to come back failed: no cloud")
    assert Decision.ALONE in picture.decisions
    assert len(picture.records) == TOTAL
    assert picture.tokens.tolist() == [r.token for r in picture.records]
    assert picture.statistics.alone_share > 0
    first = picture.decisions.index(Decision.ALONE)
    assert set(picture.decisions[first:]) <= {Decision.ALONE, Decision.KEPT}
    whole = draw(UnsteadyCloud(TARGET), policy)
    assert picture.tokens[:first].tolist() == whole.tokens[:first].tolist()


@by_name
def test_require_cloud_stops_and_keeps_what_it_had(policy: Policy) -> None:
    whole = draw(UnsteadyCloud(TARGET), policy)
    steady = UnsteadyCloud(TARGET)
    draw(steady, policy)
    asked = steady.numbers("verify", "generate")
    cloud = UnsteadyCloud(TARGET, breaks=dict.fromkeys(range(asked[-1], 99), "before"))
    with pytest.raises(CloudRequired, match=r"the picture stopped at \d+ of 16 tokens: the cloud was lost") as caught:
        draw(cloud, policy, require_cloud=True)
    assert list(caught.value.tokens) == whole.tokens[: len(caught.value.tokens)].tolist()
    assert bool(caught.value.tokens) != policy.streams
    assert f"stopped at {len(caught.value.tokens)} " in str(caught.value)


def test_a_cloud_that_dies_mid_stream_is_taken_up_where_it_was() -> None:
    whole = draw(UnsteadyCloud(TARGET), CloudPolicy())
    cloud = UnsteadyCloud(TARGET, received={1: 3})
    picture = draw(cloud, CloudPolicy())
    assert picture.tokens.tolist() == whole.tokens.tolist()
    assert picture.lost is None
    assert [frame.base for frame in cloud.sent if isinstance(frame, Generate)] == [0, 8]


def test_guesses_begin_anew_after_a_break_and_what_came_stands() -> None:
    policy = SjdPolicy(6, coupling="maximal")
    whole = draw(UnsteadyCloud(TARGET), policy)
    cloud = UnsteadyCloud(TARGET, received={1: 3})  # opened, and two frames of tokens
    picture = draw(cloud, policy)
    first, again = [frame for frame in cloud.sent if isinstance(frame, Generate)]
    assert again.strategy == first.strategy == policy.strategy
    assert picture.tokens[: again.base].tolist() == whole.tokens[: again.base].tolist()
    assert picture.lost is None
    assert set(picture.decisions) == {Decision.CLOUD}


def test_code_finishes_alone_and_says_what_the_target_should_have_drawn() -> None:
    policy = CodePolicy(0.6)  # nine tokens, in three frames
    whole = draw(UnsteadyCloud(TARGET), policy)
    picture = draw(UnsteadyCloud(TARGET, received={1: 2}, gone_after=1), policy)
    expected = [Decision.CLOUD] * 4 + [Decision.ALONE] * 5 + [Decision.KEPT] * 7
    assert list(picture.decisions) == expected
    assert picture.tokens[:4].tolist() == whole.tokens[:4].tolist()
    with pytest.raises(CloudRequired, match="the picture stopped at 4 of 16 tokens"):
        draw(UnsteadyCloud(TARGET, received={1: 2}, gone_after=1), policy, require_cloud=True)


def test_a_forgotten_session_is_rebuilt() -> None:
    wanted = draw(UnsteadyCloud(TARGET), CiarPolicy(tau=0.6))
    forgot = Failure("session", "this socket holds no session of that name: open again with tokens")
    cloud = UnsteadyCloud(TARGET, instead={2: forgot})
    picture = draw(cloud, CiarPolicy(tau=0.6))
    assert picture.tokens.tolist() == wanted.tokens.tolist()
    assert cloud.kinds()[:5] == ["open", "verify", "verify", "open", "verify"]


def test_a_full_cloud_is_waited_for_while_patience_lasts() -> None:
    wanted = draw(UnsteadyCloud(TARGET), CiarPolicy(tau=0.6))
    cloud = UnsteadyCloud(TARGET, instead={2: Busy(10), 3: Busy(20)})
    picture = draw(cloud, CiarPolicy(tau=0.6))
    assert picture.tokens.tolist() == wanted.tokens.tolist()
    assert picture.lost is None
    assert cloud.links == 1


def test_beyond_patience_the_device_goes_on_alone_and_comes_back() -> None:
    cloud, draft = UnsteadyCloud(TARGET, instead={2: Busy(5)}), TableDraft(TARGET)
    step = draft.step

    def slowly(tokens: NDArray[np.int64], position: int) -> DraftOutput:
        time.sleep(0.002)
        return step(tokens, position)

    draft.step = slowly  # type: ignore[method-assign,assignment]
    request = DrawRequest(PROMPT, 4, CiarPolicy(tau=0.4))
    picture = asyncio.run(DeviceSession(draft, cloud, Patience(busy=0)).draw(request))
    assert Decision.ALONE in picture.decisions
    assert picture.lost is not None
    assert "no room now" in picture.lost
    away = picture.decisions.index(Decision.ALONE)
    assert {Decision.ACCEPTED, Decision.CORRECTED} & set(picture.decisions[away:])
    alone = picture.records[away]
    assert alone.audit is not None  # the next frame took it along
    with pytest.raises(CloudRequired, match="no room now"):
        draw(UnsteadyCloud(TARGET, instead={2: Busy(1)}), CiarPolicy(tau=0.4), Patience(busy=0), require_cloud=True)


def test_a_cloud_that_is_full_at_the_door_is_one_sentence() -> None:
    with pytest.raises(CloudBusy, match=r"no room now: try again in 0\.1 s") as caught:
        draw(UnsteadyCloud(TARGET, instead={0: Busy(100)}), CiarPolicy())
    assert caught.value.retry_after == 0.1


def test_nobody_there_at_the_start_is_an_error_whatever_the_request() -> None:
    with pytest.raises(CloudUnreachable, match="start it there"):
        draw(UnsteadyCloud(TARGET, gone_after=0), CiarPolicy())
    with pytest.raises(CloudUnreachable, match="left before it opened a session"):
        draw(UnsteadyCloud(TARGET, breaks={0: "before"}), CiarPolicy())


def test_a_refused_frame_is_an_error_and_not_a_lost_cloud() -> None:
    with pytest.raises(CloudRefused, match="the cloud refused: asked is wrong") as caught:
        draw(UnsteadyCloud(TARGET, instead={1: Failure("request", "asked is wrong: mend it")}), CiarPolicy(tau=0.6))
    assert caught.value.code == "request"


def test_a_cloud_that_comes_back_as_another_model_is_lost() -> None:
    other = Failure("model", "the device's bundle was made for another model: use its bundle")
    picture = draw(UnsteadyCloud(TARGET, breaks={2: "before"}, instead={3: other}), CiarPolicy(tau=0.6))
    assert picture.lost is not None
    assert "refused to go on with it" in picture.lost
    with pytest.raises(WrongModel, match="was made for another model"):
        draw(UnsteadyCloud(TARGET, instead={0: other}), CiarPolicy())


@pytest.mark.parametrize(
    "answer",
    [
        Verdict("x", 0, 0, 0),
        Tokens("x", 0, b"\0\0", True),
    ],
)
def test_an_answer_that_cannot_be_is_named(answer: Verdict | Tokens) -> None:
    with pytest.raises(CloudProtocol, match="update the older side"):
        draw(UnsteadyCloud(TARGET, instead={1: answer}), SpeculativePolicy(2))


def test_an_opening_without_its_prefix_is_named() -> None:
    info = TARGET.info
    condition = arrays.write_condition(TARGET.open(PROMPT, 1.0).condition)
    opened = Opened("x", info.model_hash, info.tokenizer_hash, condition)
    request = DrawRequest(PROMPT, rho=0.5)
    session = DeviceSession(TableDraft(TARGET), UnsteadyCloud(TARGET, instead={0: opened}), QUICK)
    with pytest.raises(CloudProtocol, match="injected 0 tokens, not 8"):
        asyncio.run(session.draw(request))


def test_patience_is_checked() -> None:
    with pytest.raises(RequestError, match="negative"):
        Patience(tries=-1)


def test_a_real_service_that_is_killed_mid_picture() -> None:
    target = TableTarget()
    draft = TableDraft(target)
    with BackgroundServer(target, ServiceConfig(port=0, shutdown_timeout_s=0.2)) as server:
        url = server.url
        step = draft.step

        def kill_at_eight(tokens: NDArray[np.int64], position: int) -> DraftOutput:
            if position >= 8:
                server.__exit__(None, None, None)
            return step(tokens, position)

        draft.step = kill_at_eight  # type: ignore[method-assign,assignment]
        session = DeviceSession(draft, WebSocketConnector(url, connect_seconds=2), QUICK)
        picture = asyncio.run(session.draw(DrawRequest(PROMPT, 4, SpeculativePolicy(2))))
        assert picture.lost is not None
        assert f"no cloud can be reached at {url}" in picture.lost
        assert len(picture.records) == TOTAL
        assert Decision.ALONE in picture.decisions
        with pytest.raises(CloudUnreachable):
            asyncio.run(session.draw(DrawRequest(PROMPT, 4, require_cloud=True)))
