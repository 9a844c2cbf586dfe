"""Losses of the Inter-Head, by name, so that they can be compared on one table.

q is the target's distribution AFTER guidance, s = softmax(c) the draft's, l and u the bounds, all [N, V] over N
positions. `paper` is Inter-DRO of CIAR (arXiv 2603.25463) read literally; the others are this project's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pixdraft.models.inter_head import fuse


@dataclass(frozen=True)
class InterDRO:
    """Weights of the Inter-DRO loss.

    Attributes:
        value: lv, of the L1 anchors.
        probability: lp, of the cross-entropy anchors; keep it and the DRO weight below `value`.
        kl: beta, of KL(q || s).
        alpha: sharpness of the DRO weights; 0 is the mean, large is the worst position.
        dro: weight of the DRO term; 0 leaves it out.
        quantile: of the pinball bounds: u at it, l at one minus it.
        worst: > 0 replaces the softmax weights by CVaR, the mean of this worst fraction.
    """

    value: float = 1.0
    probability: float = 0.1
    kl: float = 0.1
    alpha: float = 1.0
    dro: float = 0.1
    quantile: float = 0.9
    worst: float = 0.0

    def __post_init__(self) -> None:
        if min(self.value, self.probability, self.kl, self.alpha, self.dro) < 0:
            raise ValueError("InterDRO weights must not be negative")
        if not 0.5 < self.quantile < 1 or not 0 <= self.worst < 1:
            raise ValueError("InterDRO.quantile must lie in (0.5, 1) and InterDRO.worst in [0, 1)")


def cross_entropy(q: Tensor, p: Tensor) -> Tensor:
    """-sum q log(p + 1e-9), [N]; p need not be normalised."""
    return -(q * (p + 1e-9).log()).sum(-1)


def anchor(q: Tensor, p: Tensor, weights: InterDRO) -> Tensor:
    """A(p) = lv ||p - q||_1 + lp CE(q, p), [N]."""
    return weights.value * (p - q).abs().sum(-1) + weights.probability * cross_entropy(q, p)


def robust_mean(values: Tensor, weights: InterDRO) -> Tensor:
    """sum w_n values_n with w = softmax(alpha * values), detached: the KL-regularised worst case; or CVaR."""
    if weights.worst > 0:
        count = max(1, round(weights.worst * values.numel()))
        return values.flatten().topk(count).values.mean()
    w = torch.softmax(weights.alpha * values.detach().flatten(), 0)
    return (w * values.flatten()).sum()


def center_loss(q: Tensor, center: Tensor, weights: InterDRO) -> Tensor:
    """A(s) + beta KL(q || s), the mean over positions."""
    s = center.softmax(-1)
    kl = (q * ((q + 1e-9).log() - (s + 1e-9).log())).sum(-1)
    return (anchor(q, s, weights) + weights.kl * kl).mean()


def _anchored(q: Tensor, lower: Tensor, upper: Tensor, weights: InterDRO) -> Tensor:
    loss = (anchor(q, upper, weights) + anchor(q, lower, weights)).mean()
    return loss + weights.dro * robust_mean(cross_entropy(q, lower), weights)


def paper(q: Tensor, center: Tensor, radius: Tensor, weights: InterDRO) -> Tensor:
    """A(u) + A(l) + L_dro on the unnormalised bounds: the paper's loss of the bounds."""
    return _anchored(q, *fuse(center, radius), weights)


def normalised(q: Tensor, center: Tensor, radius: Tensor, weights: InterDRO) -> Tensor:
    """The same anchors on the reading l, u = softmax(c -+ r)."""
    return _anchored(q, (center - radius).softmax(-1), (center + radius).softmax(-1), weights)


def _pinball(error: Tensor, quantile: float) -> Tensor:
    return torch.maximum(quantile * error, (quantile - 1.0) * error).sum(-1)


def pinball(q: Tensor, center: Tensor, radius: Tensor, weights: InterDRO) -> Tensor:
    """Quantile loss of the bounds (Koenker and Bassett 1978): an L1 anchor is a median and collapses them."""
    lower, upper = fuse(center.detach(), radius)
    loss = _pinball(q - upper, weights.quantile) + _pinball(q - lower, 1.0 - weights.quantile)
    return loss.mean() + weights.dro * robust_mean(loss, weights)


def total_variation(q: Tensor, center: Tensor) -> Tensor:
    """TV(q, softmax(c)), [N]: exactly the probability that speculative sampling rejects."""
    return 0.5 * (q - center.softmax(-1)).abs().sum(-1)


def risk(q: Tensor, center: Tensor, predicted: Tensor) -> Tensor:
    """Binary cross-entropy of the predicted against the true TV; its minimum is the conditional mean."""
    truth = total_variation(q, center).detach().clamp(0.0, 1.0)
    return torch.nn.functional.binary_cross_entropy(predicted, truth)


BOUND_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, InterDRO], Tensor]] = {
    "paper": paper,
    "normalised": normalised,
    "pinball": pinball,
}
