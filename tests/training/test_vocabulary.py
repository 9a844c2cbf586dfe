"""Names, words and captions: every caption can be encoded whole, and held-out names stay out of training."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pixdraft.models.conditions import WordEncoder
from pixdraft.training import recipes
from pixdraft.training import sprites as sprite_files
from pixdraft.training.packages import STYLES
from pixdraft.training.scenes import GROUNDS, Scene, SceneStream, caption
from pixdraft.training.sprites import Sprites, held_out_names, names
from pixdraft.training.vocabulary import CONDITION_LENGTH, CaptionSampler, words


def test_names_are_everyday_and_bare() -> None:
    every = names()
    assert 300 <= len(every) <= 600
    assert every == sorted(set(every))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in every)


def test_there_are_no_variants_of_skin() -> None:
    assert not [name for name in names() if re.search(r"skin-tone|(^|-)(medium|dark|light-(?!bulb))", name)]


def test_a_twentieth_is_held_out() -> None:
    held = held_out_names()
    assert len(held) == round(0.05 * len(names()))
    assert held == sorted(set(held))
    assert set(held) < set(names())
    assert held_out_names() == held


def test_no_training_stream_shows_a_held_out_name(sprites: Sprites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sprite_files, "load", lambda folder: sprites)
    held = set(held_out_names())
    training = recipes._stream(Path("run"), 1)
    other = recipes._stream(Path("run"), 1, held_out=True)
    assert set(training.names) == set(names()) - held
    assert set(other.names) == held
    assert not {training.scene(i).name for i in range(500)} & held
    assert {other.scene(i).name for i in range(200)} <= held


def test_sample_prompts_are_of_training_names_in_every_style() -> None:
    prompts = recipes.sample_prompts()
    assert len(set(prompts)) == len(prompts) == 16
    assert recipes.sample_prompts() == prompts
    held = {name.replace("-", " ") for name in held_out_names()}
    shown = {prompt.split(" ", 1)[1].rsplit(" on ", 1)[0] for prompt in prompts}
    assert shown <= {name.replace("-", " ") for name in names()} - held
    assert {prompt.split()[0] for prompt in prompts} == set(STYLES)
    assert {prompt.split()[-1] for prompt in prompts} == set(GROUNDS)
    known = set(words())
    assert all(known.issuperset(prompt.split()) for prompt in prompts)


def test_the_vocabulary_is_every_word_once() -> None:
    every = words()
    assert len(set(every)) == len(every)
    assert every[: len(STYLES) + 1] == [*STYLES, "on"]
    assert set(GROUNDS) <= set(every)
    assert {word for name in names() for word in name.split("-")} <= set(every)


def test_every_caption_is_encoded_whole() -> None:
    encoder = WordEncoder(words(), CONDITION_LENGTH)
    for name in names():
        for style, ground in zip(STYLES * 6, GROUNDS, strict=False):
            text = caption(style, name, ground)
            ids = encoder.encode(text)
            assert encoder.known(text) == text.split()
            assert [encoder.words[i - 1] for i in ids if i] == text.split()


def scenes_of(sprites: Sprites, count: int) -> list[Scene]:
    stream = SceneStream(sprites, names(), 1)
    return [stream.scene(i) for i in range(count)]


def test_some_captions_leave_out_style_or_ground(sprites: Sprites) -> None:
    scenes = scenes_of(sprites, 2000)
    sampler = CaptionSampler()
    ids = sampler.batch(scenes, np.random.default_rng(1))
    assert ids.dtype == np.int32
    assert ids.shape == (2000, CONDITION_LENGTH)
    texts = [" ".join(sampler.encoder.words[i - 1] for i in row if i) for row in ids]
    named = [scene.name.replace("-", " ") in text for scene, text in zip(scenes, texts, strict=True)]
    assert all(named)
    without_style = np.mean([not text.startswith(s.style) for s, text in zip(scenes, texts, strict=True)])
    without_ground = np.mean([not text.endswith(f"on {s.ground}") for s, text in zip(scenes, texts, strict=True)])
    assert 0.08 < without_style < 0.12
    assert 0.08 < without_ground < 0.12


@pytest.mark.parametrize(("drop", "words_kept"), [(0.0, "noto red apple on sky"), (1.0, "red apple")])
def test_dropping_never_and_always(drop: float, words_kept: str) -> None:
    scene = Scene("noto", "red-apple", "sky", 1.0, 0.0, 0.0, False, (0.0, 0.0), 0.0, 0)
    sampler = CaptionSampler(drop)
    row = sampler.batch([scene], np.random.default_rng(0))[0]
    assert row.tolist() == sampler.encoder.encode(words_kept).tolist()
