"""Pictures as PNG files, and the one that lays over a picture who decided each of its tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.files import written_beside
from pixdraft.runtime.picture import Decision

if TYPE_CHECKING:
    from PIL.Image import Image

# Okabe and Ito's palette, which people of every colour vision tell apart. Kept tokens, mostly the many, have no mark.
COLOURS: dict[Decision, tuple[int, int, int]] = {
    Decision.INJECTED: (0, 114, 178),
    Decision.ACCEPTED: (0, 158, 115),
    Decision.CORRECTED: (213, 94, 0),
    Decision.BONUS: (86, 180, 233),
    Decision.CLOUD: (240, 228, 66),
    Decision.ALONE: (204, 121, 167),
}
MEANINGS: dict[Decision, str] = {
    Decision.INJECTED: "injected by the cloud",
    Decision.KEPT: "kept by the device, unmarked",
    Decision.ACCEPTED: "asked, accepted",
    Decision.CORRECTED: "asked, corrected",
    Decision.BONUS: "bonus of the cloud",
    Decision.CLOUD: "drawn by the cloud",
    Decision.ALONE: "kept, cloud away",
}
_TINT = 0.30
_ROW = 22  # pixels of a line of the legend


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Keep pixels, uint8 [H, W, 3], as a PNG (written beside, then renamed).

    Raises:
        OutputError: the place cannot be written to.
    """
    with written_beside(path) as beside:
        _image(pixels).save(beside, format="PNG")


def overlay(pixels: NDArray[np.uint8], decisions: Sequence[Decision], scale: int = 8) -> NDArray[np.uint8]:
    """The picture enlarged, each token's cell framed and tinted by its decision, a legend with counts below.

    A kept token's cell is left clear, and has no colour in the legend; a corrected one is crossed out as well, so that
    it reads without colour.

    Args:
        pixels: uint8 [H, W, 3].
        decisions: T of them, row by row over a square grid.
        scale: pixels a pixel, nearest neighbour.

    Returns:
        uint8 [scale * H + legend, scale * W, 3].

    Raises:
        ValueError: T is no square that divides the picture, or scale is below 1.
    """
    from PIL import ImageDraw

    height, width, _ = pixels.shape
    side = math.isqrt(len(decisions))
    if scale < 1 or side < 1 or side**2 != len(decisions) or height % side or width % side:
        raise ValueError(f"{len(decisions)} tokens and scale {scale} lay no square grid over {width} x {height} pixels")
    big = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    down, across = height // side * scale, width // side * scale
    tinted = big.astype(np.float32)
    for i, decision in enumerate(decisions):
        if decision in COLOURS:
            cell = tinted[i // side * down :, i % side * across :][:down, :across]
            cell += _TINT * (np.array(COLOURS[decision], np.float32) - cell)
    seen = [(decision, count) for decision in Decision if (count := Counter(decisions)[decision])]
    columns = max(1, width * scale // 190)
    legend = np.full((_ROW * -(-len(seen) // columns) + 6, width * scale, 3), 255, np.uint8)
    image = _image(np.concatenate([np.rint(tinted).astype(np.uint8), legend]))
    draw = ImageDraw.Draw(image)
    for i, decision in enumerate(decisions):
        if decision in COLOURS:
            top, left = i // side * down, i % side * across
            _frame_cell(draw, (left, top, left + across - 1, top + down - 1), decision)
    for i, (decision, count) in enumerate(seen):
        left, top = i % columns * (width * scale // columns) + 6, height * scale + i // columns * _ROW + 6
        if decision in COLOURS:
            draw.rectangle((left, top, left + 13, top + 13), fill=COLOURS[decision], outline=(60, 60, 60))
            left += 20
        draw.text((left, top), f"{MEANINGS[decision]}: {count}", fill=(0, 0, 0))
    return np.asarray(image)


def _frame_cell(draw: Any, box: tuple[int, int, int, int], decision: Decision) -> None:
    left, top, right, bottom = box
    draw.rectangle(box, outline=COLOURS[decision], width=max(1, (right - left) // 12))
    if decision is Decision.CORRECTED:
        draw.line((left, bottom, right, top), fill=COLOURS[decision], width=max(1, (right - left) // 12))


def _image(pixels: NDArray[np.uint8]) -> Image:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(pixels, np.uint8))
