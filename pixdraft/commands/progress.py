"""One bar on stderr for whatever takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int | None], None]
"""Called with what is done now, how much of it, and of how much, if that is known."""


@contextmanager
def progress(quiet: bool) -> Iterator[Show]:
    """A bar, as long as the block lasts; none where it would not be seen."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    words = TextColumn("{task.description}")
    columns = (SpinnerColumn(), words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda title, done, total: bar.update(task, description=title, completed=done, total=total)
