"""Rules that look at q(x) / p(x): lossless speculative sampling, and relaxations of it that need no codebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pixdraft.decoding.rule import Rule, at, block, quotient, require
from pixdraft.decoding.sampling import Floats, entropy, total_variation


def _ratios(q: Floats, p: Floats, tokens: ArrayLike) -> Floats:
    ids = block(q, p, tokens)
    return quotient(at(q, ids), at(p, ids))


@dataclass(frozen=True)
class Lossless(Rule):
    """Speculative sampling: b = min(1, q(x) / p(x)), residual norm(max(0, q - p)).

    Leviathan, Kalman and Matias (arXiv 2211.17192), algorithm 1; Chen et al. (arXiv 2302.01318), theorem 1. The token
    that comes out is distributed as q, and the rejection probability is TV(p, q).
    """

    name: ClassVar[str] = "lossless"

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, q / p) of each token [n]."""
        return np.minimum(1.0, _ratios(q, p, tokens))


@dataclass(frozen=True)
class CSD(Rule):
    """CSD: b = min(1, q(x) / p(x) + eps), eps = lam * H(q) where TV(p, q) < delta and else 0.

    CSD (ICML 2026, arXiv 2606.27829). H is in nats over the whole vocabulary, not normalised. P(reject) + TV(P, q) =
    TV(p, q) for the distribution P that comes out (theorem 3.2). With lam = 0.5 two nats make eps reach 1: inside the
    gate nearly everything is accepted, and delta is the knob that matters.

    The published code clamps p and q to 1e-10 before it divides; here float64 divides exactly, and a token with
    q(x) = 0 keeps the quotient 0.

    Attributes:
        lam: lambda, at least 0.
        delta: the gate on TV, 0 to 1.
    """

    lam: float = 0.5
    delta: float = 0.65
    name: ClassVar[str] = "csd"

    def __post_init__(self) -> None:
        require(self, "lam", 0.0)
        require(self, "delta", 0.0, 1.0)

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, q / p + eps) of each token [n]."""
        relaxation: Floats = np.where(total_variation(p, q) < self.delta, self.lam * entropy(q), 0.0)
        return np.minimum(1.0, _ratios(q, p, tokens) + relaxation)


@dataclass(frozen=True)
class Addition(Rule):
    """b = min(1, q(x) / p(x) + epsilon): the additive relaxation that CSD (arXiv 2606.27829) compares with.

    Attributes:
        epsilon: 0 to 1; published: 0.1 for Lumina-mGPT, 0.4 for Janus-Pro 7B.
    """

    epsilon: float = 0.1
    name: ClassVar[str] = "addition"

    def __post_init__(self) -> None:
        require(self, "epsilon", 0.0, 1.0)

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, q / p + epsilon) of each token [n]."""
        return np.minimum(1.0, _ratios(q, p, tokens) + self.epsilon)


@dataclass(frozen=True)
class Amplify(Rule):
    """b = min(1, factor * q(x) / p(x)): the multiplicative relaxation that CSD (arXiv 2606.27829) compares with.

    Attributes:
        factor: at least 1; published: 1.3 for Lumina-mGPT, 4 for Janus-Pro 7B.
    """

    factor: float = 1.3
    name: ClassVar[str] = "amplify"

    def __post_init__(self) -> None:
        require(self, "factor", 1.0)

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, factor * q / p) of each token [n]."""
        return np.minimum(1.0, self.factor * _ratios(q, p, tokens))


@dataclass(frozen=True)
class COOL(Rule):
    """b = min(1, w_i q(x) / p(x)), w_i falling along the block: loose where it starts, strict where it ends.

    COOL-SD (AAAI 2026, arXiv 2601.09212), which shows that a falling relaxation costs less bias than a constant one
    and that norm(max(0, q - p)) is its best residual. The schedule here decays to the lossless rule,
    w_i = 1 + (weight - 1) * decay^i, where i counts the tokens of the block judged before; the paper's constants are
    not published with code. decay = 1 is `Amplify`, weight = 1 is `Lossless`.

    Attributes:
        weight: w_0, at least 1.
        decay: 0 to 1.
    """

    weight: float = 1.5
    decay: float = 0.8
    name: ClassVar[str] = "cool"

    def __post_init__(self) -> None:
        require(self, "weight", 1.0)
        require(self, "decay", 0.0, 1.0)

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        """min(1, w_i q / p) of each token [n]; row 0 has i = `first`."""
        judged = np.arange(first, first + len(q), dtype=np.float64)
        weights: Floats = 1.0 + (self.weight - 1.0) * np.power(self.decay, judged)
        return np.minimum(1.0, weights * _ratios(q, p, tokens))
