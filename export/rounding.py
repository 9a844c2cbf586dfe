"""Weights brought onto the grids of a few bits with the least error, before a converter stores them.

The result already lies on a grid: a converter that takes the plain scale of it, or its unique values, finds exactly
this one. So what is exported is known beforehand, and the same model can be run in torch eager.
"""

from __future__ import annotations

import torch
from torch import Tensor

# A scale that just reaches the largest weight of a block wastes levels on it: clipping it a little moves the others
# closer to theirs. At 4 bits that takes some fifth off what quantisation changes.
_SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
_SWEEPS = 100
_GROUPS = 256


def round_to_levels(weight: Tensor, block: int, top: int = 7) -> Tensor:
    """The nearest weights with levels -top .. top in every block.

    Args:
        weight: [outputs, inputs], `inputs` a multiple of `block`.
        block: neighbouring inputs that share a scale.
        top: the highest level.

    Returns:
        Weights of the same shape; of the scales tried for a block, the one with the least squared error was taken.
    """
    blocks = weight.detach().unflatten(-1, (-1, block))
    widest = blocks.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    best, least = torch.zeros_like(blocks), torch.full_like(widest, torch.inf)
    for shrink in _SHRINKS:
        scale = widest * (shrink / top)
        rounded = (blocks / scale).round().clamp(-top, top) * scale
        error = (blocks - rounded).square().sum(-1, keepdim=True)
        best = torch.where(error < least, rounded, best)
        least = torch.minimum(least, error)
    return best.flatten(-2)


def round_to_palette(weight: Tensor, rows: int, entries: int = 16) -> Tensor:
    """The nearest weights with few values in every group of rows: k-means in one dimension.

    Args:
        weight: [outputs, inputs], `outputs` a multiple of `rows`.
        rows: neighbouring outputs that share a palette.
        entries: values of a palette.

    Returns:
        Weights of the same shape; of two beginnings, the palette with the lesser squared error was taken.
    """
    parts = weight.detach().split(rows * _GROUPS)  # a large matrix at once takes gigabytes
    return torch.cat([_with_palettes(part, rows, entries) for part in parts])


def _with_palettes(weight: Tensor, rows: int, entries: int) -> Tensor:
    groups = weight.double().reshape(weight.shape[0] // rows, -1)
    ordered = groups.sort(-1).values
    spread = torch.linspace(0, 1, entries, dtype=ordered.dtype)
    even = torch.lerp(ordered[:, :1], ordered[:, -1:], spread)
    places = ((spread * 0.98 + 0.01) * (ordered.shape[1] - 1)).round().long()
    best, least = groups, torch.full((len(groups), 1), torch.inf, dtype=groups.dtype)
    # Even steps serve the tails, equal shares the middle; the best palette lies between.
    for beginning in (even, (even + ordered[:, places]) / 2):
        palette = _settled(ordered, beginning)
        nearest = torch.searchsorted(_cuts(palette), groups)
        rounded = palette.gather(-1, nearest)
        error = (groups - rounded).square().sum(-1, keepdim=True)
        best = torch.where(error < least, rounded, best)
        least = torch.minimum(least, error)
    return best.reshape(weight.shape).to(weight.dtype)


def _cuts(palette: Tensor) -> Tensor:
    return ((palette[:, 1:] + palette[:, :-1]) / 2).contiguous()


def _settled(ordered: Tensor, palette: Tensor) -> Tensor:
    """Lloyd's sweeps: each entry moves to the mean of the values nearest to it, [groups, entries]."""
    sums = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))
    ends = torch.tensor([0, ordered.shape[1]]).expand(len(ordered), 2)
    for _ in range(_SWEEPS):
        edges = torch.cat([ends[:, :1], torch.searchsorted(ordered, _cuts(palette)), ends[:, 1:]], dim=-1)
        count, total = edges.diff(dim=-1), sums.gather(-1, edges).diff(dim=-1)
        palette = torch.where(count > 0, total / count.clamp_min(1), palette)
    return palette
