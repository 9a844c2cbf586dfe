from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cloud_frames import certain
from pixdraft.cloud_stub.verification import judge
from pixdraft.decoding import acceptance, rng, sampling
from pixdraft.decoding.sparse import SparseDistribution, sparsify
from pixdraft.protocol.blocks import Block

LOSSLESS = acceptance.create("lossless")
NEVER = np.array([0.5, 0.5, 0.0])  # token 2 is one that the target never draws


def block(tokens: list[int], drafts: dict[int, SparseDistribution], base: int = 0) -> Block:
    return Block(base, np.array(tokens), tuple(drafts), tuple(drafts.values()), None)


def one_hot(token: int) -> NDArray[np.float64]:
    return np.where(np.arange(3) == token, 1.0, 0.0)


def test_all_asked_stand_and_a_bonus_follows() -> None:
    target = np.stack([one_hot(0), one_hot(1), one_hot(2)])
    judged = judge(target, block([0, 1], {0: certain(0), 1: certain(1)}), LOSSLESS, seed=3)
    assert (judged.settled, judged.token, judged.rejected) == (2, 2, False)
    assert judged.audit.size == 0


def test_a_full_picture_has_no_bonus() -> None:
    judged = judge(np.stack([one_hot(0), one_hot(1)]), block([0, 1], {0: certain(0)}), LOSSLESS, seed=3)
    assert (judged.settled, judged.token, judged.rejected) == (2, -1, False)


def test_the_first_rejection_settles_the_block() -> None:
    target = np.stack([one_hot(0), NEVER, NEVER, NEVER])
    judged = judge(target, block([0, 2, 2], {0: certain(0), 1: certain(2), 2: certain(2)}), LOSSLESS, seed=3)
    assert (judged.settled, judged.rejected) == (1, True)
    assert judged.token in (0, 1)


def test_kept_tokens_stand_whatever_the_target_says_and_are_audited() -> None:
    target = np.stack([NEVER, np.array([0.25, 0.5, 0.25]), NEVER, NEVER])
    judged = judge(target, block([2, 1, 2], {2: certain(2)}), LOSSLESS, seed=3)
    assert (judged.settled, judged.rejected) == (2, True)
    assert judged.audit.dtype == np.float32
    assert judged.audit.tolist() == [0.0, 0.5]


def test_kept_tokens_after_the_rejection_are_not_audited() -> None:
    target = np.stack([np.array([0.25, 0.5, 0.25]), NEVER, NEVER, NEVER])
    judged = judge(target, block([1, 2, 1], {1: certain(2)}), LOSSLESS, seed=3)
    assert judged.audit.tolist() == [0.5]


@pytest.mark.parametrize("seed", range(30))
def test_the_draws_are_those_of_the_counter_rng(seed: int) -> None:
    base, p, q, bonus = 7, np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.3, 0.4])
    draft = sparsify(p)
    judged = judge(np.stack([q, bonus]), block([1], {0: draft}, base), LOSSLESS, seed)
    if rng.uniform(seed, base, rng.ACCEPT) < q[1] / draft.dense(3)[1]:
        expected = (1, sampling.sample(bonus, rng.uniform(seed, base + 1, rng.RESIDUAL)), False)
    else:
        left = np.maximum(q - draft.dense(3), 0)
        expected = (0, sampling.sample(left / left.sum(), rng.uniform(seed, base, rng.RESIDUAL)), True)
    assert (judged.settled, judged.token, judged.rejected) == expected


def test_another_rule_judges_otherwise() -> None:
    target = np.stack([np.array([0.5, 0.3, 0.2])] * 2)
    generous = acceptance.create("addition", {"epsilon": 1.0})
    for seed in range(20):
        assert not judge(target, block([2], {0: certain(2)}), generous, seed).rejected
    assert any(judge(target, block([2], {0: certain(2)}), LOSSLESS, seed).rejected for seed in range(20))
