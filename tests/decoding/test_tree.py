"""Trees of guesses: how they grow, and what comes out of a walk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distributions import SIZES, distribution
from pixdraft.cloud_stub.verification import judge_drafts
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import (
    CSD,
    GSD,
    LANTERN,
    RULES,
    Addition,
    Amplify,
    LANTERNPlusPlus,
    Lossless,
    Rule,
    create,
)
from pixdraft.decoding.sampling import Floats, sample, total_variation
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.decoding.tree import Tree, grow, lineage, walk
from trees import PathDrafter, paths

V = 12


def guess(tokens: tuple[int, ...]) -> NDArray[Any]:
    return np.random.default_rng([5, *tokens]).normal(size=V) * 2


def log_p(tokens: tuple[int, ...]) -> Floats:
    z = guess(tokens)
    return np.asarray(z - np.log(np.exp(z).sum()))


def grown(shape: EAGLE2, room: int = 99, root: int = 3) -> Tree:
    drafter = PathDrafter(guess, [root])
    tree = grow(root, guess((root,)), drafter.expand, shape, room)
    assert drafter.calls == min(shape.depth, room - 1)
    return tree


def plainly(shape: EAGLE2, room: int, root: int) -> set[tuple[int, ...]]:
    """The paths of the same tree, from all scores in one dictionary."""
    scores: dict[tuple[int, ...], float] = {}

    def children(path: tuple[int, ...], score: float) -> list[tuple[int, ...]]:
        logs = log_p((root, *path))
        best = sorted(range(V), key=lambda code: -logs[code])[: shape.top_k]
        scores.update({(*path, code): score + float(logs[code]) for code in best})
        return [(*path, code) for code in best]

    layer = children((), 0.0)
    for _ in range(min(shape.depth, room - 1)):
        made = [path for parent in layer for path in children(parent, scores[parent])]
        layer = sorted(made, key=lambda path: -scores[path])[: shape.top_k]
    return set(sorted(scores, key=lambda path: -scores[path])[: shape.total_tokens - 1])


@given(
    shape=st.builds(EAGLE2, st.integers(2, 70), st.integers(0, 5), st.integers(1, 14)),
    room=st.integers(1, 9),
    root=st.integers(0, V - 1),
)
def test_the_tree_is_eagle_2_s(shape: EAGLE2, room: int, root: int) -> None:
    tree = grown(shape, room, root)
    found = paths(tree)
    assert len(set(found)) == len(found) <= shape.total_tokens
    assert set(found[1:]) == plainly(shape, room, root)
    assert (tree.tokens[0], tree.parents[0]) == (root, -1)
    assert tree.depths.tolist() == sorted(len(path) for path in found) == [len(path) for path in found]
    assert tree.depths.max() <= min(shape.depth + 1, room)
    for node, path in enumerate(found):
        codes = [int(tree.tokens[child]) for child in tree.children(node)]
        assert codes == sorted(codes, key=lambda code: -log_p((root, *path))[code])  # the likeliest is tested first
    for some in range(1, room + 2):
        assert tree.within(some) == sum(len(path) < some for path in found)


def test_the_published_size() -> None:
    tree = grown(EAGLE2())
    assert tree.tokens.size == 59
    assert tree.depths.max() <= 5
    assert grown(EAGLE2(), room=1).depths.max() == 1


def test_a_sure_drafter_makes_a_chain_and_an_unsure_one_a_bush() -> None:
    def sharp(tokens: tuple[int, ...]) -> NDArray[Any]:
        return np.where(np.arange(V) == tokens[-1], 60.0, 0.0)

    def flat(tokens: tuple[int, ...]) -> NDArray[Any]:
        return np.zeros(V)

    shape = EAGLE2(total_tokens=6, depth=4, top_k=4)
    chain = grow(2, sharp((2,)), PathDrafter(sharp, [2]).expand, shape, 99)
    assert paths(chain)[1:] == [(2,) * n for n in range(1, 6)]
    bush = grow(2, flat((2,)), PathDrafter(flat, [2]).expand, shape, 99)
    assert paths(bush)[1:] == [(0,), (1,), (2,), (3,), (0, 0)]  # ties: what was made first, the lowest id


def test_forbidden_codes_are_not_guessed() -> None:
    def half(tokens: tuple[int, ...]) -> NDArray[Any]:
        return np.where(np.arange(V) % 2 == 0, guess(tokens), -np.inf)

    tree = grow(1, half((1,)), PathDrafter(half, [1]).expand, EAGLE2(top_k=10), 99)
    assert (tree.tokens[1:] % 2 == 0).all()
    only = np.where(np.arange(V) == 4, 0.0, -np.inf)
    chain = grow(1, only, PathDrafter(lambda _: only, [1]).expand, EAGLE2(top_k=3), 99)
    assert chain.tokens.tolist() == [1, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="the drafter's logits hold NaN"):
        grow(1, np.full(V, value), PathDrafter(guess, [1]).expand, EAGLE2(), 99)


def test_lineage_is_a_node_and_its_ancestors() -> None:
    parents = np.array([-1, 0, 0, 1, 3, 2])
    expected = [{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 1, 3, 4}, {0, 2, 5}]
    assert [set(np.flatnonzero(row)) for row in lineage(parents)] == expected
    assert Tree(parents, parents).depths.tolist() == [0, 1, 1, 2, 3, 2]
    assert Tree(parents, parents).children(0) == [1, 2]


@pytest.mark.parametrize("parents", [[], [0], [-1, -1], [-1, 1], [-1, 2, 0], [-1, -2]])
def test_parents_that_are_no_tree_are_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="the root's is -1"):
        lineage(np.array(parents, np.int64))


# --- what comes out --------------------------------------------------------------------------------------------------


def outcome(rule: Rule, q: Floats, guesses: list[int]) -> tuple[Floats, float]:
    """The distribution that comes out of a node with these children, exactly, and the chance that none stands."""
    out, left, rest = np.zeros_like(q), 1.0, q
    for x in guesses:
        b = rule.certain(rest, x)
        assert 0 <= b <= 1
        out[x] += left * b
        left *= 1 - b
        rest = rule.struck(rest, x)
    return out + left * rest, left


@st.composite
def node(draw: st.DrawFn) -> tuple[Floats, list[int]]:
    size = draw(SIZES)
    return draw(distribution(size)), draw(st.lists(st.integers(0, size - 1), max_size=6, unique=True))


@given(node())
def test_a_node_is_lossless(case: tuple[Floats, list[int]]) -> None:
    q, guesses = case
    out, left = outcome(Lossless(), q, guesses)
    assert out == pytest.approx(q, abs=1e-12)
    assert left == pytest.approx(max(0.0, 1 - q[guesses].sum()), abs=1e-12)


def codebook(size: int) -> NDArray[np.float64]:
    return np.random.default_rng(size).normal(size=(size, 3))


@given(node())
def test_rules_that_relax_nothing_are_lossless(case: tuple[Floats, list[int]]) -> None:
    q, guesses = case
    positive = q / 2 + 0.5 / q.size  # with a code of probability 0 beside x, LANTERN borrows nothing from it
    codes = codebook(q.size)
    for rule in (CSD(lam=0.0), CSD(delta=0.0), Addition(0.0), Amplify(1.0), GSD(1), LANTERN(codes, delta=0.0)):
        assert outcome(rule, positive, guesses)[0] == pytest.approx(positive, abs=1e-12), rule
    assert outcome(LANTERNPlusPlus(codes, lam=1.0), positive, guesses)[0] == pytest.approx(positive, abs=1e-12)


@given(node())
def test_every_rule_gives_a_distribution(case: tuple[Floats, list[int]]) -> None:
    q, guesses = case
    for name in RULES:
        out, _ = outcome(create(name, codebook=codebook(q.size)), q, guesses)
        assert out.min() >= 0
        assert out.sum() == pytest.approx(1)


@given(node(), st.floats(0, 1), st.floats(1, 8))
def test_one_guess_of_lantern_adds_what_x_borrows(case: tuple[Floats, list[int]], delta: float, lam: float) -> None:
    q, guesses = case
    for x in guesses[:1]:
        for rule, bound in (
            (LANTERN(codebook(q.size), delta=delta), delta),
            (LANTERNPlusPlus(codebook(q.size), k=5, lam=lam), (lam - 1) * q[x]),
        ):
            out, _ = outcome(rule, q, [x])
            borrowed = rule.mass(q, x) - q[x]
            assert total_variation(out, q) == pytest.approx(borrowed, abs=1e-9)
            assert borrowed <= bound + 1e-12


def test_lantern_strikes_the_neighbourhood_it_borrowed_from() -> None:
    line = np.arange(6.0)[:, None]
    q = np.array([0.3, 0.05, 0.1, 0.04, 0.01, 0.5])
    rule = LANTERN(line, k=4, delta=0.1)  # nearest to 2: 1 and 3 (0.05 + 0.04), then 0, which is too much
    assert rule.certain(q, 2) == pytest.approx(0.19)
    assert rule.struck(q, 2) == pytest.approx(np.array([0.3, 0, 0, 0, 0.01, 0.5]) / 0.81)


def test_a_walk_by_hand() -> None:
    tree = Tree(np.array([7, 4, 9, 2, 5]), np.array([-1, 0, 0, 1, 1]))
    target = np.stack([np.random.default_rng(n).dirichlet(np.ones(V)) for n in range(5)])
    ends = set()
    for seed in range(300):
        path, base, q = [0], 20, target[0]
        while children := tree.children(path[-1]):
            position = base + len(path) - 1
            for j, child in enumerate(children):
                x = tree.tokens[child]
                if rng.uniform(seed, position + (j << 32), rng.ACCEPT) < q[x]:
                    path.append(child)
                    q = target[child]
                    break
                q = np.where(np.arange(V) == x, 0, q)
                q = q / q.sum()
            else:
                break
        ended = walk(tree, target, Lossless(), seed, base)
        assert ended.path == tuple(path)
        assert ended.token == sample(q, rng.uniform(seed, base + len(path) - 1, rng.RESIDUAL))
        ends.add(ended.path)
    assert ends == {(0,), (0, 1), (0, 2), (0, 1, 3), (0, 1, 4)}


def test_a_node_without_a_row_ends_the_walk() -> None:
    tree = Tree(np.array([7, 4]), np.array([-1, 0]))
    ended = walk(tree, np.eye(V)[[4]], Lossless(), 1, 20)
    assert (ended.path, ended.token) == ((0, 1), -1)


def test_a_single_guess_takes_the_numbers_of_a_chain() -> None:
    """So a tree of one guess a node judges as `judge_drafts` judges a block of certain drafts."""
    target = np.stack([np.random.default_rng(n).dirichlet(np.full(V, 0.3)) for n in range(4)])
    tokens = target[:3].argmax(axis=1)
    tree = Tree(np.array([0, *tokens]), np.arange(-1, 3))
    for seed in range(50):
        settled = judge_drafts(target, 5, tokens, enumerate(np.eye(V)[tokens]), Lossless(), seed)
        ended = walk(tree, target, Lossless(), seed, 5)
        assert (len(ended.path) - 1, ended.token) == (settled.settled, settled.token)


def test_an_annealed_rule_counts_what_stands_before() -> None:
    tree = Tree(np.array([0, 1, 2]), np.array([-1, 0, 1]))
    seen: list[int] = []

    class Counting(Lossless):
        def certain(self, q: Floats, token: int, index: int = 0) -> float:
            seen.append(index)
            return 1.0

    walk(tree, np.full((3, V), 1 / V), Counting(), 1, 0)
    assert seen == [0, 1]
