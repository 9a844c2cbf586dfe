"""What the tests of the command line read out of a result."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result

Run = Callable[..., Result]
"""Runs one command line in an empty folder; words may be of any type, `env` adds variables."""


def sentence(result: Result) -> str:
    """The one line that an error shows."""
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("pixdraft: ")
    assert "Traceback" not in lines[0]
    return lines[0].removeprefix("pixdraft: ")


def facts(text: str) -> dict[str, str]:
    """The report for people, by its first words."""
    return dict(line.split(maxsplit=1) for line in text.splitlines())
