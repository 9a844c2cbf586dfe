"""Words of a prompt: what the encoder reads, and what it passes over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixdraft.models.conditions import PADDING, WordEncoder
from pixdraft.models.prompts import dropped, shortened, split

WORDS = ["noto", "on", "red", "apple", "sky"]


@pytest.mark.parametrize(
    ("prompt", "unknown", "cut"),
    [
        ("Red apple, on sky!", [], []),
        ("red wizard wizard", ["wizard"], []),
        ("rote Äpfel", ["rote", "äpfel"], []),
        ("noto red apple on red sky", [], ["apple", "on"]),
        ("", [], []),
    ],
)
def test_what_is_not_read_is_named(prompt: str, unknown: list[str], cut: list[str]) -> None:
    assert dropped(prompt, WORDS, 4) == (unknown, cut)


@given(st.lists(st.sampled_from([*WORDS, "wizard"])), st.integers(1, 8))
def test_read_and_unread_are_the_whole_prompt(words: list[str], length: int) -> None:
    prompt = " ".join(words)
    unknown, cut = dropped(prompt, WORDS, length)
    kept = shortened([word for word in split(prompt) if word in WORDS], length)
    assert len(kept) <= length
    assert {*unknown, *cut, *kept} == set(words)
    ids = WordEncoder(WORDS, length).encode(prompt) if kept else None
    assert ids is None or [WORDS[i - 1] for i in ids if i != PADDING] == kept
