"""Bootstrap of the Frechet distance: it is that distance, and its spread is the one of new pictures."""

from __future__ import annotations

import numpy as np
import pytest

from pixdraft.trials.metrics import frechet_distance
from pixdraft.trials.resampling import errors, resampled


@pytest.mark.parametrize("shape", [(12, 5), (6, 9)])
def test_each_draw_is_the_distance_of_its_pictures(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    drawn, reference = rng.normal(size=shape) * 2, rng.normal(size=(40, shape[1])) + 1
    picks = np.random.default_rng(7).integers(shape[0], size=(4, shape[0]))
    expected = [frechet_distance(drawn[pick], reference) for pick in picks]
    np.testing.assert_allclose(resampled({"a": drawn}, reference, 4, seed=7)["a"], expected, rtol=1e-6)


def test_the_spread_is_that_of_new_pictures() -> None:
    rng = np.random.default_rng(2)
    reference = rng.normal(size=(500, 3))
    anew = [frechet_distance(rng.normal(size=(80, 3)) + 1.0, reference) for _ in range(200)]
    found = resampled({"a": rng.normal(size=(80, 3)) + 1.0}, reference, 200)["a"].std()
    assert found == pytest.approx(np.std(anew), rel=0.3)


def test_what_methods_share_leaves_their_ratio() -> None:
    rng = np.random.default_rng(3)
    reference = rng.normal(size=(200, 4))
    base = rng.normal(size=(60, 4)) + 2.0
    found = errors({"base": base, "near": base + 0.01, "far": rng.normal(size=(60, 4)) + 2.0}, reference, "base")
    assert found["base"][1] == 0.0
    assert found["near"][1] < 0.2 * found["far"][1]
    assert found["near"][0] == pytest.approx(found["base"][0], rel=0.1)
