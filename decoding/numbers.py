"""What counts as a number in a parameter: True and False do not, numpy's numbers do."""

from __future__ import annotations

from numbers import Real
from typing import Any


def is_number(value: Any) -> bool:
    """Whether this is a number; NaN and infinity are, so compare it with bounds too."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any, low: float, high: float) -> bool:
    """Whether this is a whole number from `low` to `high`; a float may be one."""
    # bounds come first: float() overflows at an integer of a thousand digits
    return is_number(value) and low <= value <= high and float(value).is_integer()
