"""One number that sees what averages hide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pixdraft.export.gate.distance import distance, psnr
from pixdraft.runtime.backends import DraftOutput

RNG = np.random.default_rng(1)


def output(rows: int = 20) -> DraftOutput:
    rng = np.random.default_rng(2)
    shapes = ((rows, 64), (rows, 64), (rows, 16), (rows,), (rows, 8))
    return DraftOutput(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def changed(name: str, index: object, by: float) -> DraftOutput:
    row = output()
    part = getattr(row, name).copy()
    part[index] += by
    return row._replace(**{name: part})


def test_equal_runs_are_at_no_distance() -> None:
    assert distance(output(), output())[0] == 0.0


def test_a_wrong_row_and_a_wrong_column_count_in_full() -> None:
    for index in (3, (slice(None), 5)):
        value, where = distance(changed("center", index, 1.0), output())
        assert where == "center"
        assert value == pytest.approx(1.0, rel=0.1), "as large as the logits vary, though all others are right"


def test_noise_everywhere_counts_as_what_it_is() -> None:
    row = output()
    noisy = row._replace(feature=row.feature + RNG.normal(scale=0.01, size=row.feature.shape).astype(np.float32))
    assert 0.008 < distance(noisy, row)[0] < 0.03


def test_it_is_relative() -> None:
    a, b = changed("message", 2, 0.5), output()
    wide = [row._replace(message=row.message * 1000) for row in (a, b)]
    assert distance(*wide)[0] == pytest.approx(distance(a, b)[0], rel=1e-4)


def test_an_offset_common_to_all_logits_of_the_reference_hides_nothing() -> None:
    a, b = (row._replace(center=row.center + 1000) for row in (changed("center", 3, 1.0), output()))
    assert distance(a, b)[0] == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", DraftOutput._fields)
def test_no_number_is_no_distance(name: str, bad: float) -> None:
    value, where = distance(changed(name, 0, bad), output())
    assert math.isnan(value)
    assert where == name
    assert math.isnan(distance(output(), changed(name, 0, bad))[0])


def test_another_shape_is_infinitely_far() -> None:
    assert distance(output(19), output())[0] == math.inf


def test_psnr() -> None:
    a = np.full((4, 4, 3), 100, np.uint8)
    assert psnr(a, a) == 99.0
    assert psnr(a, a + np.uint8(1)) == pytest.approx(48.13, abs=0.01)
    assert psnr(a, np.full((8, 8, 3), 100, np.uint8)) == 0.0
    assert psnr(np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)) == 0.0
