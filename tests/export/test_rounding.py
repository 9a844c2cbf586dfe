"""Rounding with the least error: on the grid, never worse than the plain scale, and found again by a converter."""

from __future__ import annotations

import pytest
import torch

from pixdraft.export.rounding import round_to_levels


def plain(weight: torch.Tensor, block: int, top: int = 7) -> torch.Tensor:
    blocks = weight.unflatten(-1, (-1, block))
    scale = blocks.abs().amax(-1, keepdim=True) / top
    return ((blocks / scale).round().clamp(-top, top) * scale).flatten(-2)


@pytest.mark.parametrize(("block", "least"), [(8, 0.95), (32, 0.9)])
def test_better_than_the_plain_scale(block: int, least: float) -> None:
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    rounded = round_to_levels(weight, block)
    error = (rounded - weight).square().unflatten(-1, (-1, block)).sum(-1)
    usual = (plain(weight, block) - weight).square().unflatten(-1, (-1, block)).sum(-1)
    assert (error <= usual + 1e-5).all()
    assert error.sum() < least * usual.sum()


@pytest.mark.parametrize("half", [False, True])
def test_the_plain_scale_finds_the_same_grid(half: bool) -> None:
    weight = round_to_levels(torch.randn(16, 64, generator=torch.Generator().manual_seed(1)), 32)
    seen = weight.half().float() if half else weight
    torch.testing.assert_close(plain(seen, 32), weight, rtol=2e-3 if half else 1e-6, atol=0)
    assert max(len(row.unique()) for row in weight.unflatten(-1, (-1, 32)).flatten(0, 1)) <= 15


def test_blocks_of_zeros_stay_zero() -> None:
    assert round_to_levels(torch.zeros(2, 32), 32).tolist() == [[0.0] * 32] * 2
