from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributions import Floats, distribution, intervals
from pixdraft.decoding.intervals import fuse, log_odds, reachable, uncertainty, width
from pixdraft.decoding.sampling import probabilities, total_variation

TOLERANCE = 1e-12


def closed_form(center: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """The definition, term by term, with 400 digits."""
    lower: list[float] = []
    upper: list[float] = []
    with localcontext() as context:
        context.prec = 400
        c, r = [Decimal(float(v)) for v in center], [Decimal(float(v)) for v in radius]
        e = [v.exp() for v in c]
        for i in range(len(c)):
            rest = sum(e[:i] + e[i + 1 :], Decimal(0))
            for half, bounds in ((-r[i], lower), (r[i], upper)):
                end = (c[i] + half).exp()
                bounds.append(float(end / (end + rest)))
    return np.array(lower), np.array(upper)


@given(intervals())
def test_bounds_hold_the_softmax(drawn: tuple[Floats, Floats]) -> None:
    center, radius = drawn
    lower, upper = fuse(center, radius)
    s = probabilities(center)
    assert (lower >= 0).all()
    assert (upper <= 1).all()
    assert (lower <= s + TOLERANCE).all()
    assert (s <= upper + TOLERANCE).all()
    assert lower.sum() <= 1 + TOLERANCE
    assert upper.sum() >= 1 - TOLERANCE


@given(intervals())
def test_bounds_are_the_closed_form(drawn: tuple[Floats, Floats]) -> None:
    lower, upper = fuse(*drawn)
    exact_lower, exact_upper = closed_form(*drawn)
    np.testing.assert_allclose(lower, exact_lower, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(upper, exact_upper, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("gap", [5.0, 40.0, 700.0, 5000.0])
def test_log_odds_of_a_certain_code_stay_exact(gap: float) -> None:
    # 1 - s underflows long before the log odds do: they are the gap to the only other code
    assert log_odds(np.array([gap, 0.0])) == pytest.approx([gap, -gap], rel=1e-15)
    lower, upper = fuse(np.array([gap, 0.0]), np.full(2, gap))
    assert (lower[0], upper[1]) == (0.5, 0.5)


@given(intervals())
def test_radius_zero_is_the_softmax(drawn: tuple[Floats, Floats]) -> None:
    center, _ = drawn
    lower, upper = fuse(center, np.zeros_like(center))
    np.testing.assert_array_equal(lower, upper)
    np.testing.assert_allclose(lower, probabilities(center), rtol=1e-12)
    assert uncertainty(lower, upper) == 0


def test_a_huge_radius_says_nothing() -> None:
    lower, upper = fuse(np.array([80.0, -80.0, 0.0]), np.full(3, 1e6))
    assert (lower == 0).all()
    assert (upper == 1).all()
    assert width(lower, upper) == 3


def test_forbidden_codes_stay_forbidden() -> None:
    lower, upper = fuse(np.array([-np.inf, 0.0, -np.inf, 1.0]), np.ones(4))
    assert (upper[[0, 2]] == 0).all()
    np.testing.assert_allclose(lower[[1, 3]], fuse(np.array([0.0, 1.0]), np.ones(2))[0])
    lower, upper = fuse(np.array([-np.inf, -900.0]), np.ones(2))
    assert lower.tolist() == upper.tolist() == [0.0, 1.0]


@given(intervals())
def test_reachable_bounds_tighten_and_are_reached(drawn: tuple[Floats, Floats]) -> None:
    center, radius = drawn
    lower, upper = fuse(center, radius)
    low, high = reachable(lower, upper)
    s = probabilities(center)
    assert (low >= lower).all()
    assert (high <= upper).all()
    assert (low <= s + TOLERANCE).all()
    assert (s <= high + TOLERANCE).all()
    again_low, again_high = reachable(low, high)
    np.testing.assert_allclose(again_low, low, atol=TOLERANCE)
    np.testing.assert_allclose(again_high, high, atol=TOLERANCE)
    # with entry i at an end, the others still have room to make the sum 1
    assert (low + (high.sum() - high) >= 1 - TOLERANCE).all()
    assert (high + (low.sum() - low) <= 1 + TOLERANCE).all()


@given(intervals(), st.data())
def test_half_the_width_bounds_total_variation(drawn: tuple[Floats, Floats], data: st.DataObject) -> None:
    lower, upper = fuse(*drawn)

    def inside() -> Floats:
        """A distribution between the bounds: from the lower ends up, in proportion to the room left."""
        toward = data.draw(distribution(len(lower)))
        room = np.minimum(upper - lower, toward)
        room = np.where(room.sum() < 1 - lower.sum(), upper - lower, room)
        return np.asarray(lower + room * (1 - lower.sum()) / max(room.sum(), 1e-300), np.float64)

    p, q = inside(), inside()
    assert total_variation(p, q) <= width(lower, upper) / 2 + 1e-9


def test_uncertainty_is_width_times_population_deviation() -> None:
    lower, upper = np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.4, 0.6])
    assert uncertainty(lower, upper) == pytest.approx(0.6 * np.sqrt(0.02 / 3))


def test_rows_are_independent_and_float32_is_computed_in_float64() -> None:
    random = np.random.default_rng(7)
    center, radius = random.normal(0, 9, (3, 4, 50)).astype(np.float32), random.random((3, 4, 50)).astype(np.float32)
    lower, upper = fuse(center, radius)
    assert lower.dtype == upper.dtype == np.float64
    assert uncertainty(lower, upper).shape == width(lower, upper).shape == (3, 4)
    one_lower, one_upper = fuse(center[2, 1], radius[2, 1])
    np.testing.assert_allclose(lower[2, 1], one_lower, rtol=1e-14)
    np.testing.assert_allclose(upper[2, 1], one_upper, rtol=1e-14)


@pytest.mark.parametrize(
    ("center", "radius", "message"),
    [
        ([1.0, np.nan], [0.0, 0.0], "center"),
        ([np.inf, 0.0], [0.0, 0.0], "center"),
        ([-np.inf, -np.inf], [0.0, 0.0], "center"),
        ([1.0], [0.0], "two logits"),
        ([1.0, 2.0], [0.0, -1e-9], "radius"),
        ([1.0, 2.0], [0.0, np.nan], "radius"),
        ([1.0, 2.0], [0.0, np.inf], "radius"),
        ([1.0, 2.0], [0.0], "equal"),
    ],
)
def test_bad_input_is_named(center: list[float], radius: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fuse(np.array(center), np.array(radius))
