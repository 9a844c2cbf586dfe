"""The losses: against numpy, and at the optima that the method says they have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pixdraft.decoding import intervals
from pixdraft.training import losses
from pixdraft.training.losses import BOUND_LOSSES, InterDRO

WEIGHTS = InterDRO(value=1.0, probability=0.1, kl=0.3, alpha=2.0, dro=0.1)


def softmax(logits: Tensor) -> Tensor:
    return logits.double().softmax(-1)


@pytest.fixture
def case() -> tuple[Tensor, Tensor, Tensor]:
    """q, centre and radius of six positions over five codes."""
    rng = torch.Generator().manual_seed(1)
    q, center = (torch.randn(6, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    return softmax(2 * q), 2 * center, torch.rand(6, 5, generator=rng, dtype=torch.float64)


def test_the_loss_of_the_centre(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center = case[0].numpy(), case[1]
    s = softmax(center).numpy()
    cross = -(q * np.log(s + 1e-9)).sum(-1)
    kl = (q * (np.log(q + 1e-9) - np.log(s + 1e-9))).sum(-1)
    expected = (np.abs(s - q).sum(-1) + 0.1 * cross + 0.3 * kl).mean()
    assert losses.center_loss(case[0], center, WEIGHTS).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["paper", "normalised"])
def test_the_loss_of_the_bounds(case: tuple[Tensor, Tensor, Tensor], name: str) -> None:
    q, center, radius = (part.numpy() for part in case)
    if name == "paper":
        lower, upper = intervals.fuse(center, radius)
    else:
        lower, upper = (softmax(torch.from_numpy(center + sign * radius)).numpy() for sign in (-1, 1))

    def cross(p: np.ndarray) -> np.ndarray:
        return np.asarray(-(q * np.log(p + 1e-9)).sum(-1))

    def anchor(p: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(p - q).sum(-1) + 0.1 * cross(p))

    w = np.exp(2.0 * cross(lower))
    dro = (w / w.sum() * cross(lower)).sum()
    expected = (anchor(upper) + anchor(lower)).mean() + 0.1 * dro
    assert BOUND_LOSSES[name](*case, WEIGHTS).item() == pytest.approx(expected, rel=1e-6)


def entrywise(q: Tensor, start: Tensor, weights: InterDRO, lower: bool) -> Tensor:
    """For each entry alone, the value on a fine grid that A (of l: with L_dro) is least at, within its side of s."""
    best = torch.empty_like(q)
    for i in range(len(q)):
        low, high = (0.0, start[i].item()) if lower else (start[i].item(), 1.0)
        grid = torch.linspace(low, high, 4001, dtype=torch.float64)
        rows = start.repeat(len(grid), 1)
        rows[:, i] = grid
        loss = losses.anchor(q, rows, weights)
        if lower:  # a single position has all the weight of the DRO term
            loss = loss + weights.dro * losses.cross_entropy(q, rows)
        best[i] = grid[loss.argmin()]
    return best


def test_where_the_value_anchor_rules_the_width_is_twice_the_total_variation(
    case: tuple[Tensor, Tensor, Tensor],
) -> None:
    q, s = case[0][0], softmax(case[1][0])
    upper, lower = entrywise(q, s, WEIGHTS, lower=False), entrywise(q, s, WEIGHTS, lower=True)
    torch.testing.assert_close(upper, torch.maximum(s, q), atol=5e-4, rtol=0)
    torch.testing.assert_close(lower, torch.minimum(s, q), atol=5e-4, rtol=0)
    tv = losses.total_variation(q[None], case[1][:1]).item()
    assert (upper - lower).sum().item() == pytest.approx(2 * tv, abs=5e-3)


def test_where_the_cross_entropy_rules_the_bounds_run_off(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, s = case[0][0], softmax(case[1][0])
    wrong = InterDRO(value=0.05, probability=1.0)
    assert (entrywise(q, s, wrong, lower=False) > torch.maximum(s, q) + 0.05).any()


def test_alpha_goes_from_the_mean_to_the_worst() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 7.0])
    means = [losses.robust_mean(values, InterDRO(alpha=a)).item() for a in (0.0, 0.5, 2.0, 1000.0)]
    assert means[0] == pytest.approx(3.5)
    assert means == sorted(means)
    assert means[-1] == pytest.approx(7.0)
    assert means[1] < means[2] < 7.0


def test_the_weights_of_the_worst_case_are_detached() -> None:
    values = torch.tensor([1.0, 2.0, 4.0]).requires_grad_()
    gradient = torch.autograd.grad(losses.robust_mean(values, InterDRO(alpha=0.7)), values)[0]
    torch.testing.assert_close(gradient, torch.softmax(0.7 * values.detach(), 0))


@pytest.mark.parametrize(("worst", "expected"), [(0.25, 7.5), (0.5, 6.5), (0.01, 8.0)])
def test_cvar_is_the_mean_of_the_worst_share(worst: float, expected: float) -> None:
    values = torch.arange(1.0, 9.0)[torch.randperm(8, generator=torch.Generator().manual_seed(0))]
    assert losses.robust_mean(values, InterDRO(worst=worst)).item() == pytest.approx(expected)


def gradients(loss: Tensor, *of: Tensor) -> tuple[Tensor | None, ...]:
    """None for what the loss does not depend on."""
    return torch.autograd.grad(loss, of, allow_unused=True)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_least_pinball_loss_is_at_the_quantile(quantile: float) -> None:
    sample = torch.rand(1001, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 2
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    loss = torch.stack([losses._pinball((sample - bound)[:, None], quantile).mean() for bound in grid])
    assert grid[loss.argmin()].item() == pytest.approx(torch.quantile(sample, quantile).item(), abs=2e-3)


def test_pinball_widens_what_is_too_narrow_and_leaves_the_centre_alone(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center, _ = case
    center = center.clone().requires_grad_()
    for width, sign in ((1e-3, -1), (20.0, 1)):  # the loss falls as the radius grows, and the other way round
        radius = torch.full_like(center, width).requires_grad_()
        loss = losses.pinball(q, center, radius, InterDRO())
        of_radius, of_center = gradients(loss, radius, center)
        assert of_center is None
        assert of_radius is not None
        assert (of_radius.sum() * sign).item() > 0


def test_anchors_move_the_centre_too(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center, radius = case
    center = center.clone().requires_grad_()
    gradient = torch.autograd.grad(losses.paper(q, center, radius, WEIGHTS), center)[0]
    assert gradient.abs().max() > 1e-3


def test_total_variation(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center, _ = case
    s = softmax(center)
    expected = (q - s).clamp_min(0).sum(-1)  # the mass that q has more of
    torch.testing.assert_close(losses.total_variation(q, center), expected)


def test_the_least_risk_loss_is_at_the_mean(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center, _ = case
    grid = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    loss = torch.stack([losses.risk(q, center, torch.full((6,), p.item(), dtype=torch.float64)) for p in grid])
    mean = losses.total_variation(q, center).mean().item()
    assert grid[loss.argmin()].item() == pytest.approx(mean, abs=1.5e-3)


def test_risk_teaches_the_head_alone(case: tuple[Tensor, Tensor, Tensor]) -> None:
    q, center, _ = case
    center, predicted = center.clone().requires_grad_(), torch.full((6,), 0.5, dtype=torch.float64).requires_grad_()
    gradient, of_center = gradients(losses.risk(q, center, predicted), predicted, center)
    assert of_center is None
    assert gradient is not None
    truth = losses.total_variation(q, center.detach())
    assert torch.equal(gradient < 0, truth > 0.5)


@pytest.mark.parametrize("name", BOUND_LOSSES)
def test_gradients_are_finite_where_everything_is_certain(name: str) -> None:
    q = torch.eye(4)[:2]
    center = torch.zeros(2, 4)
    center[:, 0] = 80.0
    radius = torch.full((2, 4), 0.1).requires_grad_()
    loss = BOUND_LOSSES[name](q, center, radius, InterDRO())
    assert loss.isfinite()
    assert torch.autograd.grad(loss, radius)[0].isfinite().all()


@pytest.mark.parametrize("field", ["value", "probability", "kl", "alpha", "dro"])
def test_negative_weights_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match="InterDRO weights must not be negative"):
        InterDRO(**{field: -0.1})


@pytest.mark.parametrize("values", [{"quantile": 0.5}, {"quantile": 1.0}, {"worst": 1.0}, {"worst": -0.1}])
def test_shares_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"InterDRO\.quantile must lie in \(0\.5, 1\) and InterDRO\.worst in"):
        InterDRO(**values)
