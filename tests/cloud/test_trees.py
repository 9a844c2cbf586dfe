"""EAGLE-2 in a session: several tokens a pass, the same pictures, and nothing left behind in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cloud_frames import certain, generate_frame, open_frame, verify_frame
from fakes import TableCache, TableDrafter, TableTarget
from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding import sampling
from pixdraft.decoding.acceptance import RULES, create
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.protocol import arrays
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Rule, Sampling, Strategy, Tokens
from trees import Plain

V, T, PROMPT = 6, 16, "a fox"
SHAPES = [EAGLE2(2, 0, 1), EAGLE2(5, 4, 1), EAGLE2(9, 2, 3), EAGLE2()]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.total_tokens}-{s.depth}-{s.top_k}")


def opened(model: TableTarget, **fields: Any) -> CloudSession:
    return CloudSession("s", model, open_frame(model.info, **fields))


def stream(session: CloudSession, shape: EAGLE2, before: Sequence[int] = (), count: int | None = None) -> list[Tokens]:
    frame = generate_frame(
        "s", before, T - len(before) if count is None else count, Strategy("eagle2", shape.parameters)
    )
    return list(session.generate(frame, 4))


def parts(frames: list[Tokens], start: int = 0) -> list[list[int]]:
    """The tokens by frame, once the frames are seen to follow each other."""
    found: list[list[int]] = []
    for frame in frames:
        assert frame.base == start + sum(map(len, found))
        found.append(arrays.read_tokens(frame.tokens, V).tolist())
    assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]
    return found


def plain(model: TableTarget, shape: EAGLE2, end: int = T, blur: float = 1.0, **sampled: Any) -> Plain:
    drafter, cache = TableDrafter(model, blur), TableCache(PROMPT, 1.0)

    def look(tokens: tuple[int, ...]) -> Floats:
        return sampling.probabilities(model.logits(PROMPT, list(tokens)), **sampled)

    return Plain(look, lambda tokens: drafter.logits(cache, list(tokens)), shape, end)


@shapes
def test_a_session_draws_what_trees_without_a_cache_draw(shape: EAGLE2) -> None:
    model = TableTarget()
    for seed, before in ((3, []), (4, [2, 5, 1])):
        session = opened(model, seed=seed, tokens=before)
        model.passes.clear()
        frames = stream(session, shape, before)
        expected = plain(model, shape).draw(seed, before=before)
        assert parts(frames, len(before)) == expected
        assert session.tokens.tolist() == before + [token for part in expected for token in part]
        rebuilding = int(bool(before))
        passes = [1 + rebuilding, *[1] * (len(expected) - 1)] if before else [0, *[1] * (len(expected) - 1)]
        assert [frame.passes for frame in frames] == passes
        assert sum(passes) == len(model.passes)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_judges_the_tree(name: str) -> None:
    model, shape = TableTarget(), EAGLE2(12, 3, 3)
    rule = create(name, codebook=model.codebook)
    frames = stream(opened(model, seed=2, rule=Rule(name)), shape)
    assert parts(frames) == plain(model, shape).draw(2, rule)


def test_sampling_reaches_the_tree() -> None:
    model, shape = TableTarget(), EAGLE2(12, 3, 3)
    how = Sampling(temperature=0.7, top_k=4, top_p=0.9)
    frames = stream(opened(model, seed=5, sampling=how), shape)
    assert parts(frames) == plain(model, shape, temperature=0.7, top_k=4, top_p=0.9).draw(5)


@shapes
def test_greedy_trees_are_greedy(shape: EAGLE2) -> None:
    model, how = TableTarget(), Sampling(temperature=0.0)
    drawn = [token for part in parts(stream(opened(model, sampling=how), shape)) for token in part]
    assert drawn == list(opened(model, sampling=how).draw(T))


def mean_passes(blur: float, shape: EAGLE2, rule: str = "lossless") -> float:
    model = TableTarget()
    model.drafter = TableDrafter(model, blur)
    counts = [sum(f.passes for f in stream(opened(model, seed=s, rule=Rule(rule)), shape)) for s in range(30)]
    return float(np.mean(counts))


def test_a_better_drafter_and_a_larger_tree_take_fewer_passes() -> None:
    assert mean_passes(0.0, EAGLE2()) < mean_passes(3.0, EAGLE2()) < T - 1
    assert mean_passes(0.0, EAGLE2()) < mean_passes(0.0, EAGLE2(6, 4, 1)) < mean_passes(0.0, EAGLE2(2, 0, 1)) < T - 1
    assert mean_passes(1.0, EAGLE2(6, 2, 2), "lantern++") < mean_passes(1.0, EAGLE2(6, 2, 2))


@shapes
@pytest.mark.parametrize("base", [0, 1, T - 2, T - 1])
def test_a_tree_deeper_than_what_is_left(shape: EAGLE2, base: int) -> None:
    model = TableTarget()  # which asserts that the last token is never fed
    before = list(opened(model).draw(T))[:base]
    for count in {1, min(2, T - base), T - base}:
        session = opened(model, tokens=before)
        drawn = [token for part in parts(stream(session, shape, before, count), base) for token in part]
        assert len(drawn) == count
        assert session.tokens.tolist() == before + drawn
        expected = plain(model, shape, base + count).draw(1, before=before)
        assert drawn == [token for part in expected for token in part]


@shapes
def test_a_stream_goes_on_with_the_same_tokens_where_an_answer_ended(shape: EAGLE2) -> None:
    model = TableTarget()
    whole = parts(stream(opened(model, seed=9), shape))
    for cut in range(1, len(whole)):
        before = [token for part in whole[:cut] for token in part]
        frames = stream(opened(model, seed=9, tokens=before), shape, before)
        assert parts(frames, len(before)) == whole[cut:]
        assert frames[0].passes == 1 + (len(before) > 1)  # one fills the cache anew


@shapes
def test_the_same_frame_again_costs_nothing(shape: EAGLE2) -> None:
    model = TableTarget()
    session = opened(model)
    first = stream(session, shape, count=11)
    fed = len(model.passes)
    assert stream(session, shape, count=11) == first
    assert len(model.passes) == fed


@shapes
def test_an_older_frame_is_answered_as_before(shape: EAGLE2) -> None:
    model = TableTarget()
    session = opened(model)
    first = stream(session, shape, count=7)
    whole = [token for part in parts(first) for token in part]
    verdict = session.verify(verify_frame("s", whole, [1, 2], {1: certain(2)}))
    assert verdict == opened(model, tokens=whole).verify(verify_frame("s", whole, [1, 2], {1: certain(2)}))
    half = stream(session, shape, whole[:3], 9)
    assert parts(half, 3) == parts(stream(opened(model, tokens=whole[:3]), shape, whole[:3], 9), 3)
    assert stream(session, shape, count=7) == first


def test_what_the_device_sent_beside_the_root_counts() -> None:
    model, shape = TableTarget(), EAGLE2(8, 2, 2)
    features = np.array([[0.5, -1.0, 2.0, 0.1]])
    session, silent = opened(model), opened(model)
    for one, sent in ((session, features), (silent, None)):
        one.verify(verify_frame("s", [], [4], {}, sent))
    before = session.tokens.tolist()
    session.verify(verify_frame("s", before, [3], {}, features))
    silent.verify(verify_frame("s", before, [3], {}, None))
    after = session.tokens.tolist()[:-1]  # back to the device's own token, which carries a feature
    drawn = {}
    for name, one in (("with", session), ("without", silent)):
        model.passes.clear()
        stream(one, shape, after, 3)
        drawn[name] = model.passes[0][1]
    assert drawn == {"with": True, "without": False}


def test_a_model_without_a_drafter_refuses_and_changes_nothing() -> None:
    model = TableTarget()
    model.drafter = None
    session = opened(model, tokens=[1, 2])
    with pytest.raises(ProtocolError, match="strategy: eagle2: the model 'table' has no drafter") as caught:
        stream(session, EAGLE2(), [1])
    assert caught.value.code == "request"
    assert session.tokens.tolist() == [1, 2]
    assert model.passes == []


def test_a_wrong_shape_is_refused() -> None:
    model = TableTarget()
    frame = generate_frame("s", [], 3, Strategy("eagle2", {"total_tokens": 1e6}))
    with pytest.raises(ProtocolError, match=r"strategy: eagle2: total_tokens is 1000000\.0: give a whole number"):
        list(opened(model).generate(frame, 4))


def test_a_tree_is_one_pass_of_the_nodes_that_something_follows() -> None:
    model = TableTarget()
    stream(opened(model), EAGLE2(total_tokens=9, depth=3, top_k=3))
    assert max(len(fed) for fed, _ in model.passes) == 9
    assert len(model.passes[-1][0]) <= 9
