"""A comparison as a table of text or Markdown; a column that no line fills is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: over it.
        key: of its value in a row.
        show: the value as text.
        left: whether it stands to the left, as text does.
    """

    title: str
    key: str
    show: Callable[[Any], str] = str
    left: bool = False


def number(digits: int) -> Callable[[float], str]:
    """Shows a number with so many decimals, thousands apart."""
    return lambda value: f"{value:,.{digits}f}"


def percent(value: float) -> str:
    """Shows a share."""
    return f"{value:.1%}"


def kilobytes(value: float) -> str:
    """Shows bytes as thousands of them."""
    return f"{value / 1000:,.1f}"


COLUMNS = (
    Column("method", "method", left=True),
    Column("steps", "steps", number(1)),
    Column("fewer", "step_x", number(2)),
    Column("tokens/step", "tokens_per_step", number(2)),
    Column("s", "seconds_median", number(2)),
    Column("faster", "latency_x", number(2)),
    Column("ms/pass", "pass_ms", number(1)),
    Column("asked", "asked_share", percent),
    Column("stood", "accepted_share", percent),
    Column("cloud", "cloud_share", percent),
    Column("requests", "frames_up", number(1)),
    Column("kB up", "bytes_up", kilobytes),
    Column("kB down", "bytes_down", kilobytes),
    Column("audit", "audit", percent),
    Column("Frechet", "frechet", number(1)),
    Column("±", "frechet_error", number(1)),
    Column("of base", "frechet_x", number(3)),
    Column("±", "frechet_x_error", number(3)),
    Column("top 1", "retrieval_1", percent),
    Column("top 10", "retrieval_10", percent),
    Column("precision", "precision", number(3)),
    Column("recall", "recall", number(3)),
    Column("F1", "f1", number(3)),
    Column("FID", "fid", number(2)),
    Column("±", "fid_error", number(2)),
    Column("FID of base", "fid_x", number(3)),
    Column("±", "fid_x_error", number(3)),
    Column("FID F1", "fid_f1", number(3)),
    Column("CLIP", "clip", number(2)),
    Column("HPSv2", "hpsv2", number(2)),
)

PAPERS = (
    Column("method", "method", left=True),
    Column("in the paper", "model", left=True),
    Column("fewer steps", "paper_step_x", number(2)),
    Column("here", "step_x", number(2)),
    Column("faster", "paper_latency_x", number(2)),
    Column("here", "latency_x", number(2)),
    Column("cloud", "paper_cloud_share", percent),
    Column("here", "cloud_share", percent),
    Column("FID", "paper_fid", number(2)),
    Column("of base", "paper_fid_x", number(3)),
    Column("here", "distance_x", number(3)),
    Column("CLIP", "paper_clip", number(2)),
    Column("here", "clip", number(2)),
    Column("HPSv2", "paper_hpsv2", number(2)),
    Column("here", "hpsv2", number(2)),
    Column("F1", "paper_f1", number(3)),
    Column("here", "f1", number(3)),
)


def text(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Columns of fixed width, for a terminal wide enough or a file."""
    used, cells = _cells(rows, columns)
    widths = [max(len(line[i]) for line in cells) for i in range(len(used))]
    rule = ["-" * width for width in widths]
    aligned = [[_pad(*cell) for cell in zip(line, widths, used, strict=True)] for line in (cells[0], rule, *cells[1:])]
    return "\n".join("  ".join(line).rstrip() for line in aligned) + "\n"


def markdown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """A table of Markdown."""
    used, cells = _cells(rows, columns)
    border = ["---" if column.left else "--:" for column in used]
    lines = (cells[0], border, *([cell.replace("|", "\\|") for cell in line] for line in cells[1:]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[list[Column], list[list[str]]]:
    """The columns with something in them, and their titles and cells."""
    used = [column for column in columns if any(row.get(column.key) is not None for row in rows)]
    body = [[_cell(row.get(column.key), column) for column in used] for row in rows]
    return used, [[column.title for column in used], *body]


def _cell(value: Any, column: Column) -> str:
    return "" if value is None else column.show(value)


def _pad(word: str, width: int, column: Column) -> str:
    return word.ljust(width) if column.left else word.rjust(width)
