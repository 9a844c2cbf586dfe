"""Rounding with the least error: on the grid, never worse than the plain way, and found again by a converter."""

from __future__ import annotations

import pytest
import torch

from pixdraft.export.rounding import round_to_levels, round_to_palette


def random(seed: int, rows: int = 16, inputs: int = 64) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))


def plain(weight: torch.Tensor, block: int, top: int = 7) -> torch.Tensor:
    blocks = weight.unflatten(-1, (-1, block))
    scale = blocks.abs().amax(-1, keepdim=True) / top
    rounded: torch.Tensor = (blocks / scale).round().clamp(-top, top) * scale
    return rounded.flatten(-2)


@pytest.mark.parametrize(("block", "top", "least"), [(8, 7, 0.95), (32, 7, 0.9), (64, 127, 1.0)])
def test_better_than_the_plain_scale(block: int, top: int, least: float) -> None:
    weight = random(0)
    rounded = round_to_levels(weight, block, top)
    error = (rounded - weight).square().unflatten(-1, (-1, block)).sum(-1)
    usual = (plain(weight, block, top) - weight).square().unflatten(-1, (-1, block)).sum(-1)
    assert (error <= usual + 1e-5).all()
    assert error.sum() <= least * usual.sum()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("block", "top"), [(32, 7), (64, 127)])
def test_the_plain_scale_finds_the_same_grid(half: bool, block: int, top: int) -> None:
    weight = round_to_levels(random(1), block, top)
    seen = weight.half().float() if half else weight
    torch.testing.assert_close(plain(seen, block, top), weight, rtol=2e-3 if half else 1e-5, atol=0)


def test_palettes_have_their_entries_and_their_groups() -> None:
    weight = random(2, rows=16, inputs=96)
    rounded = round_to_palette(weight, rows=8)
    assert [len(group.unique()) for group in rounded.split(8)] == [16, 16]
    nearest = (weight[:8].reshape(-1, 1) - rounded[:8].unique()[None]).abs().amin(-1)
    torch.testing.assert_close((weight[:8] - rounded[:8]).abs().reshape(-1), nearest)


def test_a_palette_is_close_to_the_best() -> None:
    """The best 16 levels leave 0.0095 of the variance of a normal distribution (Max 1960, table I)."""
    weight = random(3, rows=8, inputs=8192)
    left = (round_to_palette(weight, rows=8) - weight).square().mean() / weight.square().mean()
    assert 0.0090 < left < 0.0097


def test_few_values_stay_what_they_are() -> None:
    weight = torch.tensor([[1.0, -2.0, 0.5, 0.25]]).repeat(8, 4)
    torch.testing.assert_close(round_to_palette(weight, rows=8), weight)
    assert round_to_levels(torch.zeros(2, 32), 32).tolist() == [[0.0] * 32] * 2
    assert round_to_palette(torch.zeros(8, 32), 8).tolist() == [[0.0] * 32] * 8
