"""What an acceptance rule is: it judges a drafted token, and says what to draw where it rejects.

q is the target's and p the draft's distribution, both AFTER guidance, temperature, top-k and top-p; x is the token
that was drawn from p. A rule accepts when r < b(x), r uniform in [0, 1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixdraft.decoding.numbers import is_number, is_whole
from pixdraft.decoding.sampling import Floats

Tokens = NDArray[np.int64]


class RuleError(ValueError):
    """An acceptance rule is unknown, or a parameter is; the message names it and says what would do."""


class Rule(ABC):
    """Base of every rule. A rule is written over a block of n tokens; the twins for one token call that.

    Attributes:
        name: its key in `acceptance.RULES`.
        needs_codebook: whether it cannot be built without the tokenizer's codebook.
    """

    name: ClassVar[str]
    needs_codebook: ClassVar[bool] = False

    @abstractmethod
    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """b for each token of a block, float64 [n] in [0, 1].

        Args:
            q, p: target and draft, float64 [n, V].
            tokens: the drafted codes [n].
            first: how many tokens of the same block were judged before these; only an annealed rule asks.

        Raises:
            ValueError: shapes disagree, or a token is not in the vocabulary.
        """

    def residuals(self, q: Floats, p: Floats, tokens: ArrayLike) -> Floats:
        """What to draw instead of each token if it is rejected, float64 [n, V], rows summing to 1.

        By default norm(max(0, q - p)), which is exact for the lossless rule (Leviathan et al., arXiv 2211.17192) and
        the optimal one for every b >= min(1, q / p) (CSD, arXiv 2606.27829, theorem 3.1). Where q <= p everywhere
        nothing is left, and the row is q.
        """
        block(q, p, tokens)
        return norm_positive(q - p, q)

    def probability(self, q: Floats, p: Floats, token: int, index: int = 0) -> float:
        """b for one token, given q and p [V]; `index` counts the tokens of its block judged before it."""
        return float(self.probabilities(q[None], p[None], [token], index)[0])

    def residual(self, q: Floats, p: Floats, token: int) -> Floats:
        """`residuals` for one token: float64 [V]."""
        return np.asarray(self.residuals(q[None], p[None], [token])[0], np.float64)

    def certain(self, q: Floats, token: int, index: int = 0) -> float:
        """b for a token that was no draw but a guess: its p is one-hot, and q / p is q(x). Arguments as above."""
        return self.probability(q, _one_hot(q, token), token, index)

    def struck(self, q: Floats, token: int) -> Floats:
        """What is left of q [V] for further guesses and for the draw, once such a guess is rejected.

        By default the residual, which for a one-hot p is q without x, renormalised.
        """
        return self.residual(q, _one_hot(q, token), token)


def _one_hot(q: Floats, token: int) -> Floats:
    p = np.zeros_like(q)
    p[token] = 1.0
    return p


def block(q: Floats, p: Floats, tokens: ArrayLike) -> Tokens:
    """The tokens as int64 [n], once they and the distributions [n, V] are seen to fit each other."""
    ids = np.asarray(tokens)
    if q.ndim != 2 or q.shape != p.shape or ids.shape != q.shape[:1]:
        raise ValueError(f"q is {q.shape}, p {p.shape} and tokens {ids.shape}: they must be [n, V], [n, V] and [n]")
    if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= q.shape[1]):
        raise ValueError(f"tokens holds something else than code ids of 0 to {q.shape[1] - 1}")
    return ids.astype(np.int64)


def at(values: Floats, tokens: Tokens) -> Floats:
    """values[i, tokens[i]] for each row, float64 [n]."""
    return np.asarray(np.take_along_axis(values, tokens[:, None], 1)[:, 0], np.float64)


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """numerator / denominator [n], for q(x) / p(x): 0 where the target never draws x, else inf where p(x) is 0."""
    limit = np.where(numerator > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):  # a quotient above 1e308 is cut to 1 in any case
        return np.asarray(np.divide(numerator, denominator, out=limit, where=denominator > 0), np.float64)


def norm_positive(difference: Floats, otherwise: Floats) -> Floats:
    """norm(max(0, difference)) along the last axis; the row of `otherwise` where nothing is positive."""
    positive = np.maximum(difference, 0.0)
    mass = positive.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(mass > 0, positive / np.where(mass > 0, mass, 1.0), otherwise), np.float64)


MOST_NEIGHBOURS = 1_000_000.0  # codes that a rule looks at beside one: more than any vocabulary has


def require(rule: Rule, field: str, low: float, high: float = math.inf, whole: bool = False) -> None:
    """Raise RuleError unless a field of a rule is a number (a whole one, if asked) from `low` to `high`."""
    value: Any = getattr(rule, field)
    fits = is_number(value) and low <= value <= high and value < math.inf
    if not fits or (whole and not is_whole(value, low, high)):
        kind = "a whole number" if whole else "a number"
        reach = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:.7g}"
        raise RuleError(f"{rule.name}: {field} is {value!r:.64}, but must be {kind} {reach}")
