"""Tables of export, check, inspect and doctor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pixdraft.export.auto import Tried
    from pixdraft.export.gate.report import Report
    from pixdraft.export.sensitivity import Layer

Cell = str | tuple[str, str]
"""A text as it stands, or one with a style; what comes from a bundle is never read as markup."""

_STATES: dict[bool | None, Cell] = {True: ("passed", "green"), False: ("failed", "bold red"), None: ("left out", "dim")}


def checks(report: Report) -> None:
    """Every row of a gate, with its bound."""
    from pixdraft.export.gate.report import number
    from pixdraft.export.gate.thresholds import AT_LEAST

    rows: list[tuple[Cell, ...]] = []
    for row in report.rows:
        bound = "" if row.bound is None else f"{'>=' if row.name in AT_LEAST else '<='} {number(row.bound)}"
        rows.append((row.name, _STATES[row.passed], number(row.value), bound, row.why))
    show(("check", "", "value", "bound", "on"), rows)


def sensitivity(layers: Sequence[Layer]) -> None:
    """What each layer loses by itself, the worst bargain first."""
    show(
        ("layer", "top-1", "TV", "U error", "bytes saved", "TV a MB"),
        [(x.layer, f"{x.top1:.4f}", f"{x.tv:.5f}", f"{x.u:.5f}", f"{x.saved:,}", f"{x.loss:.4g}") for x in layers],
    )


def tried(candidates: Sequence[Tried]) -> None:
    """What `--quant auto` looked at."""
    rows: list[tuple[Cell, ...]] = []
    for one in candidates:
        spared = f", {len(one.recipe.overrides)} layers otherwise" if one.recipe.overrides else ""
        state = _STATES[one.report.passed]
        rows.append((f"{one.recipe.scheme}{spared}", f"{one.size:,}", state, one.report.sentence))
    show(("recipe", "bytes", "", "gate"), rows)


def delegation(values: Mapping[str, Mapping[str, Any]]) -> None:
    """Operators that the backend took over and left, by model, and where the time goes."""
    from pixdraft.export.delegation import read

    rows = []
    for one in read(values):
        time = "" if one.time_share is None else f"{one.time_share:.1%}"
        left = ", ".join(f"{count} {name}" for name, count in sorted(one.left.items(), key=lambda item: -item[1]))
        slowest = ", ".join(f"{name} {share:.1%}" for name, share in one.slowest[:4])
        taken = str(sum(one.delegated.values()))
        rows.append((one.model, f"{one.share:.1%}", time, taken, left or "nothing", slowest))
    if rows:
        show(("model", "delegated", "of the time", "operators", "left", "most time in"), rows)


def facts(values: Mapping[str, str]) -> None:
    """One line a fact, however long."""
    import typer

    width = max(map(len, values))
    typer.echo("\n".join(f"{name:<{width}}  {_printable(text)}" for name, text in values.items()))


def _printable(text: str) -> str:
    """A text in one line, without what would move the cursor or colour the screen."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table; a long cell goes on in the next line, and loses nothing. Nothing in a cell is markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title == titles[0], overflow="fold")
    for row in rows:
        table.add_row(*(Text(_printable(cell)) if isinstance(cell, str) else Text(*cell) for cell in row))
    Console().print(table)
