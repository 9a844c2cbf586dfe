"""Trees of guesses: grown from a drafter's logits as in EAGLE-2, and judged by an acceptance rule.

    settled | root - a - c        one pass of the target over all nodes tells what follows each of them;
                   \\   \\- d       the walk goes from the root to a child that stands, as long as one does
                    - b

EAGLE-2 (EMNLP 2024, arXiv 2406.16858); over pictures, and with relaxed rules, LANTERN (arXiv 2410.03355).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng
from pixdraft.decoding.rule import Rule, Tokens
from pixdraft.decoding.sampling import Floats, keep_top, sample
from pixdraft.decoding.strategies import EAGLE2

Expand = Callable[[Tokens, Tokens], NDArray[Any]]
"""Drafter's logits [k, V] of what follows k guesses, of their codes [k] and of the places [k] that their parents had
among the guesses of the call before (all 0 in the first call, whose parent is the root)."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Guesses that branch. Node 0, the root, is the last settled token; every other is guessed to follow its parent.

    Attributes:
        tokens: int64 [n].
        parents: nodes, int64 [n]: each before its children and never nearer to the root than a later node's parent, so
            that depths ascend; -1 for the root. Children of a node stand in the order in which they are to be tested.
    """

    tokens: Tokens
    parents: Tokens

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """See `lineage`."""
        return lineage(self.parents)

    @cached_property
    def depths(self) -> Tokens:
        """How many positions after the root each node stands, int64 [n]."""
        return np.asarray(self.seen.sum(axis=1) - 1, np.int64)

    def children(self, node: int) -> list[int]:
        """The nodes guessed to follow a node, in the order of their test."""
        return [int(child) for child in np.flatnonzero(self.parents == node)]

    def within(self, room: int) -> int:
        """How many nodes, which are the first ones, stand fewer than `room` positions after the root."""
        return int(np.searchsorted(self.depths, room))


def lineage(parents: Tokens) -> NDArray[np.bool_]:
    """Which nodes are a node itself or its ancestors, bool [n, n], row by row: the tree mask of attention.

    Args:
        parents: [n], as in `Tree`.

    Raises:
        ValueError: node 0 has a parent, or another node has none before it.
    """
    n = len(parents)
    if not n or parents[0] != -1 or (parents[1:] < 0).any() or (parents >= np.arange(n)).any():
        raise ValueError(f"parents are {parents}: the root's is -1, every other node's an earlier node")
    seen = np.eye(n, dtype=np.bool_)
    for node in range(1, n):
        seen[node] |= seen[parents[node]]
    return seen


def grow(root: int, first: NDArray[Any], expand: Expand, shape: EAGLE2, room: int) -> Tree:
    """The dynamic tree of EAGLE-2: where the drafter is sure it grows deep, where it is not it grows wide.

    A guess scores the drafter's log-probability of itself and of all guesses on its way from the root. The `top_k` best
    codes follow the root; then, `depth` times, the `top_k` best-scored guesses of the last layer get their `top_k` best
    codes each. Of all guesses the `total_tokens - 1` best-scored ones stay, none without its parent, as a parent scores
    at least as much. Ties go to the guess that was made first, and among the codes of one guess to the lowest id.

    Nothing is drawn at random: a guess is certain, its p one-hot.

    Args:
        root: the last settled token.
        first: logits of the drafter for the position after it, [V]; -inf forbids a code.
        expand: see `Expand`.
        shape: `total_tokens`, `depth` and `top_k`.
        room: positions that are left to draw, at least 1; no guess goes beyond.
    """
    logs = _log_softmax(first)
    layer_tokens = _best(logs, shape.top_k)
    layer_scores = logs[layer_tokens]
    layer = np.arange(1, 1 + layer_tokens.size)  # numbers of these guesses among all, the root being 0
    tokens, scores, parents = [layer_tokens], [layer_scores], [np.zeros_like(layer)]
    made, places = 1 + layer.size, np.zeros_like(layer)
    for _ in range(min(shape.depth, room - 1)):
        logs = _log_softmax(expand(layer_tokens, places))
        codes = _best(logs, shape.top_k)
        tokens.append(codes.ravel())
        scores.append((layer_scores[:, None] + np.take_along_axis(logs, codes, 1)).ravel())
        parents.append(layer.repeat(codes.shape[1]))
        chosen = _best(scores[-1], shape.top_k)
        layer_tokens, layer_scores, layer = tokens[-1][chosen], scores[-1][chosen], made + chosen
        made, places = made + codes.size, chosen // codes.shape[1]
    every = np.concatenate(scores)
    order = np.argsort(-every, kind="stable")[: shape.total_tokens - 1]
    kept = np.sort(order[every[order] > -np.inf])
    number = np.zeros(made, np.int64)
    number[1 + kept] = np.arange(1, 1 + kept.size)
    return Tree(
        np.concatenate([[root], np.concatenate(tokens)[kept]]).astype(np.int64),
        np.concatenate([[-1], number[np.concatenate(parents)[kept]]]).astype(np.int64),
    )


@dataclass(frozen=True)
class Walk:
    """Where a walk through a tree ends.

    Attributes:
        path: the nodes that stand, from the root down, the root among them.
        token: the target's own token after the last of them; -1 where the target was not asked what follows it.
    """

    path: tuple[int, ...]
    token: int


def walk(tree: Tree, target: Floats, rule: Rule, seed: int, base: int) -> Walk:
    """Judge the guesses of a tree from the root down, and draw the token that follows those that stand.

    At a node, image position t of what follows it, q the target's row and u(t, stream) the counter RNG:

        child x_j stands   if u(t + 2^32 j, ACCEPT) < b(q, x_j)   `Rule.certain`; q(x_j) for the lossless rule
        else               q <- `Rule.struck`: q without x_j, renormalised; on to child j + 1
        none stands        draw from what is left of q with u(t, RESIDUAL), and end
        there is none      draw from q with u(t, RESIDUAL), and end

    With the lossless rule the token settled at t is distributed as q: child j comes out with q(x_j), as the chances of
    those before it to fall cancel with the renormalisation, and every other code y with q(y) likewise (multi-step
    speculative sampling of SpecInfer, arXiv 2305.09781, for guesses that are certain). What the tree holds depends on
    settled tokens only, and the numbers of t are used for nothing else.

    Args:
        tree: see there.
        target: row i for the position after node i, float64 [m, V]; nodes from m on have no row and end the walk.
        rule: of `decoding.acceptance`.
        seed: of the counter RNG.
        base: image position after the root.
    """
    path, rows = [0], len(target)
    while (node := path[-1]) < rows:
        position, q = base + len(path) - 1, target[node]
        for j, child in enumerate(tree.children(node)):
            x = int(tree.tokens[child])
            u = rng.uniform(seed, int(rng.again(np.array(position), j)), rng.ACCEPT)
            if u < rule.certain(q, x, len(path) - 1):
                path.append(child)
                break
            q = rule.struck(q, x)
        else:
            return Walk(tuple(path), sample(q, rng.uniform(seed, position, rng.RESIDUAL)))
    return Walk(tuple(path), -1)


def _log_softmax(logits: NDArray[Any]) -> Floats:
    """log softmax over the last axis, float64, nowhere above 0."""
    z = np.asarray(logits, np.float64)
    largest = z.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ValueError("the drafter's logits hold NaN, +inf or a row without a finite value")
    z = z - largest
    return np.asarray(z - np.log(np.exp(z).sum(axis=-1, keepdims=True)), np.float64)


def _best(values: Floats, k: int) -> NDArray[np.int64]:
    """Places of the min(k, V) largest values of each row [..., V], largest first, ties: lowest place."""
    kept = np.nonzero(keep_top(values, k))[-1].reshape(*values.shape[:-1], min(k, values.shape[-1]))
    order = np.argsort(-np.take_along_axis(values, kept, -1), axis=-1, kind="stable")
    return np.asarray(np.take_along_axis(kept, order, -1), np.int64)
