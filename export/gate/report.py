"""What the gate says: one row a check. A row passes only where its number is a number and within its bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """What was measured, before anybody judged it.

    Attributes:
        name: of the check, a field of `gate.thresholds.Thresholds`.
        value: what came out; None where nothing could be measured, for the reason in `why`.
        why: what the value stands on, or why there is none.
    """

    name: str
    value: float | None
    why: str = ""


@dataclass(frozen=True)
class Row:
    """A judged check.

    Attributes:
        name, value, why: as in `Measure`.
        bound: the threshold; None where the check is a plain yes or no.
        passed: None where the check was left out for a stated reason that is no failure.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool | None
    why: str = ""


@dataclass(frozen=True)
class Report:
    """All rows of a gate."""

    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that failed."""
        return tuple(row for row in self.rows if row.passed is False)

    @property
    def passed(self) -> bool:
        """Whether there is something that passed, and nothing that failed."""
        return not self.failed and any(row.passed for row in self.rows)

    @property
    def sentence(self) -> str:
        """The first failure in words, and how many there are."""
        if not self.failed:
            return f"all {sum(row.passed is True for row in self.rows)} checks passed"
        first, more = self.failed[0], len(self.failed) - 1
        told = f"{first.name} is {number(first.value)}"
        if first.bound is not None:
            told += f" where the bound is {number(first.bound)}"
        if first.value is None or first.bound is None:
            told = first.name
        reason = f" ({first.why})" if first.why else ""
        return f"{told}{reason}" + (f", and {more} more failed" if more else "")

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows as JSON values; a number that JSON lacks stands as a word."""
        return [{key: plain(value) for key, value in asdict(row).items()} for row in self.rows]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Report:
        """Read what `to_dict` wrote."""
        return cls(
            tuple(
                Row(str(r["name"]), _float(r["value"]), _float(r["bound"]), r["passed"], str(r.get("why", "")))
                for r in rows
            )
        )


def number(value: float | None) -> str:
    """A value as a table shows it."""
    return "-" if value is None else f"{value:.4g}"


def plain(value: Any) -> Any:
    """A value as JSON has it; a number that JSON lacks is a word."""
    finite = not isinstance(value, float) or value - value == 0.0
    return value if finite else str(value)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
