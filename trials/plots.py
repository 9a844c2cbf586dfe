"""A plot of points with numbers at them and a list of what they are, as a PNG, by Pillow alone."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixdraft.runtime.files import written_beside

SIZE = (1120, 720)
FRAME = (90, 50, 700, 640)  # left, top, right, bottom of the plot's area
INK, GRID, LINE = (30, 30, 30), (225, 225, 225), (213, 94, 0)
BEST = (213, 94, 0)
# One for each method that is not of the best: Okabe and Ito's others first, which every eye tells apart.
OTHERS = ((0, 114, 178), (0, 158, 115), (204, 121, 167), (86, 180, 233), (240, 228, 66), (90, 90, 90))
TICKS = 6


@dataclass(frozen=True)
class Point:
    """What one method costs and how far its pictures are: both better when smaller."""

    label: str
    cost: float
    distance: float


@dataclass(frozen=True)
class Axis:
    """One direction of the plot.

    Attributes:
        title: along it.
        low, high: its ends.
        ticks: values with a line and a number.
    """

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float, start: float, end: float) -> float:
        """Pixel of a value, `start` being the pixel of `low`."""
        return start + (value - self.low) / (self.high - self.low) * (end - start)


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both directions, cheapest first."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, p.distance)):
        if not best or point.distance < best[-1].distance:
            best.append(point)
    return best


def axis(title: str, values: Sequence[float]) -> Axis:
    """An axis with round ticks that holds all values."""
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(spread / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if spread / (factor * step) <= TICKS)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return Axis(title, first * step, last * step, tuple(k * step for k in range(first, last + 1)))


def pareto(points: Sequence[Point], title: str, cost: str, distance: str, file: Path) -> None:
    """Draw distance over cost, with the line of the points that no other beats.

    Args:
        points: one a method, at least one.
        title: over the plot.
        cost, distance: titles of the axes.
        file: PNG to write.

    Raises:
        OutputError: the place cannot be written to.
    """
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(image)
    plain, small = ImageFont.load_default(16), ImageFont.load_default(13)
    across, up = axis(cost, [p.cost for p in points]), axis(distance, [p.distance for p in points])
    left, top, right, bottom = FRAME
    draw.text((left, 16), title, INK, plain)
    for value in across.ticks:
        x = across.at(value, left, right)
        draw.line((x, top, x, bottom), GRID)
        draw.text((x, bottom + 8), f"{value:g}", INK, small, anchor="ma")
    for value in up.ticks:
        y = up.at(value, bottom, top)
        draw.line((left, y, right, y), GRID)
        draw.text((left - 8, y), f"{value:g}", INK, small, anchor="rm")
    draw.rectangle(FRAME, outline=INK)
    draw.text(((left + right) / 2, bottom + 34), cost, INK, plain, anchor="ma")
    _upright(image, distance, plain, (14, (top + bottom) // 2))
    places = [(across.at(p.cost, left, right), up.at(p.distance, bottom, top)) for p in points]
    best = front(points)
    colours = colours_of(points, best)
    draw.line([places[points.index(p)] for p in best], LINE, 2)
    for i, (point, (x, y), colour) in enumerate(zip(points, places, colours, strict=True)):
        draw.ellipse((x - 5, y - 5, x + 5, y + 5), colour, "white")
        draw.text((x + 7, y - 6), str(i + 1), INK, small, anchor="ls")
        line = top + 22 * i
        draw.ellipse((right + 24, line, right + 34, line + 10), colour)
        draw.text((right + 42, line + 5), f"{i + 1}  {point.label}", INK, small, anchor="lm")
        numbers = f"{point.cost:.4g}, {point.distance:.4g}"
        draw.text((SIZE[0] - 14, line + 5), numbers, INK, small, anchor="rm")
    draw.ellipse((right + 24, bottom - 10, right + 34, bottom), BEST)
    draw.text((right + 42, bottom - 5), "no other beats it in both directions", INK, small, anchor="lm")
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(file) as beside:
        image.save(beside, format="PNG")


def colours_of(points: Sequence[Point], best: Sequence[Point]) -> list[tuple[int, int, int]]:
    """The colour of each point: one for the front, and one of its own for each that is beaten."""
    colours, beaten = [], 0
    for point in points:
        if point in best:
            colours.append(BEST)
            continue
        if beaten < len(OTHERS):
            colours.append(OTHERS[beaten])
        else:  # hues a golden section apart never meet
            red, green, blue = colorsys.hsv_to_rgb(beaten * 0.618034 % 1, 0.55, 0.65)
            colours.append((round(red * 255), round(green * 255), round(blue * 255)))
        beaten += 1
    return colours


def _upright(image: Any, words: str, font: Any, centre: tuple[int, int]) -> None:
    """Write along the left side, from the bottom up."""
    from PIL import Image, ImageDraw

    width, height = (math.ceil(side) for side in font.getbbox(words)[2:])
    strip = Image.new("RGB", (width, height + 4), "white")
    ImageDraw.Draw(strip).text((0, 0), words, INK, font)
    turned = strip.rotate(90, expand=True)
    image.paste(turned, (centre[0], centre[1] - width // 2))
