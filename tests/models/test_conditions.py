"""Prompts as word ids, and what the condition modules make of an array."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pixdraft.models.conditions import CaptionEmbedder, WordCondition, WordEncoder
from pixdraft.models.target import PromptError

WORDS = ["noto", "red", "apple", "on", "sky", "green", "t", "rex"]


def test_words_stand_at_the_right_and_padding_before_them() -> None:
    ids = WordEncoder(WORDS, 6).encode("noto red apple")
    assert ids.dtype == np.int32
    assert ids.tolist() == [0, 0, 0, 1, 2, 3]


def test_unknown_words_are_dropped() -> None:
    encoder = WordEncoder(WORDS, 6)
    assert encoder.known("A shiny RED apple, on the sky!") == ["red", "apple", "on", "sky"]
    assert encoder.encode("shiny red apple").tolist() == encoder.encode("red apple").tolist()
    assert encoder.known("t-rex") == ["t", "rex"]


@pytest.mark.parametrize("prompt", ["", "qwertz", "äöü", "!?", "redapple"])
def test_a_prompt_of_nothing_known_is_refused(prompt: str) -> None:
    with pytest.raises(PromptError, match="is known to the model: name an everyday thing") as caught:
        WordEncoder(WORDS, 6).encode(prompt)
    assert repr(prompt) in str(caught.value)


def test_the_refusal_cuts_a_long_prompt() -> None:
    with pytest.raises(PromptError) as caught:
        WordEncoder(WORDS, 6).encode("z" * 5000)
    assert len(str(caught.value)) < 250


def test_a_long_prompt_keeps_its_style_and_its_ground() -> None:
    encoder = WordEncoder(WORDS, 5)
    assert (
        encoder.encode("noto red apple green t rex on sky").tolist() == encoder.encode("noto red apple on sky").tolist()
    )
    assert encoder.encode("noto red apple on sky").tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("length", "kept"), [(1, [5]), (2, [4, 5]), (3, [1, 4, 5])])
def test_even_the_shortest_condition_takes_any_prompt(length: int, kept: list[int]) -> None:
    assert WordEncoder(WORDS, length).encode("noto red apple on sky").tolist() == kept


def test_a_word_is_its_vector_plus_its_place_s() -> None:
    torch.manual_seed(0)
    condition = WordCondition(words=4, length=3, dim=8)
    embedded, valid = condition(torch.tensor([[0, 4, 2]]))
    assert valid.tolist() == [[False, True, True]]
    expected = condition.embedding_table.weight[[0, 4, 2]] + condition.slots
    torch.testing.assert_close(embedded[0], expected)


@pytest.mark.parametrize("dropped", [0, 1])
def test_only_dropped_rows_are_unconditional(dropped: int) -> None:
    torch.manual_seed(0)
    condition = WordCondition(words=4, length=3, dim=8)
    ids = torch.tensor([[0, 4, 2], [1, 1, 3]])
    plain, valid = condition(ids)
    embedded, valid_too = condition(ids, torch.arange(2) == dropped)
    assert torch.equal(embedded[dropped], condition.uncond_embedding)
    assert torch.equal(embedded[1 - dropped], plain[1 - dropped])
    assert torch.equal(valid, valid_too)


def test_captions_are_projected_and_zero_rows_are_padding() -> None:
    torch.manual_seed(0)
    embedder = CaptionEmbedder(features=6, length=3, dim=8)
    embedder.uncond_embedding.normal_()
    features = torch.randn(2, 3, 6)
    features[0, :2] = 0
    embedded, valid = embedder(features)
    assert valid.tolist() == [[False, False, True], [True, True, True]]
    assert not embedded[0, :2].any()  # no bias: nothing comes of nothing
    weights = embedder.state_dict()
    hidden = nn.functional.gelu(features[1] @ weights["cap_proj.fc1.weight"].T, approximate="tanh")
    torch.testing.assert_close(embedded[1], hidden @ weights["cap_proj.fc2.weight"].T)
    dropped, valid_too = embedder(features, torch.tensor([True, False]))
    assert torch.equal(valid, valid_too)
    torch.testing.assert_close(dropped[0], embedder(embedder.uncond_embedding[None])[0][0])
    torch.testing.assert_close(dropped[1], embedded[1])


def test_a_style_alone_names_nothing() -> None:
    encoder = WordEncoder(WORDS, 6, framing=("noto", "on"))
    with pytest.raises(PromptError, match="no word of the prompt 'noto xyzzy' is known"):
        encoder.encode("noto xyzzy")
    assert encoder.encode("noto apple").tolist() == WordEncoder(WORDS, 6).encode("noto apple").tolist()
