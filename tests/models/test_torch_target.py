"""The full model as the cloud runs it: cached passes against whole ones, guidance, features, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixdraft.models.registry import load_target
from pixdraft.models.target import PromptError, TargetModel
from pixdraft.models.tokenizer import to_bytes
from pixdraft.models.torch_target import TorchTarget, guide
from tiny import BOTTLENECK, GUIDANCE, SHAPE

PROMPT = "noto red apple on sky"
TOKENS = np.random.default_rng(1).integers(0, 16, 16)


@pytest.fixture(scope="module")
def target(published: Path) -> TorchTarget:
    return load_target(published)


def whole(target: TorchTarget, guidance: float) -> NDArray[np.float32]:
    """Guided logits of every position, from two plain passes without a cache."""
    ids = torch.from_numpy(target.encoder.encode(PROMPT)).long()[None]
    tokens = torch.from_numpy(TOKENS)[None]
    with torch.inference_mode():
        prompt = target.decoder(ids, tokens)[0]
        none = target.decoder(ids, tokens, torch.tensor([True]))[0]
        return np.asarray(none + guidance * (prompt - none))


def test_it_is_a_target_model(target: TorchTarget) -> None:
    model: TargetModel = target
    assert model.info.vocab_size == 16


def test_its_codebook_is_what_the_tokenizer_looks_up(target: TorchTarget) -> None:
    np.testing.assert_allclose(np.linalg.norm(target.codebook, axis=1), 1, rtol=1e-6)
    found = target.tokenizer.quantize(torch.from_numpy(target.codebook)[:, :, None, None]).tokens
    assert found.flatten().tolist() == list(range(16))


@pytest.mark.parametrize("guidance", [0.0, 1.0, GUIDANCE, 7.5])
@pytest.mark.parametrize("blocks", [(16,), (1,) * 16, (3, 1, 8, 4)])
def test_blocks_equal_single_steps_and_whole_passes(
    target: TorchTarget, guidance: float, blocks: tuple[int, ...]
) -> None:
    opened = target.open(PROMPT, guidance)
    rows, start = [opened.logits[None]], 0
    for count in blocks:
        rows.append(target.forward(TOKENS[start : start + count], opened.cache))
        start += count
    logits = np.concatenate(rows)
    assert logits.shape == (17, 16)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, whole(target, guidance), atol=1e-5 * max(1.0, guidance), rtol=1e-5)


def test_guidance_one_pays_for_one_row(target: TorchTarget) -> None:
    assert target.open(PROMPT, 1.0).cache.kv.keys.shape[1] == 1
    assert target.open(PROMPT, 1.5).cache.kv.keys.shape[1] == 2


def test_guidance_is_u_plus_s_times_the_difference() -> None:
    logits = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
    assert guide(logits, 2.0).tolist() == [5.0, 0.0]
    assert guide(logits, 0.0).tolist() == [1.0, 2.0]
    assert guide(logits[:1], 2.0).tolist() == [3.0, 1.0]


def test_the_condition_goes_to_the_device(target: TorchTarget) -> None:
    condition = target.open(PROMPT, 1.0).condition
    assert condition.dtype == np.int32
    assert condition.tolist() == target.encoder.encode(PROMPT).tolist()


def test_truncating_forgets(target: TorchTarget) -> None:
    opened = target.open(PROMPT, GUIDANCE)
    target.forward(TOKENS[:6], opened.cache)
    target.forward((TOKENS[6:12] + 1) % 16, opened.cache)
    target.truncate(opened.cache, 6)
    assert opened.cache.length == 6
    np.testing.assert_allclose(
        target.forward(TOKENS[6:], opened.cache), whole(target, GUIDANCE)[7:], atol=2e-5, rtol=1e-5
    )
    target.truncate(opened.cache, 0)
    np.testing.assert_allclose(
        target.forward(TOKENS[:1], opened.cache), whole(target, GUIDANCE)[1:2], atol=2e-5, rtol=1e-5
    )


@pytest.mark.parametrize("length", [-1, 4, 16])
def test_truncating_only_shortens(target: TorchTarget, length: int) -> None:
    opened = target.open(PROMPT, 1.0)
    target.forward(TOKENS[:3], opened.cache)
    with pytest.raises(ValueError, match=f"cannot keep {length} of 3 cached tokens"):
        target.truncate(opened.cache, length)
    assert opened.cache.length == 3


def test_features_of_zeros_are_no_features(target: TorchTarget) -> None:
    with_none, with_zeros = target.open(PROMPT, GUIDANCE), target.open(PROMPT, GUIDANCE)
    zeros = np.zeros((5, BOTTLENECK), np.float32)
    plain = target.forward(TOKENS[:5], with_none.cache)
    np.testing.assert_array_equal(target.forward(TOKENS[:5], with_zeros.cache, zeros), plain)


def test_features_reach_their_own_token_and_later_ones(target: TorchTarget) -> None:
    opened = target.open(PROMPT, GUIDANCE)
    plain = target.forward(TOKENS[:5], opened.cache)
    target.truncate(opened.cache, 0)
    features = np.zeros((5, BOTTLENECK), np.float32)
    features[2] = 1.0
    changed = target.forward(TOKENS[:5], opened.cache, features)
    np.testing.assert_allclose(changed[:2], plain[:2], atol=1e-5)
    assert (np.abs(changed - plain)[2:].max(1) > 1e-3).all()
    ids = torch.from_numpy(opened.condition).long()[None]
    with torch.inference_mode():
        extra = target.conditioning(torch.from_numpy(features))[None]
        tokens = torch.from_numpy(TOKENS[:5])[None]
        rows = [
            target.decoder.output(target.decoder.hidden(ids, tokens, torch.tensor([drop]), extra))[0, 1:]
            for drop in (False, True)
        ]
    np.testing.assert_allclose(changed, guide(torch.stack(rows), GUIDANCE).numpy(), atol=2e-5, rtol=1e-5)


def test_a_picture_has_no_room_for_more(target: TorchTarget) -> None:
    opened = target.open(PROMPT, 1.0)
    target.forward(TOKENS[:10], opened.cache)
    with pytest.raises(ValueError, match="7 tokens after 10 are more than the picture's 16"):
        target.forward(TOKENS[:7], opened.cache)
    assert opened.cache.length == 10
    assert target.forward(TOKENS[10:], opened.cache).shape == (6, 16)


def test_an_unknown_prompt(target: TorchTarget) -> None:
    with pytest.raises(PromptError, match="no word of the prompt 'qwertz' is known"):
        target.open("qwertz", 1.0)


def test_pictures_of_one_model_do_not_mix(target: TorchTarget) -> None:
    one, other = target.open(PROMPT, GUIDANCE), target.open("fluent cat on navy", GUIDANCE)
    target.forward(TOKENS[:8], other.cache)
    np.testing.assert_allclose(
        target.forward(TOKENS[:8], one.cache), whole(target, GUIDANCE)[1:9], atol=2e-5, rtol=1e-5
    )


def test_decoding(target: TorchTarget) -> None:
    pixels = target.decode(TOKENS)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (8, 8, 3)
    with torch.inference_mode():
        expected = to_bytes(target.tokenizer.decode(torch.from_numpy(TOKENS)[None]))[0].numpy()
    np.testing.assert_array_equal(pixels, expected)
    assert SHAPE.image_tokens == TOKENS.size
