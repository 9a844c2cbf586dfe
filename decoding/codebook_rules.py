"""Rules that lend a token the probability of codes like it: GSD, LANTERN and LANTERN++.

The codebook is float [V, e], in the form in which the tokenizer looks codes up (LlamaGen: L2-normalised), because the
distances are meant between what the decoder sees.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixdraft.decoding.rule import MOST_NEIGHBOURS, Rule, RuleError, Tokens, at, block, norm_positive, quotient, require
from pixdraft.decoding.sampling import Floats, keep_top


def _checked(rule: Rule, codebook: NDArray[Any]) -> Floats:
    array = np.asarray(codebook, np.float64)
    if array.ndim != 2 or len(array) < 2 or not np.isfinite(array).all():
        raise RuleError(f"{rule.name}: codebook has shape {array.shape}, but must be finite, [V, e] with V >= 2")
    return array


def _squared_distances(codes: Floats, code: Floats) -> Floats:
    """||e_k - e_x||^2 of rows [n, e] from one [e], float64 [n]; one dimension after another, so ports tie alike."""
    distances = np.zeros(len(codes))
    for column, value in zip(codes.T, code, strict=True):
        distances += np.square(column - value)
    return distances


def _fits(rule: Rule, codebook: Floats, q: Floats) -> None:
    if len(codebook) != q.shape[1]:
        raise ValueError(f"{rule.name}: the codebook has {len(codebook)} codes and q has {q.shape[1]}")


def nearest(codebook: Floats, token: int, k: int) -> Tokens:
    """The min(k, V - 1) codes nearest to a token's by L2 distance, nearest first, itself left out; ties: lowest id."""
    distances = _squared_distances(codebook, codebook[token])
    distances[token] = np.inf
    ids = np.flatnonzero(keep_top(-distances, min(k, len(codebook) - 1)))
    return np.asarray(ids[np.argsort(distances[ids], kind="stable")], np.int64)


@dataclass(frozen=True)
class GSD(Rule):
    """Grouped speculative decoding: b = min(1, sum of q over C(x) / sum of p over C(x)).

    GSD (ICCV 2025, arXiv 2508.07747), dynamic clusters. C(x): the vocabulary sorted by q, x and group // 2 codes
    either side of x's rank, less those whose squared L2 distance from x exceeds `distance` or whose q differs from
    q(x) by more than `gap`. The residual is the ungrouped norm(max(0, q - p)).

    Attributes:
        group: G, 1 to 1,000,000 (1 is `Lossless`); published: 3 for Lumina-mGPT, 35 for Janus-Pro.
        distance: bound on the squared distance between codes, at least 0.
        gap: bound on the difference of target probability, 0 to 1.
        codebook: [V, e]; without one only `gap` filters.
    """

    group: int = 3
    distance: float = 0.5
    gap: float = 0.15
    codebook: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "gsd"

    def __post_init__(self) -> None:
        require(self, "group", 1, MOST_NEIGHBOURS, whole=True)
        require(self, "distance", 0.0)
        require(self, "gap", 0.0, 1.0)
        object.__setattr__(self, "group", int(self.group))
        if self.codebook is not None:
            object.__setattr__(self, "codebook", _checked(self, self.codebook))

    def cluster(self, q: Floats, token: int) -> Tokens:
        """C(x) for target probabilities q [V], x itself included."""
        order = np.argsort(-q, kind="stable")
        rank = int(np.flatnonzero(order == token)[0])
        reach = self.group // 2
        members = order[max(0, rank - reach) : rank + reach + 1]
        kept = np.abs(q[members] - q[token]) <= self.gap
        if self.codebook is not None:
            kept &= _squared_distances(self.codebook[members], self.codebook[token]) <= self.distance
        return np.asarray(members[kept], np.int64)

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, q(C) / p(C)) of each token [n]."""
        ids = block(q, p, tokens)
        if self.codebook is not None:
            _fits(self, self.codebook, q)
        clusters = [self.cluster(row, int(x)) for row, x in zip(q, ids, strict=True)]
        target = np.array([row[c].sum() for row, c in zip(q, clusters, strict=True)])
        draft = np.array([row[c].sum() for row, c in zip(p, clusters, strict=True)])
        return np.minimum(1.0, quotient(target, draft))


@dataclass(frozen=True)
class _Neighbourhood(Rule):
    """What LANTERN and LANTERN++ share: x borrows the probability of its nearest codes, up to a bound.

    With n_1, n_2, ... the codes nearest to x's: m = max{m <= k : q(n_1) + ... + q(n_m) <= bound} and
    q~(x) = q(x) + q(n_1) + ... + q(n_m). Chain form: b = min(1, q~(x) / p(x)); on a reject p is set to 0 on x and
    its m neighbours, then norm(max(0, q - p)).
    """

    codebook: NDArray[Any] = field(repr=False, compare=False)
    k: int
    needs_codebook: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "k", 1, MOST_NEIGHBOURS, whole=True)
        object.__setattr__(self, "k", int(self.k))
        object.__setattr__(self, "codebook", _checked(self, self.codebook))

    @abstractmethod
    def bound(self, probability: Any) -> Any:
        """How much probability a token of target probability q(x) may borrow; of an array or tensor: each of them."""

    def neighbours(self, q: Floats, token: int) -> Tokens:
        """The m codes n_1 .. n_m that x borrows from, nearest first, for target probabilities q [V]."""
        ids = nearest(self.codebook, token, self.k)
        return ids[: int((np.cumsum(q[ids]) <= self.bound(float(q[token]))).sum())]

    def mass(self, q: Floats, token: int) -> float:
        """q~(x), for target probabilities q [V]."""
        return float(q[token] + q[self.neighbours(q, token)].sum())

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, q~ / p) of each token [n]."""
        ids = block(q, p, tokens)
        _fits(self, self.codebook, q)
        masses = np.array([self.mass(row, int(x)) for row, x in zip(q, ids, strict=True)])
        return np.minimum(1.0, quotient(masses, at(p, ids)))

    def residuals(self, q: Floats, p: Floats, tokens: ArrayLike) -> Floats:
        """norm(max(0, q - p')), p' = p without x and its m neighbours; [n, V]. It may draw x again."""
        ids = block(q, p, tokens)
        _fits(self, self.codebook, q)
        without = p.copy()
        for row, target, x in zip(without, q, ids, strict=True):
            row[x] = 0.0
            row[self.neighbours(target, int(x))] = 0.0
        return norm_positive(q - without, q)

    def struck(self, q: Floats, token: int) -> Floats:
        """Q without x and its m neighbours, renormalised: the tree form of the papers.

        Their code strikes all k neighbours where x borrows from one; here, as in the chain, those that x borrows from.
        """
        left = q.copy()
        left[token] = 0.0
        left[self.neighbours(q, token)] = 0.0
        return norm_positive(left, q)


@dataclass(frozen=True)
class LANTERN(_Neighbourhood):
    """LANTERN (ICLR 2025, arXiv 2410.03355): the borrowed probability is at most `delta`.

    Attributes:
        codebook: [V, e].
        k: nearest codes to look at, 1 to 1,000,000.
        delta: bound on what x borrows, 0 to 1; it bounds the total variation that the rule adds.
    """

    k: int = 1000
    delta: float = 0.1
    name: ClassVar[str] = "lantern"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "delta", 0.0, 1.0)

    def bound(self, probability: Any) -> Any:
        """delta, whatever q(x) is."""
        return self.delta


@dataclass(frozen=True)
class LANTERNPlusPlus(_Neighbourhood):
    """LANTERN++ (arXiv 2502.06352): the borrowed probability is at most (lam - 1) q(x).

    Attributes:
        codebook: [V, e].
        k: nearest codes to look at, 1 to 1,000,000.
        lam: lambda, at least 1: q~(x) <= lam q(x). Published (k, lam): (10, 5), (5, 10), (5, 20).
    """

    k: int = 10
    lam: float = 5.0
    name: ClassVar[str] = "lantern++"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", 1.0)

    def bound(self, probability: Any) -> Any:
        """(lam - 1) q(x)."""
        return (self.lam - 1.0) * probability
