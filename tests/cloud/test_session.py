from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_frames import certain, faithful, generate_frame, open_frame, verify_frame
from fakes import TableTarget
from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding import rng, sampling
from pixdraft.decoding.acceptance import RULES
from pixdraft.decoding.strategies import STRATEGIES
from pixdraft.protocol import arrays
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Open, Rule, Sampling, Strategy, Verdict


def opened(model: TableTarget, **fields: Any) -> CloudSession:
    session = CloudSession("s", model, open_frame(model.info, **fields))
    for _ in session.draw(session.to_inject):
        pass
    model.passes.clear()
    return session


def cloud_picture(model: TableTarget, count: int, before: list[int] | None = None, seed: int = 1) -> list[int]:
    """The target's own continuation, token by token with stream 3, straight from the table."""
    tokens = list(before or [])
    while count > 0:
        p = sampling.probabilities(model.logits("a fox", tokens))
        tokens.append(sampling.sample(p, rng.uniform(seed, len(tokens), rng.TARGET)))
        count -= 1
    return tokens


def generated(
    session: CloudSession, before: list[int], count: int, chunk: int = 4, strategy: Strategy | None = None
) -> list[int]:
    frames = list(session.generate(generate_frame("s", before, count, strategy), chunk))
    assert [f.last for f in frames] == [False] * (len(frames) - 1) + [True]
    drawn: list[int] = []
    for frame in frames:
        assert frame.base == len(before) + len(drawn)
        drawn += arrays.read_tokens(frame.tokens, 6).tolist()
    return drawn


def settled_by(verdict: Verdict, block: list[int]) -> list[int]:
    return block[: verdict.settled] + [verdict.token] * (verdict.token >= 0)


# --- opening ---------------------------------------------------------------------------------------------------------


def test_opening_gives_the_condition_and_no_tokens() -> None:
    answer = opened(TableTarget()).opened()
    assert answer.session == "s"
    assert arrays.read_condition(answer.condition).tolist() == [1, 3]
    assert answer.tokens == b""


def test_the_injected_prefix_is_the_targets_own() -> None:
    model = TableTarget()
    session = opened(model, inject=5)
    assert session.tokens.tolist() == cloud_picture(model, 5)
    assert arrays.read_tokens(session.opened().tokens, 6).tolist() == cloud_picture(model, 5)


def test_the_whole_picture_may_be_injected() -> None:
    model = TableTarget()
    assert opened(model, inject=16).tokens.tolist() == cloud_picture(model, 16)


def test_a_prefix_of_tokens_stands_instead_of_an_injected_one() -> None:
    session = opened(TableTarget(), tokens=[1, 2, 3], inject=5)
    assert session.tokens.tolist() == [1, 2, 3]
    assert session.opened().tokens == b""


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"prompt": "xyzzy"}, "prompt", "no word that the model knows"),
        ({"inject": 17}, "request", "inject asks for 17 of the picture's 16"),
        ({"tokens": [0] * 17}, "request", "tokens asks for 17 of the picture's 16"),
        ({"rule": Rule("guess")}, "request", "rule: there is no acceptance rule 'guess'"),
        ({"rule": Rule("lossless", {"x": 1.0})}, "request", "rule: lossless"),
        ({"sampling": Sampling(guidance=float("nan"))}, "request", "sampling.guidance is nan"),
        ({"sampling": Sampling(guidance=-1.0)}, "request", "sampling.guidance is -1"),
        ({"sampling": Sampling(temperature=-1.0)}, "request", "sampling.temperature is -1"),
        ({"sampling": Sampling(top_p=0.0)}, "request", "sampling.top_p is 0"),
        ({"tokens": [1], "features": bytes(3), "scales": bytes(2)}, "request", "features holds 3 bytes"),
    ],
)
def test_openings_are_checked(fields: dict[str, Any], code: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence) as caught:
        opened(TableTarget(), **fields)
    assert caught.value.code == code


@pytest.mark.parametrize("code", ["protocol", "model", "tokenizer"])
def test_a_device_of_another_kind_is_told_both_sides(code: str) -> None:
    info = TableTarget().info
    frame = Open(
        9 if code == "protocol" else 1,
        "a" * 64 if code == "model" else info.model_hash,
        "b" * 64 if code == "tokenizer" else info.tokenizer_hash,
        "a fox",
        1,
    )
    with pytest.raises(ProtocolError) as caught:
        CloudSession("s", TableTarget(), frame)
    assert caught.value.code == code
    named = {"protocol": ("9", "1"), "model": ("a" * 64, info.model_hash), "tokenizer": ("b" * 64, info.tokenizer_hash)}
    assert all(name in caught.value.sentence for name in named[code])


def test_a_device_without_hashes_takes_what_is_served() -> None:
    assert CloudSession("s", TableTarget(), Open(1, "", "", "a fox", 1)).opened().model == TableTarget().info.model_hash


# --- generate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_generate_is_the_target_drawing_token_by_token(chunk: int) -> None:
    model = TableTarget()
    assert generated(opened(model), [], 16, chunk) == cloud_picture(model, 16)
    assert [len(tokens) for tokens, _ in model.passes] == [1] * 15  # position 0 needs none


def test_generate_twice_costs_nothing_and_says_the_same() -> None:
    model = TableTarget()
    session = opened(model)
    first = generated(session, [], 9)
    passes = len(model.passes)
    assert generated(session, [], 9) == first
    assert len(model.passes) == passes


def test_a_broken_stream_is_taken_up_again() -> None:
    model = TableTarget()
    session = opened(model)
    stream = session.generate(generate_frame("s", [], 9), 4)
    next(stream)
    assert generated(session, [], 9) == cloud_picture(model, 9)


def test_generate_past_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="base 0 and count 17 pass the picture's 16"):
        generated(opened(TableTarget()), [], 17)


# --- verify ----------------------------------------------------------------------------------------------------------


def test_a_block_costs_one_pass_which_feeds_the_token_drawn_before_it() -> None:
    model = TableTarget()
    session = opened(model)
    first = session.verify(verify_frame("s", [], [1, 2, 3], {}))
    assert (first.settled, first.rejected) == (3, False)
    before = [1, 2, 3, first.token]
    session.verify(verify_frame("s", before, [4, 5], {}))
    assert model.passes == [([1, 2, 3], False), ([first.token, 4, 5], False)]


def test_a_rejected_token_is_replaced_and_the_rest_forgotten() -> None:
    model = TableTarget()
    for seed in range(50):
        session = opened(model, seed=seed)
        block = [0, 1, 2, 3]
        verdict = session.verify(verify_frame("s", [], block, {1: certain(1), 2: certain(2)}))
        assert session.tokens.tolist() == settled_by(verdict, block)
        if verdict.rejected:
            assert verdict.settled in (1, 2)
            assert verdict.token != block[verdict.settled]
            return
    pytest.fail("50 seeds rejected nothing")


def test_a_faithful_draft_is_hardly_ever_rejected() -> None:
    model = TableTarget()
    rejected = 0
    for seed in range(200):
        tokens: list[int] = []
        drafts = {}
        for i in range(4):
            drafts[i] = faithful(model.logits("a fox", tokens))
            tokens.append(drafts[i].sample(rng.uniform(seed, i, rng.DRAFT)))
        rejected += opened(model, seed=seed).verify(verify_frame("s", [], tokens, drafts)).rejected
    assert rejected <= 5  # float16 logits cost about 1e-4 a token


def test_the_audit_is_the_targets_probability_of_each_kept_token() -> None:
    model = TableTarget()
    verdict = opened(model).verify(verify_frame("s", [], [1, 2, 3], {1: faithful(model.logits("a fox", [1]))}))
    kept = [0, 2] if verdict.settled == 3 else [0]
    q = [sampling.probabilities(model.logits("a fox", [1, 2, 3][:i]))[[1, 2, 3][i]] for i in kept]
    assert arrays.read_floats(verdict.audit, "float32", len(kept), "audit") == pytest.approx(q, rel=1e-6)


def test_sampling_settings_reach_the_target() -> None:
    model = TableTarget()
    session = opened(model, sampling=Sampling(temperature=0.5, top_k=2))
    verdict = session.verify(verify_frame("s", [], [1], {}))
    q = sampling.probabilities(model.logits("a fox", []), 0.5, 2)[1]
    assert arrays.read_floats(verdict.audit, "float32", 1, "audit")[0] == pytest.approx(q, rel=1e-6)


def test_guidance_reaches_the_target() -> None:
    model = TableTarget()
    session = opened(model, sampling=Sampling(guidance=3.0))
    verdict = session.verify(verify_frame("s", [], [1], {}))
    q = sampling.probabilities(model.logits("a fox", [], guidance=3.0))[1]
    assert arrays.read_floats(verdict.audit, "float32", 1, "audit")[0] == pytest.approx(q, rel=1e-6)


def test_the_last_block_fills_the_picture() -> None:
    model = TableTarget()
    session = opened(model, tokens=[0] * 14)
    verdict = session.verify(verify_frame("s", [0] * 14, [1, 2], {}))
    assert (verdict.settled, verdict.token) == (2, -1)
    assert session.tokens.tolist() == [0] * 14 + [1, 2]
    assert model.passes == [([0] * 14 + [1], False)]


def test_a_picture_of_one_block() -> None:
    model = TableTarget(image_tokens=4)
    session = opened(model)
    assert session.verify(verify_frame("s", [], [1, 2, 3, 4], {})).token == -1
    assert [tokens for tokens, _ in model.passes] == [[1, 2, 3]]


# --- the features of the device --------------------------------------------------------------------------------------

FEATURES = np.array([[1.0, -1.0, 0.5, 2.0], [0.0, 3.0, -1.0, 0.0]])


def audit_of(session: CloudSession, before: list[int]) -> float:
    """q of token 1 after `before`."""
    return float(arrays.read_floats(session.verify(verify_frame("s", before, [1], {})).audit, "float32", 1, "audit")[0])


def test_features_reach_the_target_and_stay_with_their_tokens() -> None:
    model = TableTarget()
    plain, fed = opened(model), opened(model)
    plain.verify(verify_frame("s", [], [1, 2], {}))
    fed.verify(verify_frame("s", [], [1, 2], {}, FEATURES))
    back = arrays.dequantise(*arrays.quantise(FEATURES), 2, 4)
    assert back is not None
    expected = sampling.probabilities(model.logits("a fox", [1, 2], list(back)))[1]
    assert audit_of(fed, [1, 2]) == pytest.approx(expected, rel=1e-5)  # token 1 is fed again, after a rollback
    assert abs(audit_of(plain, [1, 2]) - expected) > 0.01


def test_features_of_zero_are_as_good_as_none() -> None:
    model = TableTarget()
    opened(model).verify(verify_frame("s", [], [1, 2], {}, np.zeros((2, 4))))
    assert model.passes == [([1, 2], False)]


def test_a_token_that_the_cloud_drew_has_no_features() -> None:
    model = TableTarget()
    session = opened(model)
    verdict = session.verify(verify_frame("s", [], [1, 2], {}, FEATURES))
    # the token at position 2 was once a drafted one with features, then was forgotten
    session.verify(verify_frame("s", [1, 2, verdict.token], [3], {}, FEATURES[:1]))
    drawn = generated(session, [1, 2], 1)
    back = arrays.dequantise(*arrays.quantise(FEATURES), 2, 4)
    assert back is not None
    history = [*back, np.zeros(4, np.float32)]
    expected = sampling.probabilities(model.logits("a fox", [1, 2, *drawn], history))[1]
    assert audit_of(session, [1, 2, *drawn]) == pytest.approx(expected, rel=1e-5)


# --- rollback, repetition, rebuilding --------------------------------------------------------------------------------


def test_the_same_frame_again_gets_the_same_verdict_without_a_pass() -> None:
    model = TableTarget()
    session = opened(model)
    frame = verify_frame("s", [], [1, 2], {0: certain(1)})
    first = session.verify(frame)
    assert session.verify(frame) == first
    assert len(model.passes) == 1
    assert session.tokens.tolist() == settled_by(first, [1, 2])


def test_a_frame_from_before_rolls_back() -> None:
    model = TableTarget()
    session = opened(model)
    first = session.verify(verify_frame("s", [], [1, 2, 3], {}))
    session.verify(verify_frame("s", [1, 2, 3, first.token], [5], {}))
    again = session.verify(verify_frame("s", [1], [4], {}))
    assert session.tokens.tolist() == [1, 4, again.token]
    assert model.passes[-1] == ([1, 4], False)  # one token is fed again for the logits after it
    assert audit_of(session, [1, 4]) == pytest.approx(
        sampling.probabilities(model.logits("a fox", [1, 4]))[1], rel=1e-6
    )


def test_rolling_back_to_the_beginning() -> None:
    model = TableTarget()
    session = opened(model)
    session.verify(verify_frame("s", [], [1, 2, 3], {}))
    assert generated(session, [], 6) == cloud_picture(model, 6)


@pytest.mark.parametrize(
    ("before", "sentence"),
    [([1, 2, 3, 4, 5], "base is 5, but the session holds 3 tokens"), ([1, 3], "prefix differs in the 2 tokens")],
)
def test_a_frame_of_another_past_is_refused_and_changes_nothing(before: list[int], sentence: str) -> None:
    model = TableTarget()
    session = opened(model)
    session.verify(verify_frame("s", [], [1, 2], {}))
    held = session.tokens.tolist()
    for ask in (
        lambda: session.verify(verify_frame("s", before, [1], {})),
        lambda: list(session.generate(generate_frame("s", before, 1), 4)),
    ):
        with pytest.raises(ProtocolError, match=f"{sentence}.*open again with tokens") as caught:
            ask()
        assert caught.value.code == "session"
    assert session.tokens.tolist() == held
    assert len(model.passes) == 1


def test_a_wrong_block_changes_nothing() -> None:
    session = opened(TableTarget(), tokens=[1, 2])
    with pytest.raises(ProtocolError, match="pass the picture's 16"):
        session.verify(verify_frame("s", [1, 2], [0] * 15, {}))
    assert session.tokens.tolist() == [1, 2]


def test_a_rebuilt_session_goes_on_as_the_lost_one_would_have() -> None:
    model = TableTarget()
    lost = opened(model, seed=9)
    verdict = lost.verify(verify_frame("s", [], [1, 2], {1: certain(2)}, FEATURES))
    before = settled_by(verdict, [1, 2])
    rows = np.zeros((len(before), 4))
    rows[: verdict.settled] = FEATURES[: verdict.settled]
    codes, scales = arrays.quantise(rows)
    rebuilt = opened(model, seed=9, tokens=before, features=codes, scales=scales)
    frame = verify_frame("s", before, [3, 4, 5], {0: certain(3), 2: certain(5)})
    assert rebuilt.verify(frame) == lost.verify(frame)
    assert model.passes[0][0] == [*before, 3, 4, 5]  # rebuilding costs no pass of its own
    before = rebuilt.tokens.tolist()
    rest = 16 - len(before)
    assert generated(rebuilt, before, rest) == generated(lost, before, rest)


@given(st.data())
def test_any_order_of_requests_leaves_what_the_verdicts_say(data: st.DataObject) -> None:
    """Whatever was asked before, a session judges as a fresh one built from the same tokens would."""
    model = TableTarget(image_tokens=9)
    seed = data.draw(st.integers(0, 5))
    session = opened(model, seed=seed)
    tokens: list[int] = []
    for _ in range(data.draw(st.integers(1, 6))):
        before = tokens[: data.draw(st.integers(0, len(tokens)))]
        room = 9 - len(before)
        if room == 0:
            continue
        fresh = opened(model, seed=seed, tokens=before)
        if data.draw(st.booleans()):
            block = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=room))
            asked = data.draw(st.sets(st.integers(0, len(block) - 1)))
            frame = verify_frame("s", before, block, {i: certain(block[i]) for i in sorted(asked)})
            verdict = session.verify(frame)
            assert verdict == fresh.verify(frame)
            tokens = before + settled_by(verdict, block)
        else:
            count = data.draw(st.integers(1, room))
            strategy = Strategy(data.draw(st.sampled_from(sorted(STRATEGIES))))
            drawn = generated(session, before, count, strategy=strategy)
            assert drawn == generated(fresh, before, count, strategy=strategy)
            tokens = before + drawn
        assert session.tokens.tolist() == tokens


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if not rule.needs_codebook])
def test_every_rule_that_needs_no_codebook_judges(name: str) -> None:
    verdicts = [
        opened(TableTarget(), seed=seed, rule=Rule(name)).verify(verify_frame("s", [], [1, 2], {0: certain(1)}))
        for seed in range(20)
    ]
    assert {v.settled for v in verdicts if v.rejected} <= {0}
    assert {v.settled for v in verdicts if not v.rejected} == {2}


def test_a_cloud_picture_has_neighbours_that_differ() -> None:
    """The fake target is no constant: else the tests above would prove little."""
    tokens = cloud_picture(TableTarget(), 16)
    assert sum(a != b for a, b in pairwise(tokens)) > 5
