"""The plot: round ticks, the front of the best, and a picture with a dot where a point belongs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pixdraft.trials.plots import BEST, FRAME, OTHERS, SIZE, Point, axis, colours_of, front, pareto


@given(st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 100), min_size=1, max_size=6))
def test_an_axis_holds_its_values_between_round_ticks(values: list[float]) -> None:
    found = axis("x", values)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert found.low - slack <= min(values)
    assert max(values) <= found.high + slack
    assert 2 <= len(found.ticks) <= 9
    assert found.low < found.high
    assert found.at(found.low, 10, 20) == 10
    assert found.at(found.high, 10, 20) == pytest.approx(20)


def test_ticks_are_round() -> None:
    assert axis("x", [61.0, 255.9]).ticks == (50, 100, 150, 200, 250, 300)
    assert axis("x", [0.312, 0.339]).ticks == pytest.approx((0.31, 0.315, 0.32, 0.325, 0.33, 0.335, 0.34))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_no_point_of_the_front_is_beaten(places: list[tuple[int, int]]) -> None:
    points = [Point(str(i), *place) for i, place in enumerate(places)]
    best = front(points)
    assert best
    for point in best:
        assert not [p for p in points if p.cost <= point.cost and p.distance < point.distance]
    for point in points:
        assert [b for b in best if b.cost <= point.cost and b.distance <= point.distance]


def test_the_plot_has_a_dot_where_a_point_belongs(tmp_path: Path) -> None:
    points = [Point("AR", 250.0, 100.0), Point("SJD", 150.0, 100.0), Point("CSD", 50.0, 150.0)]
    file = tmp_path / "new" / "plot.png"
    pareto(points, "Title", "steps", "Frechet distance", file)
    with Image.open(file) as image:
        assert image.size == SIZE
        pixels = np.asarray(image)
    left, top, right, bottom = FRAME
    assert tuple(pixels[bottom, right]) == OTHERS[0]  # AR: the right end of steps, the lower of distance
    assert tuple(pixels[bottom, (left + right) // 2]) == BEST
    assert tuple(pixels[top, left]) == BEST
    assert [file.name for file in file.parent.iterdir()] == ["plot.png"]


def test_only_methods_of_the_front_share_a_colour() -> None:
    points = [Point("a", 1.0, 2.0), Point("b", 2.0, 1.0), *(Point(f"m{i}", 3.0 + i, 3.0) for i in range(30))]
    colours = colours_of(points, front(points))
    assert colours[:2] == [BEST, BEST]
    assert len({BEST, *colours[2:]}) == 31


def test_one_point_is_a_plot_too(tmp_path: Path) -> None:
    pareto([Point("only", 3.0, 0.0)], "t", "x", "y", tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 0
