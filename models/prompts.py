"""A prompt as words, and which of them a model reads: what its encoder does, and what is known of it without torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def split(prompt: str) -> list[str]:
    """The words of a prompt as a vocabulary has them, in order."""
    return re.findall(r"[a-z0-9]+", prompt.lower())


def shortened(words: Sequence[str], length: int) -> list[str]:
    """At most `length` words: the style stands first and the ground last, so the middle is cut."""
    if len(words) <= length:
        return list(words)
    return [*words[: max(0, length - 2)], *words[-2:]][-length:]


def dropped(prompt: str, vocabulary: Collection[str], length: int) -> tuple[list[str], list[str]]:
    """The words that a model does not read: those it does not know, and those that are too many for it.

    Args:
        prompt: the text.
        vocabulary: words that it knows.
        length: words that it takes.

    Returns:
        Both in the order of the prompt, each word once.
    """
    unknown = [word for word in re.findall(r"[^\W_]+", prompt.lower()) if word not in vocabulary]
    known = [word for word in split(prompt) if word in vocabulary]
    cut = known[max(0, length - 2) : len(known) - min(2, length)] if len(known) > length else []
    return list(dict.fromkeys(unknown)), list(dict.fromkeys(cut))
