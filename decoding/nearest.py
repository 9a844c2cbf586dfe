"""The name that a wrong one was probably meant for, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def advice(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """``do you mean 'NEAREST'? `` with the space, for what follows; `otherwise` where no known name is near."""
    near = get_close_matches(name, list(known), 1)
    return f"do you mean {near[0]!r}? " if near else otherwise
