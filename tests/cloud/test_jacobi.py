"""Target-only decoding in a session: several tokens a pass, the same pictures, and nothing left behind in the cache."""

from __future__ import annotations

from functools import cache
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import windows
from cloud_frames import certain, generate_frame, open_frame, verify_frame
from fakes import TableTarget
from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding import rng, sampling
from pixdraft.decoding.acceptance import RULES, create
from pixdraft.decoding.coupling import COUPLINGS
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import INITS, JD, SJD, Jacobi
from pixdraft.protocol import arrays
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import Rule, Sampling, Strategy, Tokens

V, T = 6, 16
EVERY = [
    *(SJD(5, init, coupling) for init, coupling in product(INITS, COUPLINGS)),
    *(JD(5, init, coupling) for init, coupling in product(INITS, JD.couplings)),
]
every = pytest.mark.parametrize("strategy", EVERY, ids=lambda s: f"{s.name}-{s.init}-{s.coupling}")


class CalmTarget(TableTarget):
    """A table in which the past matters little (`past`), or some codes are likely whatever it is (`likely`)."""

    def __init__(self, likely: float, past: float, vocab_size: int = V, image_tokens: int = T) -> None:
        super().__init__(vocab_size, image_tokens)
        self._likely, self._past = likely, past

    def _table(self, prompt: str, guidance: float) -> NDArray[np.float32]:
        if (prompt, guidance) not in self._tables:
            table = super()._table(prompt, guidance)
            mean = table.mean(axis=(0, 1))
            self._tables[prompt, guidance] = np.asarray(self._likely * mean + self._past * (table - mean), np.float32)
        return self._tables[prompt, guidance]


def opened(model: TableTarget, **fields: Any) -> CloudSession:
    return CloudSession("s", model, open_frame(model.info, **fields))


def stream(session: CloudSession, strategy: Jacobi, before: list[int], count: int) -> list[Tokens]:
    frame = generate_frame("s", before, count, Strategy(strategy.name, strategy.parameters))
    return list(session.generate(frame, 4))


def tokens_of(frames: list[Tokens], start: int = 0) -> list[int]:
    """The tokens, once the frames are seen to follow each other."""
    tokens: list[int] = []
    for frame in frames:
        assert frame.base == start + len(tokens)
        tokens += arrays.read_tokens(frame.tokens, V).tolist()
    assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]
    return tokens


def sequential(model: TableTarget, seed: int, before: list[int] | None = None, **fields: Any) -> list[int]:
    session = opened(model, seed=seed, tokens=before or [], **fields)
    return list(session.draw(T))


def look_up(model: TableTarget, tokens: tuple[int, ...]) -> Floats:
    return sampling.probabilities(model.logits("a fox", list(tokens)))


# --- what comes out --------------------------------------------------------------------------------------------------


@every
def test_a_session_draws_what_windows_without_a_cache_draw(strategy: Jacobi) -> None:
    model = TableTarget()
    for seed, before in ((3, []), (4, [2, 5, 1])):
        session = opened(model, seed=seed, tokens=before)
        model.passes.clear()
        frames = stream(session, strategy, before, T - len(before))
        plain = windows.draw(lambda tokens: look_up(model, tokens), strategy, seed, T, before=before)
        assert [arrays.read_tokens(frame.tokens, V).tolist() for frame in frames] == plain
        assert tokens_of(frames, len(before)) == [*chain(*plain)]
        assert session.tokens.tolist() == [*before, *chain(*plain)]
        assert [frame.passes for frame in frames] == [1] * len(model.passes)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("strategy", [s for s in EVERY if isinstance(s, JD)], ids=lambda s: f"{s.init}-{s.coupling}")
def test_jd_draws_the_sequential_picture(strategy: JD, temperature: float) -> None:
    model, how = TableTarget(), Sampling(temperature=temperature)
    for seed in range(5):
        frames = stream(opened(model, seed=seed, sampling=how), strategy, [], T)
        assert tokens_of(frames) == sequential(model, seed, sampling=how)
        before = [1, 4]
        frames = stream(opened(model, seed=seed, tokens=before, sampling=how), strategy, before, T - 2)
        assert tokens_of(frames, 2) == sequential(model, seed, before, sampling=how)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_greedy_sjd_is_greedy(coupling: str) -> None:
    model, how = TableTarget(), Sampling(temperature=0.0)
    frames = stream(opened(model, sampling=how), SJD(6, coupling=coupling), [], T)
    assert tokens_of(frames) == sequential(model, 1, sampling=how)


@pytest.mark.parametrize("parameters", [{"lam": 0.0}, {"delta": 0.0}], ids=["lambda 0", "delta 0"])
def test_csd_that_relaxes_nothing_is_lossless(parameters: dict[str, float]) -> None:
    model = TableTarget()
    for seed, coupling in product(range(3), COUPLINGS):
        strategy = SJD(5, "uniform", coupling)
        relaxed = stream(opened(model, seed=seed, rule=Rule("csd", parameters)), strategy, [], T)
        assert relaxed == stream(opened(model, seed=seed), strategy, [], T)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_judges_the_window(name: str) -> None:
    model, strategy = TableTarget(), SJD(5, "uniform")
    rule = create(name, codebook=model.codebook)
    frames = stream(opened(model, seed=2, rule=Rule(name)), strategy, [], T)
    plain = windows.draw(lambda tokens: look_up(model, tokens), strategy, 2, T, rule)
    assert tokens_of(frames) == [*chain(*plain)]


def test_a_codebook_that_is_not_there_is_missed() -> None:
    model = TableTarget()
    model.codebook = None
    with pytest.raises(ProtocolError, match="rule: lantern: the rule compares codes, give it the tokenizer's codebook"):
        opened(model, rule=Rule("lantern"))


# --- how many passes -------------------------------------------------------------------------------------------------


def passes(model: TableTarget, strategy: Jacobi, seeds: int = 40, rule: str = "lossless") -> float:
    """Mean passes of a picture."""
    counts = []
    for seed in range(seeds):
        frames = stream(opened(model, seed=seed, rule=Rule(rule)), strategy, [], T)
        counts.append(sum(frame.passes for frame in frames))
    return float(np.mean(counts))


def test_sequential_frames_tell_theirs_too() -> None:
    frames = opened(TableTarget()).generate(generate_frame("s", [], 10), chunk=4)
    assert [frame.passes for frame in frames] == [3, 4, 2]  # position 0 came with the prompt


def test_a_predictable_picture_takes_few_passes() -> None:
    model = CalmTarget(likely=3.0, past=0.2)
    sjd, coupled, jd = SJD(8), SJD(8, coupling="maximal"), JD(8, coupling="common")
    assert passes(model, sjd) < 0.6 * T
    assert passes(model, coupled) < 0.4 * T
    assert passes(model, jd) < 0.4 * T
    assert passes(model, SJD(8, "uniform"), rule="csd") < 0.3 * T


def test_a_coupling_saves_passes() -> None:
    """Where no code stands out, a token that is drawn afresh is another one, and what follows it is unsettled too."""
    model = CalmTarget(likely=0.0, past=0.6, vocab_size=32, image_tokens=64)
    look = cache(lambda last: look_up(model, last))

    def mean(strategy: Jacobi) -> float:
        return float(np.mean([len(windows.draw(lambda t: look(t[-2:]), strategy, seed, 64)) for seed in range(20)]))

    alone = mean(SJD(16))
    assert mean(SJD(16, coupling="gumbel")) < 0.85 * alone
    assert mean(SJD(16, coupling="maximal")) < 0.75 * alone
    assert mean(JD(16, coupling="common")) < 0.9 * mean(JD(16))


@every
def test_a_pass_feeds_a_window_and_no_more(strategy: Jacobi) -> None:
    model = TableTarget()
    stream(opened(model), strategy, [], T)
    assert max(len(fed) for fed, _ in model.passes) == strategy.window
    assert len(model.passes) < T


def test_a_window_of_one_draws_token_by_token() -> None:
    model = TableTarget()
    frames = stream(opened(model), SJD(1), [], T)
    assert [len(fed) for fed, _ in model.passes] == [1] * (T - 1)
    assert [frame.passes for frame in frames] == [0] + [1] * (T - 1)  # position 0 came with the prompt
    assert tokens_of(stream(opened(model), JD(1), [], T)) == sequential(model, 1)


@pytest.mark.parametrize("base", [0, 1, T - 2, T - 1])
@pytest.mark.parametrize("name", ["sjd", "jd"])
def test_a_window_longer_than_what_is_left(name: str, base: int) -> None:
    model = TableTarget()  # which asserts that the last token is never fed
    before = sequential(model, 1)[:base]
    strategy = SJD(256) if name == "sjd" else JD(256)
    for count in {1, min(2, T - base), T - base}:
        drawn = tokens_of(stream(opened(model, tokens=before), strategy, before, count), base)
        assert len(drawn) == count
        if name == "jd":
            assert drawn == sequential(model, 1, before)[:count]


# --- what stays behind -----------------------------------------------------------------------------------------------


@every
def test_the_same_frame_again_costs_nothing(strategy: Jacobi) -> None:
    model = TableTarget()
    session = opened(model)
    first = stream(session, strategy, [], 11)
    fed = len(model.passes)
    assert stream(session, strategy, [], 11) == first
    assert len(model.passes) == fed


@every
def test_an_older_frame_is_answered_as_before(strategy: Jacobi) -> None:
    model = TableTarget()
    session = opened(model)
    first = stream(session, strategy, [], 7)
    whole = tokens_of(first)
    verdict = session.verify(verify_frame("s", whole, [1, 2], {1: certain(2)}))
    assert verdict == opened(model, tokens=whole).verify(verify_frame("s", whole, [1, 2], {1: certain(2)}))
    half = stream(session, strategy, whole[:3], 9)
    assert half == stream(opened(model, tokens=whole[:3]), strategy, whole[:3], 9)
    assert session.tokens.tolist() == whole[:3] + tokens_of(half, 3)
    assert stream(session, strategy, [], 7) == first


@every
def test_a_stream_that_was_left_begins_again(strategy: Jacobi) -> None:
    model = TableTarget()
    session = opened(model)
    frame = generate_frame("s", [], T, Strategy(strategy.name, strategy.parameters))
    left = session.generate(frame, 4)
    begun = [next(left), next(left)]
    assert session.tokens.size == sum(len(f.tokens) for f in begun) // 2
    again = list(session.generate(frame, 4))
    assert again[:2] == begun
    assert again == stream(opened(model), strategy, [], T)


def test_another_strategy_is_another_frame() -> None:
    model = TableTarget()
    session = opened(model)
    stream(session, SJD(8), [], T)
    assert tokens_of(stream(session, JD(8), [], T)) == sequential(model, 1)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (Strategy("eager"), "strategy: there is no strategy 'eager'"),
        (Strategy("sjd", {"window": 1e9}), "strategy: sjd: window is 1000000000.0: give a whole number from 1 to 256"),
        (Strategy("sequential", {"window": 2.0}), "strategy: sequential: there is no parameter 'window'"),
    ],
)
def test_a_wrong_strategy_changes_nothing(strategy: Strategy, sentence: str) -> None:
    model = TableTarget()
    session = opened(model, tokens=[1, 2])
    with pytest.raises(ProtocolError, match=sentence) as caught:
        list(session.generate(generate_frame("s", [1], 3, strategy), 4))
    assert caught.value.code == "request"
    assert session.tokens.tolist() == [1, 2]
    assert model.passes == []


def test_windows_draw_with_numbers_of_their_positions() -> None:
    """The first pass of SJD by hand: what fills the window, what is tested, what is drawn instead."""
    model, seed = TableTarget(), 11
    q = look_up(model, ())
    guess = int(rng.uniform(seed, 0, rng.DRAFT) * V)
    stands = rng.uniform(seed, 0, rng.ACCEPT) < q[guess]
    fallen = q.copy()
    fallen[guess] = 0.0
    instead = sampling.sample(fallen / fallen.sum(), rng.uniform(seed, 0, rng.RESIDUAL))
    drawn = tokens_of(stream(opened(model, seed=seed), SJD(4), [], T))
    assert drawn[0] == (guess if stands else instead)
