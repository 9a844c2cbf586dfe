"""The map of a relaxation: the picture, and beside it entropy, total variation and how every token came to stand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.files import written_beside
from pixdraft.trials.metrics import Array
from pixdraft.trials.relaxation import End, Relaxed

PANEL, GAP, HEAD, FOOT = 320, 16, 30, 96  # pixels: a panel's side, between panels, above and below them
# Dark to light, and in that order also without colour; after viridis.
SCALE = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float64)
NOTHING = (200, 200, 200)
COLOURS = {
    End.CORRECTED: (213, 94, 0),
    End.STRICT: (0, 114, 178),
    End.RELAXED: (240, 228, 66),
    End.BONUS: NOTHING,
}
MEANINGS = {
    End.CORRECTED: "draft rejected",
    End.STRICT: "draft stood, by the lossless rule too",
    End.RELAXED: "draft stood by the relaxation alone",
    End.BONUS: "no draft was judged",
}


def heat(values: Array, low: float, high: float) -> NDArray[np.uint8]:
    """Colours of values between two ends, uint8 [..., 3]; grey where a value is NaN."""
    place = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0) * (len(SCALE) - 1)
    known = ~np.isnan(place)
    place = np.where(known, place, 0.0)
    channels = [np.interp(place, np.arange(len(SCALE)), SCALE[:, i]) for i in range(3)]
    return np.where(known[..., None], np.rint(np.stack(channels, -1)), NOTHING).astype(np.uint8)


def draw_map(picture: Relaxed, title: str, file: Path) -> None:
    """Write the map as a PNG.

    Args:
        picture: to show.
        title: over it.
        file: to write.

    Raises:
        OutputError: the place cannot be written to.
    """
    from PIL import Image, ImageDraw, ImageFont

    top = float(picture.entropy.max())
    ends = np.array([COLOURS[End(end)] for end in picture.end], np.uint8)
    panels = {
        title: picture.pixels,
        "entropy of the target, nats": _grid(heat(picture.entropy, 0.0, top)),
        "TV between draft and target": _grid(heat(picture.tv, 0.0, 1.0)),
        f"how tokens came to stand ({picture.passes} passes)": _grid(ends),
    }
    canvas = Image.new("RGB", (len(panels) * (PANEL + GAP) + GAP, HEAD + PANEL + FOOT), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(13)
    lefts = [GAP + i * (PANEL + GAP) for i in range(len(panels))]
    below = HEAD + PANEL + 10
    for left, (words, pixels) in zip(lefts, panels.items(), strict=True):
        canvas.paste(Image.fromarray(pixels).resize((PANEL, PANEL), Image.Resampling.NEAREST), (left, HEAD))
        draw.text((left, HEAD - 6), words, "black", font, anchor="ls")
    for left, high in ((lefts[1], top), (lefts[2], 1.0)):
        bar = heat(np.linspace(0.0, 1.0, PANEL)[None].repeat(12, 0), 0.0, 1.0)
        canvas.paste(Image.fromarray(bar), (left, below))
        draw.text((left, below + 16), "0", "black", font)
        draw.text((left + PANEL, below + 16), f"{high:.3g}", "black", font, anchor="ra")
    counts = Counter(picture.end.tolist())
    for line, (end, meaning) in enumerate(MEANINGS.items()):
        y = below + 20 * line
        draw.rectangle((lefts[3], y, lefts[3] + 12, y + 12), COLOURS[end], "black")
        draw.text((lefts[3] + 20, y - 2), f"{meaning}: {counts[end]}", "black", font)
    with written_beside(file) as beside:
        canvas.save(beside, format="PNG")


def _grid(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colours of T tokens as a square, uint8 [side, side, 3]."""
    side = round(len(cells) ** 0.5)
    return cells.reshape(side, side, 3)
