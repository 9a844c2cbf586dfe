"""The picture of the decisions, and PNG files."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixdraft.runtime.errors import OutputError
from pixdraft.runtime.overlay import COLOURS, MEANINGS, overlay, save_png
from pixdraft.runtime.picture import Decision

PIXELS = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)


def test_every_decision_has_a_colour_and_a_meaning_of_its_own() -> None:
    assert set(COLOURS) | {Decision.KEPT} == set(MEANINGS) == set(Decision)
    assert Decision.KEPT not in COLOURS
    assert MEANINGS[Decision.KEPT].endswith("unmarked")
    for a, b in combinations(COLOURS.values(), 2):
        assert np.abs(np.subtract(a, b)).max() > 40


def test_kept_cells_stay_clear_and_others_are_tinted() -> None:
    decisions = [Decision.KEPT] * 256
    decisions[17] = Decision.ACCEPTED  # row 1, column 1
    shown = overlay(PIXELS, decisions, scale=8)
    big = PIXELS.repeat(8, 0).repeat(8, 1)
    changed = (shown[:512] != big).any(axis=-1)
    assert changed[32:64, 32:64].mean() > 0.9
    changed[32:64, 32:64] = False
    assert not changed.any()
    assert tuple(shown[32, 32]) == COLOURS[Decision.ACCEPTED]
    assert shown.shape[0] > 512
    assert shown.shape[1] == 512


def test_the_legend_names_only_what_is_there() -> None:
    def colours(decisions: list[Decision]) -> set[tuple[int, ...]]:
        return {tuple(pixel) for pixel in overlay(PIXELS, decisions)[512:].reshape(-1, 3).tolist()}

    two = colours([Decision.KEPT] * 255 + [Decision.CORRECTED])
    assert COLOURS[Decision.CORRECTED] in two
    assert COLOURS[Decision.BONUS] not in two
    assert {c for c in colours([Decision.KEPT] * 256) if max(c) - min(c) > 0} == set()
    every = colours([*Decision] * 36 + [Decision.KEPT] * 4)
    assert set(COLOURS.values()) <= every


def test_a_corrected_cell_reads_without_colour() -> None:
    accepted = overlay(PIXELS, [Decision.ACCEPTED] * 256)[:512]
    corrected = overlay(PIXELS, [Decision.CORRECTED] * 256)[:512]
    middle = 16  # of the first cell's diagonal
    assert tuple(corrected[middle, 31 - middle]) == COLOURS[Decision.CORRECTED]
    assert tuple(accepted[middle, 31 - middle]) != COLOURS[Decision.ACCEPTED]


@pytest.mark.parametrize(("tokens", "scale"), [(0, 8), (255, 8), (9, 8), (256, 0)])
def test_what_lays_no_grid_is_refused(tokens: int, scale: int) -> None:
    with pytest.raises(ValueError, match="lay no square grid over 64 x 64 pixels"):
        overlay(PIXELS, [Decision.KEPT] * tokens, scale)


def test_a_png_comes_back_and_leaves_nothing_beside(tmp_path: Path) -> None:
    save_png(tmp_path / "a.png", PIXELS)
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        np.testing.assert_array_equal(np.asarray(image), PIXELS)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(OutputError, match="choose another place"):
        save_png(tmp_path / "none" / "a.png", PIXELS)
