"""Speculative sampling through the cloud draws from the target's own distribution, whatever the draft.

A device that knows nothing but the tokens so far drafts blocks, the cloud judges every one; the pictures of many
seeds are compared with the table's exact joint distribution. The same tests must fail when the residual is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from cloud_frames import open_frame, verify_frame
from fakes import TableTarget
from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding import rng, sampling
from pixdraft.decoding.ratio_rules import Lossless
from pixdraft.decoding.sparse import SparseDistribution, sparsify

V, T = 5, 4
TARGET = TableTarget(vocab_size=V, image_tokens=T, bottleneck=0)
SEEDS = 20_000
Floats = NDArray[np.float64]
Draft = Callable[[list[int]], SparseDistribution]


def cached(draft: Draft) -> Draft:
    known: dict[tuple[int, ...], SparseDistribution] = {}

    def look(tokens: list[int]) -> SparseDistribution:
        key = tuple(tokens)
        if key not in known:
            known[key] = draft(tokens)
        return known[key]

    return look


@cached
def whole_draft(tokens: list[int]) -> SparseDistribution:
    """Another prompt's table: as wrong as two pictures differ."""
    return sparsify(sampling.probabilities(TARGET.logits("a whale", tokens)))


@cached
def truncated_draft(tokens: list[int]) -> SparseDistribution:
    """Two codes of five, unlike anything the target would keep."""
    return sparsify(sampling.probabilities(TARGET.logits("a whale", tokens)), k=2)


def picture(seed: int, draft: Draft) -> tuple[int, ...]:
    """Draw a picture with every token asked, in blocks of three."""
    session = CloudSession("s", TARGET, open_frame(TARGET.info, seed=seed))
    settled: list[int] = []
    while len(settled) < T:
        block: list[int] = []
        drafts: dict[int, SparseDistribution] = {}
        for i in range(min(3, T - len(settled))):
            drafts[i] = draft(settled + block)
            block.append(drafts[i].sample(rng.uniform(seed, len(settled) + i, rng.DRAFT)))
        verdict = session.verify(verify_frame("s", settled, block, drafts, vocab_size=V))
        settled += block[: verdict.settled] + [verdict.token] * (verdict.token >= 0)
    return tuple(settled)


def exact() -> dict[tuple[int, ...], float]:
    """The target's joint distribution of whole pictures, from its table."""
    joint = {}
    rows = {
        before: sampling.probabilities(TARGET.logits("a fox", list(before)))
        for n in range(T)
        for before in product(range(V), repeat=n)
    }
    for tokens in product(range(V), repeat=T):
        joint[tokens] = float(np.prod([rows[tokens[:i]][tokens[i]] for i in range(T)]))
    return joint


EXACT = exact()


def p_values(pictures: list[tuple[int, ...]]) -> dict[str, float]:
    """Chi-square tests of each position's tokens, and of whole pictures, against the target."""
    values = {}
    for position in range(T):
        marginal = np.zeros(V)
        for tokens, probability in EXACT.items():
            marginal[tokens[position]] += probability
        counts = np.bincount([tokens[position] for tokens in pictures], minlength=V)
        values[f"position {position}"] = float(chisquare(counts, marginal * len(pictures)).pvalue)
    seen = Counter(pictures)
    expected = np.array(list(EXACT.values())) * len(pictures)
    counts = np.array([seen[tokens] for tokens in EXACT])
    rare = expected < 5  # too few for the test: together they are one cell
    merged = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    values["pictures"] = float(chisquare(*merged).pvalue)
    return values


def test_the_drafts_are_far_from_the_target() -> None:
    q, p = sampling.probabilities(TARGET.logits("a fox", [])), whole_draft([]).dense(V)
    assert 0.3 < sampling.total_variation(p, q) < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("draft", [whole_draft, truncated_draft], ids=["whole", "sparse"])
def test_pictures_are_distributed_as_the_target_says(draft: Draft) -> None:
    values = p_values([picture(seed, draft) for seed in range(SEEDS)])
    assert min(values.values()) > 1e-3, values


WRONG: dict[str, Callable[[Floats, Floats], Floats]] = {
    "drawn from q itself": lambda q, p: q,
    "max(0, p - q)": lambda q, p: np.maximum(p - q, 0) / np.maximum(p - q, 0).sum(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_residual_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lossless, "residual", lambda _, q, p, token: WRONG[wrong](q, p))
    values = p_values([picture(seed, whole_draft) for seed in range(SEEDS // 5)])
    assert all(value < 1e-6 for value in values.values()), values
