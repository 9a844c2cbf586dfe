"""Contact sheets: the same prompts and seeds by several methods, row under row, to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = 10


def sheet(rows: list[NDArray[np.uint8]], file: Path, columns: int = COLUMNS, zoom: int = 2) -> None:
    """Write a PNG: for every `columns` pictures one line of each method, methods in the given order.

    Args:
        rows: pictures of each method, uint8 [N, H, W, 3], N the same for all.
        file: to write.
        columns: pictures a line.
        zoom: whole-number magnification.
    """
    from PIL import Image

    count, height, width = rows[0].shape[:3]
    lines = -(-count // columns)
    gap = 4  # between the groups of lines that show the same prompts
    step = len(rows) * height + gap
    canvas = np.full((lines * step - gap, columns * width, 3), 255, np.uint8)
    for method, pictures in enumerate(rows):
        for i, picture in enumerate(pictures):
            top, left = (i // columns) * step + method * height, (i % columns) * width
            canvas[top : top + height, left : left + width] = picture
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(canvas.repeat(zoom, 0).repeat(zoom, 1)).save(file)
