"""Scenes without end: an emoji at a random size and place on a named ground, with the caption that says so.

A target trained on fixed pictures memorises them, and then there is nothing to speculate on. No two scenes are
alike, smooth grounds hold many interchangeable codes as photographs do, and every scene is a function of
(seed, index) alone: a run can stop and resume anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixdraft.training.packages import STYLES
from pixdraft.training.sprites import Sprites

PICTURE_SIZE = 64

GROUNDS: dict[str, tuple[int, int, int]] = {
    "white": (250, 250, 250),
    "grey": (150, 152, 156),
    "black": (32, 34, 40),
    "red": (214, 58, 56),
    "orange": (240, 140, 50),
    "yellow": (247, 214, 84),
    "green": (84, 168, 88),
    "mint": (176, 228, 200),
    "teal": (44, 140, 142),
    "sky": (142, 204, 242),
    "blue": (58, 104, 200),
    "navy": (34, 48, 96),
    "purple": (132, 84, 176),
    "pink": (244, 170, 196),
    "brown": (126, 88, 62),
    "cream": (246, 234, 206),
}

# Pictures that would read wrongly in a mirror: they hold letters, figures or notes.
NOT_MIRRORED = frozenset({"accordion", "floppy-disk", "radio", "red-envelope", "telephone", "watch"})


@dataclass(frozen=True)
class Scene:
    """What is on one picture. The caption names the style, the emoji and the ground."""

    style: str
    name: str
    ground: str
    scale: float  # of the picture's side
    left: float  # 0 .. 1 of the free room
    top: float
    mirrored: bool
    tilt: tuple[float, float]  # the ground's gradient: change of lightness from edge to edge, x and y
    grain: float  # standard deviation, in 8-bit steps
    grain_seed: int

    @property
    def caption(self) -> str:
        """The prompt that asks for this scene, for example ``noto red apple on sky``."""
        return caption(self.style, self.name, self.ground)


@dataclass(frozen=True)
class Ranges:
    """What a stream draws a scene's measures from, evenly.

    Attributes:
        scale: of the emoji, smallest and largest.
        tilt: largest gradient, either way.
        grain: largest standard deviation.
    """

    scale: tuple[float, float] = (0.75, 1.0)
    tilt: float = 0.15
    grain: float = 1.0


# Grain and small emoji teach a tokenizer and a beginning target much; later they only cost both models bits.
ROUGH = Ranges(scale=(0.66, 1.0), tilt=0.25, grain=3.0)


def caption(style: str, name: str, ground: str) -> str:
    """Caption of a scene: style, name with spaces for hyphens, ground."""
    return f"{style} {name.replace('-', ' ')} on {ground}"


def draw(scene: Scene, sprites: Sprites) -> NDArray[np.uint8]:
    """Render a scene, uint8 [PICTURE_SIZE, PICTURE_SIZE, 3]."""
    from PIL import Image

    side = max(8, round(scene.scale * PICTURE_SIZE))
    image = Image.fromarray(sprites.picture(scene.style, scene.name)).convert("RGBa")  # premultiplied: no halo
    sprite = np.asarray(image.resize((side, side), Image.Resampling.LANCZOS), dtype=np.float32)
    if scene.mirrored:
        sprite = sprite[:, ::-1]
    ramp = np.linspace(-0.5, 0.5, PICTURE_SIZE, dtype=np.float32)
    light = ramp[None, :] * scene.tilt[0] + ramp[:, None] * scene.tilt[1]
    canvas = np.array(GROUNDS[scene.ground], np.float32) * (1.0 + light[..., None])
    free = PICTURE_SIZE - side
    top, left = round(scene.top * free), round(scene.left * free)
    window = canvas[top : top + side, left : left + side]
    alpha = sprite[..., 3:] / 255.0
    canvas[top : top + side, left : left + side] = sprite[..., :3] + window * (1.0 - alpha)
    if scene.grain > 0:
        noise = np.random.Generator(np.random.PCG64(scene.grain_seed)).standard_normal(canvas.shape[:2])
        canvas = canvas + scene.grain * noise[..., None].astype(np.float32)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


class SceneStream:
    """An endless, seeded supply of scenes over the given names.

    Args:
        sprites: the pictures.
        names: the names to draw from (training names, or the held-out ones).
        seed: two streams of one seed and the same names are equal; seeds of training and of evaluation differ.
        ranges: of the scenes' measures.
    """

    def __init__(self, sprites: Sprites, names: list[str], seed: int, ranges: Ranges | None = None) -> None:
        if not names:
            raise ValueError("names is empty: give at least one name to draw")
        self.sprites = sprites
        self.names = names
        self.seed = seed
        self.ranges = ranges or Ranges()

    def scene(self, index: int) -> Scene:
        """The scene at `index`, independent of all others."""
        rng = np.random.Generator(np.random.PCG64([self.seed, index]))
        name = self.names[int(rng.integers(len(self.names)))]
        most = self.ranges.tilt
        return Scene(
            style=STYLES[int(rng.integers(len(STYLES)))],
            name=name,
            ground=list(GROUNDS)[int(rng.integers(len(GROUNDS)))],
            scale=float(rng.uniform(*self.ranges.scale)),
            left=float(rng.uniform()),
            top=float(rng.uniform()),
            mirrored=bool(rng.uniform() < 0.5) and name not in NOT_MIRRORED,
            tilt=(float(rng.uniform(-most, most)), float(rng.uniform(-most, most))),
            grain=float(rng.uniform(0.0, self.ranges.grain)),
            grain_seed=int(rng.integers(2**31)),
        )

    def batch(self, start: int, count: int) -> tuple[NDArray[np.uint8], list[Scene]]:
        """Scenes `start` .. `start + count` as uint8 [count, PICTURE_SIZE, PICTURE_SIZE, 3] and their facts."""
        scenes = [self.scene(i) for i in range(start, start + count)]
        return np.stack([draw(s, self.sprites) for s in scenes]), scenes
