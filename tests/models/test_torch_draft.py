"""The draft behind the device's seam, `runtime.backends.DraftModel`, in torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pixdraft.models.registry import load_target
from pixdraft.runtime.backends import DraftModel, DraftOutput
from pixdraft.runtime.backends.torch_backend import TorchDraft, load_draft
from tiny import BOTTLENECK, SHAPE

TOKENS = np.random.default_rng(2).integers(0, 16, 16)
CONDITION = np.array([0] * 7 + [3, 1, 2], np.int32)


@pytest.fixture(scope="module")
def draft(published: Path) -> TorchDraft:
    return load_draft(published)


def joined(rows: list[DraftOutput]) -> DraftOutput:
    return DraftOutput(*(np.concatenate(part) for part in zip(*rows, strict=True)))


def same(a: DraftOutput, b: DraftOutput) -> None:
    for name, left, right in zip(DraftOutput._fields, a, b, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5, rtol=1e-5, err_msg=name)


def test_it_is_a_draft_model(draft: TorchDraft) -> None:
    model: DraftModel = draft
    shapes = [part.shape for part in joined([model.open(CONDITION), model.step(TOKENS[:3], 0)])]
    assert shapes == [(4, 16), (4, 16), (4, SHAPE.dim), (4,), (4, BOTTLENECK)]
    assert all(part.dtype == np.float32 for part in model.step(TOKENS[:1], 0))


@pytest.mark.parametrize("blocks", [(16,), (1,) * 16, (2, 5, 1, 8)])
def test_steps_equal_one_pass(draft: TorchDraft, blocks: tuple[int, ...]) -> None:
    rows, position = [draft.open(CONDITION)], 0
    for count in blocks:
        rows.append(draft.step(TOKENS[position : position + count], position))
        position += count
    with torch.inference_mode():
        ids, tokens = torch.from_numpy(CONDITION).long()[None], torch.from_numpy(TOKENS)[None]
        expected = draft.network.heads(draft.network.decoder.hidden(ids, tokens))
    same(joined(rows), DraftOutput(*(part[0].numpy() for part in expected)))


def test_writing_at_a_position_is_the_rollback(draft: TorchDraft) -> None:
    draft.open(CONDITION)
    plain = draft.step(TOKENS[:9], 0)
    draft.open(CONDITION)
    draft.step(TOKENS[:4], 0)
    draft.step((TOKENS[4:16] + 1) % 16, 4)
    again = draft.step(TOKENS[4:9], 4)
    same(again, DraftOutput(*(part[4:] for part in plain)))


def test_a_picture_knows_nothing_of_the_one_before(draft: TorchDraft) -> None:
    first = joined([draft.open(CONDITION), draft.step(TOKENS, 0)])
    other = np.array([0] * 5 + [8, 9, 4, 4, 7], np.int32)
    draft.open(other)
    draft.step((TOKENS + 3) % 16, 0)
    again = joined([draft.open(CONDITION), draft.step(TOKENS, 0)])
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("length", [0, 9, 11])
def test_a_condition_of_another_length(draft: TorchDraft, length: int) -> None:
    with pytest.raises(ValueError, match=f"the condition has {length} positions, the draft takes 10"):
        draft.open(np.ones(length, np.int32))


@pytest.mark.parametrize(("count", "position"), [(1, 16), (3, 14), (1, -1)])
def test_tokens_that_leave_the_picture(draft: TorchDraft, count: int, position: int) -> None:
    draft.open(CONDITION)
    with pytest.raises(ValueError, match=f"{count} tokens at position {position} leave the picture's 16"):
        draft.step(TOKENS[:count], position)


def test_device_and_cloud_see_the_same_picture(draft: TorchDraft, published: Path) -> None:
    target = load_target(published)
    np.testing.assert_array_equal(draft.decode(TOKENS), target.decode(TOKENS))
    assert draft.info.model_hash == target.info.model_hash
    assert draft.info.tokenizer_hash == target.info.tokenizer_hash
    assert (draft.info.vocab_size, draft.info.image_tokens) == (16, 16)
