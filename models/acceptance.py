"""The acceptance rules of `decoding.acceptance` in torch, for blocks whose distributions live on the cloud's device.

A rule stays the numpy dataclass: its parameters and their checks are there, once, and each function below is the twin
of its namesake there. In float64 the twins agree to 1e-9. They do so only up to rounding where a rule makes a jump:
CSD's gate at TV = delta, and a LANTERN bound that a running sum meets exactly.

Shapes: n tokens of a block, V codes; q, p [n, V] on one device, of one floating type.
"""

from __future__ import annotations

import weakref
from functools import singledispatch
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pixdraft.decoding.codebook_rules import GSD, LANTERN, LANTERNPlusPlus
from pixdraft.decoding.ratio_rules import COOL, CSD, Addition, Amplify, Lossless
from pixdraft.decoding.rule import Rule


def probabilities(rule: Rule, q: Tensor, p: Tensor, tokens: Tensor, first: int = 0) -> Tensor:
    """b for each token of a block, [n] in [0, 1]; see `Rule.probabilities`.

    Args:
        rule: with its parameters.
        q, p: target and draft.
        tokens: the drafted codes, int64 [n], each below V: nothing waits for the device to check them.
        first: how many tokens of the same block were judged before these.

    Raises:
        ValueError: shapes, types or the codebook disagree.
        TypeError: the rule has no twin.
    """
    _check(q, p, tokens)
    return _chances(rule, q, p, tokens, first).clamp(max=1.0)


def residuals(rule: Rule, q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """What to draw instead of each token if it is rejected, [n, V], rows summing to 1; see `Rule.residuals`.

    Arguments and errors are those of `probabilities`.
    """
    _check(q, p, tokens)
    positive = (q - _struck(rule, q, p, tokens)).clamp(min=0.0)
    mass = positive.sum(-1, keepdim=True)
    return torch.where(mass > 0, positive / mass, q)


def entropy(p: Tensor) -> Tensor:
    """Shannon entropy in nats over the last axis; 0 log 0 is 0."""
    return torch.special.entr(p).sum(-1)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """TV(p, q) = 1/2 sum |p - q| over the last axis."""
    return 0.5 * (p - q).abs().sum(-1)


@singledispatch
def _chances(rule: Rule, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    """b [n] before it is cut to 1."""
    raise TypeError(f"the rule {rule.name!r} has no twin in torch: use its own methods, in numpy")


@_chances.register
def _(rule: Lossless, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    return _ratios(q, p, tokens)


@_chances.register
def _(rule: CSD, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    return _ratios(q, p, tokens) + torch.where(total_variation(p, q) < rule.delta, rule.lam * entropy(q), 0.0)


@_chances.register
def _(rule: Addition, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    return _ratios(q, p, tokens) + rule.epsilon


@_chances.register
def _(rule: Amplify, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    return rule.factor * _ratios(q, p, tokens)


@_chances.register
def _(rule: COOL, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    judged = torch.arange(first, first + len(q), dtype=q.dtype, device=q.device)
    return (1.0 + (rule.weight - 1.0) * rule.decay**judged) * _ratios(q, p, tokens)


@_chances.register
def _(rule: GSD, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    x = tokens[:, None]
    order = q.argsort(dim=-1, descending=True, stable=True)
    rank = (order == x).int().argmax(-1, keepdim=True)
    reach = min(rule.group // 2, q.shape[1] - 1)
    places = rank + torch.arange(-reach, reach + 1, device=q.device)
    members = order.gather(1, places.clamp(0, q.shape[1] - 1))
    near = q.gather(1, members)
    kept = (places >= 0) & (places < q.shape[1]) & ((near - q.gather(1, x)).abs() <= rule.gap)
    if rule.codebook is not None:
        codes = _codes(rule, rule.codebook, q)
        kept &= _squared_distances(codes[members], codes[tokens][:, None]) <= rule.distance
    return _quotient((near * kept).sum(-1), (p.gather(1, members) * kept).sum(-1))


@_chances.register(LANTERN)
@_chances.register(LANTERNPlusPlus)
def _(rule: LANTERN | LANTERNPlusPlus, q: Tensor, p: Tensor, tokens: Tensor, first: int) -> Tensor:
    neighbours, borrowed = _neighbours(rule, q, tokens)
    mass = _at(q, tokens) + (q.gather(1, neighbours) * borrowed).sum(-1)
    return _quotient(mass, _at(p, tokens))


def _struck(rule: Rule, q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """p as the residual subtracts it: whole, but for a LANTERN rule, which strikes x and its neighbours out."""
    if not isinstance(rule, LANTERN | LANTERNPlusPlus):
        return p
    neighbours, borrowed = _neighbours(rule, q, tokens)
    struck = torch.zeros_like(p, dtype=torch.bool).scatter_(1, neighbours, borrowed)
    return p.masked_fill(struck.scatter_(1, tokens[:, None], True), 0.0)


def _neighbours(rule: LANTERN | LANTERNPlusPlus, q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the codes nearest to each token's, nearest first, [n, k], and which of them it borrows from."""
    codes = _codes(rule, rule.codebook, q)
    distances = _squared_distances(codes, codes[tokens][:, None])
    distances.scatter_(1, tokens[:, None], torch.inf)
    ids = distances.argsort(dim=-1, stable=True)[:, : min(rule.k, len(codes) - 1)]
    bound = torch.as_tensor(rule.bound(_at(q, tokens)), dtype=q.dtype, device=q.device)
    return ids, q.gather(1, ids).cumsum(-1) <= bound.reshape(-1, 1)


def _squared_distances(codes: Tensor, code: Tensor) -> Tensor:
    """Squared distances over the last axis, which holds the dimensions; added in numpy's order, for the same ties."""
    distances = torch.zeros(torch.broadcast_shapes(codes.shape, code.shape)[:-1], dtype=codes.dtype, device=code.device)
    for column, value in zip(codes.unbind(-1), code.unbind(-1), strict=True):
        distances += (column - value).square()
    return distances


_COPIES: dict[tuple[int, torch.device], Tensor] = {}


def _codes(rule: Rule, codebook: NDArray[Any], q: Tensor) -> Tensor:
    """A rule's codebook where q is, float64 [V, e]; copied there once, and forgotten together with the array."""
    if len(codebook) != q.shape[1]:
        raise ValueError(f"{rule.name}: the codebook has {len(codebook)} codes and q has {q.shape[1]}")
    key = id(codebook), q.device
    if key not in _COPIES:
        _COPIES[key] = torch.tensor(codebook, device=q.device)
        weakref.finalize(codebook, _COPIES.pop, key, None)
    return _COPIES[key]


def _ratios(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    return _quotient(_at(q, tokens), _at(p, tokens))


def _at(values: Tensor, tokens: Tensor) -> Tensor:
    """values[i, tokens[i]], [n]."""
    return values.gather(1, tokens[:, None])[:, 0]


def _quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator [n]: 0 where the target never draws the token, else inf where the draft does not."""
    limit = torch.where(numerator > 0, torch.inf, 0.0)
    return torch.where(denominator > 0, numerator / denominator, limit.to(numerator.dtype))


def _check(q: Tensor, p: Tensor, tokens: Tensor) -> None:
    if q.dim() != 2 or q.shape != p.shape or tokens.shape != q.shape[:1]:
        shapes = [tuple(t.shape) for t in (q, p, tokens)]
        raise ValueError(f"q, p and tokens are {shapes}: they must be [n, V], [n, V] and [n]")
    if not q.is_floating_point() or q.dtype != p.dtype or tokens.dtype != torch.int64:
        raise ValueError(f"q, p and tokens hold {q.dtype}, {p.dtype} and {tokens.dtype}: give floats twice, and int64")
