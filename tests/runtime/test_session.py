"""The loop against the same loop written plainly, policy by policy."""

from __future__ import annotations

import asyncio
import math
import platform
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from fakes import TableCache, TableDraft, TableDrafter, TableTarget
from links import UnsteadyCloud
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.decoding import intervals, rng
from pixdraft.decoding.sampling import probabilities, sample
from pixdraft.decoding.sparse import sparsify
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.protocol.frames import Open, Rule, Sampling, Verify
from pixdraft.runtime.errors import CloudRefused, RequestError
from pixdraft.runtime.picture import Decision, Picture
from pixdraft.runtime.policies import (
    KEPT_TEMPERATURE,
    CiarPolicy,
    CloudPolicy,
    CodePolicy,
    DevicePolicy,
    Eagle2Policy,
    JdPolicy,
    Policy,
    SjdPolicy,
    SpeculativePolicy,
)
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.websocket import WebSocketConnector
from trees import Plain

PROMPT = "xx xxxx"
TARGET = TableTarget()
TOTAL = TARGET.info.image_tokens


def draw(request: DrawRequest, target: TableTarget = TARGET) -> Picture:
    return asyncio.run(DeviceSession(TableDraft(target), LocalCloud(target)).draw(request))


@given(
    seed=st.integers(0, (1 << 64) - 1),
    tau=st.floats(0, 1),
    rho=st.sampled_from([0.0, 0.06, 0.2, 0.95]),
    top_k=st.integers(0, 3),
    conditioning=st.booleans(),
    temperature=st.sampled_from([None, 0.3, 1.0, 1.7]),
)
def test_ciar_is_the_plain_loop(
    seed: int, tau: float, rho: float, top_k: int, conditioning: bool, temperature: float | None
) -> None:
    more: dict[str, Any] = {"draft_top_k": top_k, "draft_temperature": temperature, "conditioning": conditioning}
    request = DrawRequest(PROMPT, seed, CiarPolicy(tau=tau), rho=rho, **more)
    picture = draw(request)
    inject = math.floor(rho * TOTAL)
    drawn = KEPT_TEMPERATURE if temperature is None else temperature
    tokens, decisions = reference.draw(
        TARGET, PROMPT, seed, lambda risk: risk >= tau, 1, inject, top_k, conditioning, drawn
    )
    assert picture.tokens.tolist() == tokens
    assert list(picture.decisions) == decisions
    assert picture.lost is None


@given(
    seed=st.integers(0, (1 << 64) - 1),
    gamma=st.sampled_from([1, 2, 4, 7, TOTAL, 3 * TOTAL]),
    rho=st.sampled_from([0.0, 0.3]),
    top_k=st.sampled_from([0, 2]),
    conditioning=st.booleans(),
)
def test_speculative_is_the_plain_loop(seed: int, gamma: int, rho: float, top_k: int, conditioning: bool) -> None:
    request = DrawRequest(PROMPT, seed, SpeculativePolicy(gamma), rho=rho, draft_top_k=top_k, conditioning=conditioning)
    picture = draw(request)
    tokens, decisions = reference.draw(
        TARGET, PROMPT, seed, lambda _: True, gamma, math.floor(rho * TOTAL), top_k, conditioning
    )
    assert picture.tokens.tolist() == tokens
    assert list(picture.decisions) == decisions


@pytest.mark.parametrize("seed", range(8))
def test_after_a_rollback_the_draft_is_a_fresh_one_on_the_same_prefix(seed: int) -> None:
    picture = draw(DrawRequest(PROMPT, seed, SpeculativePolicy(5)))
    assert Decision.CORRECTED in picture.decisions[:-1]
    condition = TARGET.open(PROMPT, 1.0).condition
    for record in picture.records:
        fresh = TableDraft(TARGET)
        row = fresh.open(condition)
        if record.position:
            row = fresh.step(picture.tokens[: record.position], 0)
        p = sparsify(probabilities(row.center[-1]))
        drafted = p.sample(rng.uniform(seed, record.position, rng.DRAFT))
        if record.decision in (Decision.ACCEPTED, Decision.CORRECTED):
            assert record.probability == p.dense(TARGET.info.vocab_size)[drafted]
        if record.decision is Decision.ACCEPTED:
            assert record.token == drafted


def test_cloud_draws_all_by_the_target() -> None:
    picture = draw(DrawRequest(PROMPT, 5, CloudPolicy()))
    tokens: list[int] = []
    for position in range(TOTAL):
        q = probabilities(TARGET.logits(PROMPT, tokens))
        tokens.append(sample(q, rng.uniform(5, position, rng.TARGET)))
    assert picture.tokens.tolist() == tokens
    assert set(picture.decisions) == {Decision.CLOUD}
    assert picture.statistics.cloud_share == 1.0
    assert picture.drafted == 0
    assert picture.passes == TOTAL - 1  # position 0 comes with the prompt


@pytest.mark.parametrize("coupling", ["none", "common"])
def test_jd_draws_the_picture_of_the_cloud_in_fewer_passes(coupling: str) -> None:
    plain, jacobi = (draw(DrawRequest(PROMPT, 5, policy)) for policy in (CloudPolicy(), JdPolicy(8, coupling=coupling)))
    assert jacobi.tokens.tolist() == plain.tokens.tolist()
    assert jacobi.records == plain.records
    assert jacobi.statistics.passes == jacobi.passes < plain.passes


def test_sjd_draws_by_the_target_under_the_rule_of_the_request() -> None:
    rule, policy = Rule("csd", {"lam": 0.5, "delta": 0.9}), SjdPolicy(8, "uniform")
    strict, relaxed = draw(DrawRequest(PROMPT, 5, policy)), draw(DrawRequest(PROMPT, 5, policy, rule=rule))
    for picture in (strict, relaxed):
        assert set(picture.decisions) == {Decision.CLOUD}
        assert picture.statistics.frames_down == 1 + picture.passes  # opened, and a frame for what each pass settled
    assert relaxed.passes < strict.passes < TOTAL - 1


def test_eagle_2_draws_by_the_target_under_the_rule_of_the_request() -> None:
    policy = Eagle2Policy(12, 3, 3)
    strict = draw(DrawRequest(PROMPT, 5, policy))
    relaxed = draw(DrawRequest(PROMPT, 5, policy, rule=Rule("addition", {"epsilon": 1.0})))
    for picture in (strict, relaxed):
        assert set(picture.decisions) == {Decision.CLOUD}
        assert picture.statistics.frames_down == 2 + picture.passes  # opened, the first token, what each pass settled
    assert relaxed.passes < strict.passes < TOTAL - 1
    drafter, cache = TableDrafter(TARGET), TableCache(PROMPT, 1.0)
    plain = Plain(
        lambda tokens: probabilities(TARGET.logits(PROMPT, list(tokens))),
        lambda tokens: drafter.logits(cache, list(tokens)),
        EAGLE2(12, 3, 3),
        TOTAL,
    )
    assert strict.tokens.tolist() == [token for part in plain.draw(5) for token in part]


def test_eagle_2_without_a_drafter_is_refused_in_one_sentence() -> None:
    target = TableTarget()
    target.drafter = None
    with pytest.raises(
        CloudRefused, match=r"the model 'table' has no drafter .*train eagle` and .*train weights`.* by sjd"
    ) as caught:
        draw(DrawRequest(PROMPT, 5, Eagle2Policy()), target)
    assert caught.value.code == "request"


@pytest.mark.parametrize(("share", "first"), [(0.3, 4), (0.0, 0), (0.94, 15)])
def test_code_is_the_target_up_to_its_share_and_the_device_from_there(share: float, first: int) -> None:
    cloud = UnsteadyCloud(TARGET)
    request = DrawRequest(PROMPT, 5, CodePolicy(share))
    picture = asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(request))
    alike = DrawRequest(PROMPT, 5, CiarPolicy(rate=0.0), rho=share, draft_temperature=1.0)
    injected = asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(alike))
    assert picture.tokens.tolist() == injected.tokens.tolist()
    assert list(picture.decisions) == [Decision.CLOUD] * first + [Decision.KEPT] * (TOTAL - first)
    assert picture.statistics.cloud_share == first / TOTAL
    assert picture.passes == max(0, first - 1)  # position 0 comes with the prompt
    assert cloud.kinds()[: 2 + bool(first)] == ["open", *["generate"] * bool(first), "close"]
    whole = draw(DrawRequest(PROMPT, 5, CloudPolicy()))
    assert picture.tokens[:first].tolist() == whole.tokens[:first].tolist()


def test_passes_count_verdicts() -> None:
    picture = draw(DrawRequest(PROMPT, 5, SpeculativePolicy(3), rho=0))
    assert picture.passes == sum(frame.kind == "verdict" for frame in picture.frames)


def test_device_asks_nothing_after_the_condition() -> None:
    cloud = UnsteadyCloud(TARGET)
    picture = asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(DrawRequest(PROMPT, 5, DevicePolicy())))
    assert cloud.kinds() == ["open", "close"]
    assert set(picture.decisions) == {Decision.KEPT}
    tokens, _ = reference.draw(TARGET, PROMPT, 5, lambda _: False, 1)
    assert picture.tokens.tolist() == tokens
    numbers = picture.statistics
    assert (numbers.asked_share, numbers.cloud_share, numbers.audit, numbers.tau) == (0, 0, None, None)


def test_a_frame_carries_all_tokens_since_the_last_and_no_more() -> None:
    cloud = UnsteadyCloud(TARGET)
    request = DrawRequest(PROMPT, 4, CiarPolicy(tau=0.6), draft_temperature=1.0)
    picture = asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(request))
    sent = [frame for frame in cloud.sent if isinstance(frame, Verify)]
    assert len(sent) == sum(d in (Decision.ACCEPTED, Decision.CORRECTED) for d in picture.decisions) > 1
    bottleneck = TARGET.info.bottleneck
    for frame in sent:
        n = len(frame.tokens) // 2
        assert frame.asked == (n - 1,)
        assert len(frame.features) == n * bottleneck
        assert len(frame.scales) == 2 * n
        assert picture.decisions[frame.base : frame.base + n - 1] == (Decision.KEPT,) * (n - 1)
    trailing = picture.records[sent[-1].base + len(sent[-1].tokens) // 2 + 1 :]
    assert trailing
    assert all(r.decision is Decision.KEPT and r.audit is None for r in trailing)


def test_conditioning_off_sends_no_features() -> None:
    cloud = UnsteadyCloud(TARGET)
    request = DrawRequest(PROMPT, 3, CiarPolicy(tau=0.6), conditioning=False)
    asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(request))
    assert all(not f.features and not f.scales for f in cloud.sent if isinstance(f, Verify))


def test_the_draft_is_fed_each_settled_token_once() -> None:
    draft = TableDraft(TARGET)
    request = DrawRequest(PROMPT, 3, CiarPolicy(tau=0.4), rho=0.3)
    picture = asyncio.run(DeviceSession(draft, LocalCloud(TARGET)).draw(request))
    fed = [token for tokens, _ in draft.steps for token in tokens]
    at = [position for _, position in draft.steps]
    assert len(draft.steps[0][0]) == picture.statistics.counts[Decision.INJECTED] == 4
    assert at == sorted(at)  # one asked token a frame: what is rolled back was never fed
    assert fed == picture.tokens[: len(fed)].tolist()
    assert max(len(tokens) for tokens, position in draft.steps if position) == 2  # an accepted token and its bonus


def test_the_audit_is_the_chance_that_a_kept_token_would_have_stood() -> None:
    picture = draw(DrawRequest(PROMPT, 3, CiarPolicy(tau=0.6), rho=0, conditioning=False))
    audited = [r for r in picture.records if r.audit is not None]
    assert audited
    for record in audited:
        q = probabilities(TARGET.logits(PROMPT, picture.tokens[: record.position].tolist()))
        assert record.decision is Decision.KEPT
        assert record.probability is not None
        assert record.audit == pytest.approx(min(1.0, q[record.token] / record.probability), rel=1e-6)
    numbers = picture.statistics
    assert numbers.audited == len(audited)
    assert numbers.audit == pytest.approx(np.mean([r.audit for r in audited]))


def test_the_numbers_of_a_picture_add_up() -> None:
    picture = draw(DrawRequest(PROMPT, 3, CiarPolicy(rate=0.5), rho=0.1))
    numbers = picture.statistics
    counts = numbers.counts
    assert sum(counts.values()) == TOTAL == len(picture.records)
    assert [r.position for r in picture.records] == list(range(TOTAL))
    assert [r.token for r in picture.records] == picture.tokens.tolist()
    assert numbers.asked_share == (counts[Decision.ACCEPTED] + counts[Decision.CORRECTED]) / TOTAL
    assert numbers.cloud_share == 1 - counts[Decision.KEPT] / TOTAL
    assert numbers.alone_share == 0
    assert counts[Decision.INJECTED] == 1
    assert picture.drafted == TOTAL - counts[Decision.INJECTED] - counts[Decision.BONUS]
    assert numbers.frames_up == numbers.frames_down + 1  # the goodbye is not answered
    assert numbers.bytes_up == sum(f.size for f in picture.frames if f.up) > 0
    assert numbers.tau is not None
    assert numbers.tau.least <= numbers.tau.mean <= numbers.tau.greatest
    parts = numbers.seconds
    assert parts.open + parts.draft + parts.cloud + parts.decode <= parts.total
    np.testing.assert_array_equal(picture.pixels, TARGET.decode(picture.tokens))


def test_progress_ends_at_the_whole_picture() -> None:
    seen: list[tuple[int, int]] = []
    session = DeviceSession(TableDraft(TARGET), LocalCloud(TARGET))
    for policy in (CloudPolicy(), SpeculativePolicy(4), CiarPolicy()):
        seen.clear()
        asyncio.run(session.draw(DrawRequest(PROMPT, 1, policy), progress=lambda done, of: seen.append((done, of))))
        assert seen[-1] == (TOTAL, TOTAL)
        assert {of for _, of in seen} == {TOTAL}


@pytest.mark.parametrize(
    "policy", [CloudPolicy(), DevicePolicy(), CodePolicy(), Eagle2Policy(9, 2, 3), SpeculativePolicy(3), CiarPolicy()]
)
def test_the_same_seed_gives_the_same_picture_on_any_link(policy: Policy) -> None:
    request = DrawRequest(PROMPT, 11, policy)
    local, again = draw(request), draw(request)
    with BackgroundServer(TARGET) as server:
        url = server.url
        wired = asyncio.run(DeviceSession(TableDraft(TARGET), WebSocketConnector(url)).draw(request))
    assert local.tokens.tolist() == again.tokens.tolist() == wired.tokens.tolist()
    assert local.decisions == again.decisions == wired.decisions
    assert local.records == wired.records
    assert [(f.up, f.kind, f.size) for f in local.frames] == [(f.up, f.kind, f.size) for f in wired.frames]
    assert wired.model == TARGET.info.model_hash
    other = draw(DrawRequest(PROMPT, 12, policy))
    assert other.tokens.tolist() != local.tokens.tolist()


def test_the_rule_and_the_sampling_reach_the_cloud() -> None:
    cloud = UnsteadyCloud(TARGET)
    rule, sampling = Rule("amplify", {"factor": 1000.0}), Sampling(temperature=0.5, top_k=3)
    request = DrawRequest(PROMPT, 2, SpeculativePolicy(1), rule=rule, sampling=sampling)
    picture = asyncio.run(DeviceSession(TableDraft(TARGET), cloud).draw(request))
    opening = cloud.sent[0]
    assert isinstance(opening, Open)
    assert (opening.rule, opening.sampling) == (rule, sampling)
    strict = draw(DrawRequest(PROMPT, 2, SpeculativePolicy(1), sampling=sampling))
    assert picture.statistics.counts[Decision.CORRECTED] < strict.statistics.counts[Decision.CORRECTED]


def test_a_prompt_the_model_does_not_know_is_one_sentence() -> None:
    with pytest.raises(CloudRefused, match="holds no word that the model knows") as caught:
        draw(DrawRequest("xyzzy"))
    assert caught.value.code == "prompt"


def test_a_draft_of_another_guidance_keeps_nothing() -> None:
    high = Sampling(guidance=3.0)
    with pytest.raises(RequestError, match=r"guidance is 3, but the draft .* learned 1"):
        draw(DrawRequest(PROMPT, sampling=high))
    assert draw(DrawRequest(PROMPT, policy=SpeculativePolicy(), sampling=high)).lost is None


def test_a_frame_that_cannot_be_sent_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixdraft.protocol.codec.MAX_FRAME_BYTES", 400)
    with pytest.raises(RequestError, match="lower draft_top_k or gamma"):
        draw(DrawRequest(PROMPT, policy=SpeculativePolicy(16)))


@pytest.mark.parametrize(("policy", "sends"), [(CiarPolicy(tau=0.6), True), (SpeculativePolicy(2), False)])
def test_features_go_up_by_themselves_only_where_tokens_are_kept(policy: Policy, sends: bool) -> None:
    by_itself, by_word = (
        DrawRequest(PROMPT, 3, policy, rho=0),
        DrawRequest(PROMPT, 3, policy, rho=0, conditioning=sends),
    )
    assert (draw(by_itself).tokens == draw(by_word).tokens).all()
    other = DrawRequest(PROMPT, 3, policy, rho=0, conditioning=not sends)
    assert draw(by_itself).statistics.bytes_up != draw(other).statistics.bytes_up


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they have")
def test_a_vocabulary_costs_no_page_faults_a_token() -> None:
    resource = pytest.importorskip("resource")
    draw(DrawRequest(PROMPT, 1, DevicePolicy()))
    center, radius = np.zeros(16384, np.float32), np.ones(16384, np.float32)
    intervals.fuse(center, radius)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        intervals.uncertainty(*intervals.fuse(center, radius))
    # an array of the vocabulary is 32 pages
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 20 * 32
