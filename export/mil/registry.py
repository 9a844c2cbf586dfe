"""The table of operators: each is a plain function of numpy arrays whose parameters have the names of the format.

Functions compute in float32 and may return any float width or whole-number width: the interpreter brings results to
the type that the program states. They never change what they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operator:
    """An operator.

    Attributes:
        function: takes the operation's inputs by name; returns an array, or a tuple of them for several outputs.
        many: parameters that take a list of values.
        moves: whether every element of a result is one of an input, but for its sign: such results need no rounding.
    """

    function: Callable[..., Any]
    many: frozenset[str] = frozenset()
    moves: bool = False


OPERATORS: dict[str, Operator] = {}
"""By the operator's name in the format; filled when `pixdraft.export.mil.operators` is imported."""


def operator(*names: str, many: tuple[str, ...] = (), moves: bool = False) -> Callable[[Function], Function]:
    """Enter a function under the names of the operators that it computes."""

    def enter(function: Function) -> Function:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"operator {name} is there twice")
            OPERATORS[name] = Operator(function, frozenset(many), moves)
        return function

    return enter
