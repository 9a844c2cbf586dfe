"""Scenes: a function of (seed, index), no two alike, and what is said of one is what is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from pixdraft.training.packages import STYLES
from pixdraft.training.scenes import GROUNDS, NOT_MIRRORED, PICTURE_SIZE, Scene, SceneStream, draw
from pixdraft.training.sprites import Sprites, names

PLAIN = Scene("noto", "cat", "sky", 0.75, 0.0, 1.0, False, (0.0, 0.0), 0.0, 0)


def one_sprite(pixels: NDArray[np.uint8]) -> Sprites:
    return Sprites(("cat",), np.broadcast_to(pixels, (len(STYLES), 1, *pixels.shape)))


def test_a_scene_is_a_function_of_seed_and_index(sprites: Sprites) -> None:
    one, other = SceneStream(sprites, names(), 5), SceneStream(sprites, names(), 5)
    backwards = [other.scene(i) for i in reversed(range(20))][::-1]
    assert [one.scene(i) for i in range(20)] == backwards
    pixels, scenes = one.batch(3, 4)
    assert scenes == backwards[3:7]
    assert pixels.shape == (4, PICTURE_SIZE, PICTURE_SIZE, 3)
    assert pixels.dtype == np.uint8
    for picture, scene in zip(pixels, scenes, strict=True):
        np.testing.assert_array_equal(picture, draw(scene, sprites))
    assert one.scene(0) != SceneStream(sprites, names(), 6).scene(0)


def test_no_two_are_alike(sprites: Sprites) -> None:
    stream = SceneStream(sprites, ["cat"], 1)
    assert len({stream.scene(i) for i in range(500)}) == 500
    pixels, _ = stream.batch(0, 40)
    assert len({picture.tobytes() for picture in pixels}) == 40


def test_a_stream_shows_everything(sprites: Sprites) -> None:
    scenes = [SceneStream(sprites, ["cat", "dog", "clock"], 2).scene(i) for i in range(400)]
    assert {s.style for s in scenes} == set(STYLES)
    assert {s.ground for s in scenes} == set(GROUNDS)
    assert {s.name for s in scenes} == {"cat", "dog", "clock"}
    assert {s.mirrored for s in scenes if s.name == "cat"} == {True, False}
    assert all(0.66 <= s.scale <= 1.0 for s in scenes)


def test_letters_and_figures_are_never_mirrored(sprites: Sprites) -> None:
    assert set(names()) >= NOT_MIRRORED
    stream = SceneStream(sprites, sorted(NOT_MIRRORED), 3)
    assert not any(stream.scene(i).mirrored for i in range(100))


def test_a_stream_needs_names(sprites: Sprites) -> None:
    with pytest.raises(ValueError, match="names is empty: give at least one name"):
        SceneStream(sprites, [], 1)


def test_the_caption_says_style_name_and_ground() -> None:
    assert replace(PLAIN, name="red-apple").caption == "noto red apple on sky"


def test_an_opaque_sprite_lies_where_the_scene_says() -> None:
    picture = draw(PLAIN, one_sprite(np.full((8, 8, 4), (200, 10, 20, 255), np.uint8)))
    assert (picture[16:, :48] == (200, 10, 20)).all()  # scale 0.75: 48 pixels; left 0 and top 1 of the 16 left over
    assert (picture[:16] == GROUNDS["sky"]).all()
    assert (picture[:, 48:] == GROUNDS["sky"]).all()


def test_a_transparent_sprite_leaves_no_trace_of_its_colour() -> None:
    half = np.zeros((8, 8, 4), np.uint8)
    half[..., 1] = 255  # green wherever it is transparent
    half[:, :4] = (255, 0, 0, 255)
    picture = draw(replace(PLAIN, ground="black", scale=1.0), one_sprite(half)).astype(int)
    assert (picture[..., 1] <= GROUNDS["black"][1]).all()
    assert (picture[:, :8, 0] == 255).all()
    assert (picture[:, 56:] == GROUNDS["black"]).all()


def test_mirroring_turns_left_and_right() -> None:
    rng = np.random.default_rng(1)
    pixels = one_sprite(rng.integers(0, 256, (8, 8, 4), dtype=np.uint8))
    whole = replace(PLAIN, scale=1.0)
    mirrored = draw(replace(whole, mirrored=True), pixels)
    np.testing.assert_array_equal(mirrored, draw(whole, pixels)[:, ::-1])


def test_the_ground_has_a_gradient_and_grain() -> None:
    nothing = one_sprite(np.zeros((8, 8, 4), np.uint8))
    ground = draw(replace(PLAIN, ground="grey", tilt=(0.2, 0.0)), nothing).astype(int)
    assert (np.diff(ground[:, :, 0], axis=1) >= 0).all()
    assert (ground[0] == ground[-1]).all()
    np.testing.assert_allclose(ground[0, [0, -1], 0], [150 * 0.9, 150 * 1.1], atol=1)
    grain = draw(replace(PLAIN, ground="grey", grain=2.0, grain_seed=4), nothing).astype(int) - GROUNDS["grey"]
    assert 1.8 < grain[..., 0].std() < 2.2
    assert (grain == grain[..., :1]).all()  # lightness only
    again = draw(replace(PLAIN, ground="grey", grain=2.0, grain_seed=5), nothing).astype(int) - GROUNDS["grey"]
    assert (grain != again).any()
