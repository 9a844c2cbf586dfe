"""Sprites: every everyday name in every style as one RGBA picture, rendered once and kept in one file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.training.packages import PACKAGES, STYLES, fetch, icons

SPRITE_SIZE = 128
HELD_OUT_SHARE = 0.05
_HELD_OUT_SEED = 2603


def names() -> list[str]:
    """The everyday names that the bundled model knows, sorted; hyphens stand for spaces."""
    text = resources.files("pixdraft.training").joinpath("names.txt").read_text(encoding="utf-8")
    return sorted(text.split())


def held_out_names() -> list[str]:
    """The 5 % of the names that no training picture ever shows, the same on every machine."""
    every = names()
    order = np.random.Generator(np.random.PCG64(_HELD_OUT_SEED)).permutation(len(every))
    return sorted(every[i] for i in order[: round(HELD_OUT_SHARE * len(every))])


@dataclass(frozen=True)
class Sprites:
    """RGBA pictures by (style, name).

    Attributes:
        names: the names, in the order of axis 1.
        pixels: uint8 [styles, names, SPRITE_SIZE, SPRITE_SIZE, 4], straight alpha.
    """

    names: tuple[str, ...]
    pixels: NDArray[np.uint8]

    def picture(self, style: str, name: str) -> NDArray[np.uint8]:
        """One sprite, uint8 [SPRITE_SIZE, SPRITE_SIZE, 4]."""
        return self.pixels[STYLES.index(style), self.names.index(name)]


def _rasterise(body: str, width: int, height: int) -> NDArray[np.uint8]:
    import resvg_py
    from PIL import Image

    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{SPRITE_SIZE}" height="{SPRITE_SIZE}">{body}</svg>'
    )
    png = resvg_py.svg_to_bytes(svg_string=svg, width=SPRITE_SIZE, height=SPRITE_SIZE)
    return np.asarray(Image.open(io.BytesIO(bytes(png))).convert("RGBA"), dtype=np.uint8)


def render(folder: Path) -> Iterator[tuple[str, str, NDArray[np.uint8]]]:
    """Render every (style, name, sprite) from the packages, which are fetched into `folder` if need be."""
    for package in PACKAGES:
        data = icons(fetch(package, folder))
        for name in names():
            icon = data["icons"][name]
            width = icon.get("width", data.get("width", 16))
            height = icon.get("height", data.get("height", 16))
            yield package.style, name, _rasterise(icon["body"], width, height)


def build(folder: Path) -> Path:
    """Render all sprites into ``folder/sprites.npz`` (written beside, then renamed) and return its path."""
    path = folder / "sprites.npz"
    every = names()
    pixels = np.zeros((len(STYLES), len(every), SPRITE_SIZE, SPRITE_SIZE, 4), np.uint8)
    for style, name, sprite in render(folder):
        pixels[STYLES.index(style), every.index(name)] = sprite
    beside = folder / "sprites.part.npz"
    np.savez_compressed(beside, names=np.array(every), pixels=pixels)
    os.replace(beside, path)
    return path


def load(folder: Path) -> Sprites:
    """Read the sprites that `build` wrote.

    Raises:
        FileNotFoundError: there are none in `folder`.
        ValueError: they cannot be read.
    """
    path = folder / "sprites.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `pixdraft train data` first")
    try:
        data = read_arrays(path, ("names", "pixels"))
        return Sprites(tuple(str(n) for n in data["names"]), data["pixels"])
    except (BundleError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: delete it and run `pixdraft train data` again") from error
