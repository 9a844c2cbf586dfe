"""The exported function against the draft that it is made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixdraft.export.eager import EagerEngine
from pixdraft.export.graph import OUTPUTS, DraftGraph
from pixdraft.export.source import Source
from pixdraft.models.config import TransformerConfig
from pixdraft.models.inter_head import DraftTransformer, fuse
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.runtime.backends import DraftInfo, DraftOutput
from pixdraft.runtime.backends.exported import ExportedDraft
from pixdraft.runtime.backends.torch_backend import TorchDraft
from pixdraft.runtime.errors import BundleError
from tiny import BOTTLENECK, PIXELS, SHAPE, networks

CHUNKS = (5, 1, 1, 4, 2, 1, 2)


class CountingEngine(EagerEngine):
    """Keeps how many rows each run had; its pictures are a ramp."""

    def __init__(self, draft: DraftTransformer, sizes: tuple[int, ...] = ()) -> None:
        super().__init__(DraftGraph(draft, draft.config.length + 8), sizes=sizes)
        self.rows: list[int] = []

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        self.rows.append(len(x))
        return super().run(x, slot, place)

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.linspace(-1.5, 1.5, 3 * 4 * 4, dtype=np.float32).reshape(3, 4, 4)


@pytest.fixture(scope="module")
def draft() -> DraftTransformer:
    return networks().draft


def info(shape: TransformerConfig = SHAPE) -> DraftInfo:
    return DraftInfo("tiny", "m", "t", shape.vocab_size, shape.image_tokens, BOTTLENECK, 1.0, "risk", {})


def tables(draft: DraftTransformer) -> dict[str, NDArray[Any]]:
    return Source(info(), draft, VQTokenizer(PIXELS)).tables()


def backends(draft: DraftTransformer, sizes: tuple[int, ...]) -> tuple[TorchDraft, ExportedDraft]:
    torch_draft = TorchDraft(info(), draft, VQTokenizer(PIXELS).eval())
    return torch_draft, ExportedDraft(info(), tables(draft), CountingEngine(draft, sizes))


def condition(words: int) -> np.ndarray:
    ids = np.zeros(SHAPE.condition_length, np.int32)
    ids[-words:] = np.arange(1, words + 1)
    return ids


def close(a: DraftOutput, b: DraftOutput) -> None:
    for name, x, y in zip(OUTPUTS, a, b, strict=True):
        assert x.shape == y.shape, name
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("sizes", [(), (1, 8), (1, 3)])
@pytest.mark.parametrize("words", [1, 3, SHAPE.condition_length])
def test_graph_equals_the_padded_pass(draft: DraftTransformer, sizes: tuple[int, ...], words: int) -> None:
    reference, exported = backends(draft, sizes)
    close(reference.open(condition(words)), exported.open(condition(words)))
    tokens = np.random.default_rng(words).integers(0, SHAPE.vocab_size, SHAPE.image_tokens)
    start = 0
    for count in CHUNKS:
        close(reference.step(tokens[start : start + count], start), exported.step(tokens[start : start + count], start))
        start += count
    assert start == SHAPE.image_tokens


def test_rewinding_is_the_rollback(draft: DraftTransformer) -> None:
    reference, exported = backends(draft, (1, 8))
    tokens = np.random.default_rng(5).integers(0, SHAPE.vocab_size, SHAPE.image_tokens)
    for backend in (reference, exported):
        backend.open(condition(3))
        backend.step(tokens[:6], 0)
    exported.step(tokens[::-1][:9], 3)  # a draft that will be rolled back, padding and all
    again = exported.step(tokens[3:9], 3)
    close(reference.step(tokens[6:9], 6), DraftOutput(*(part[3:] for part in again)))


def test_a_second_picture_sees_nothing_of_the_first(draft: DraftTransformer) -> None:
    reference, exported = backends(draft, ())
    exported.open(condition(SHAPE.condition_length))
    exported.step(np.zeros(10, np.int64), 0)
    close(reference.open(condition(2)), exported.open(condition(2)))


def test_sizes_are_kept_and_blocks_are_preferred(draft: DraftTransformer) -> None:
    _, exported = backends(draft, (1, 4))
    exported.open(condition(6))
    engine = exported._engine
    assert isinstance(engine, CountingEngine)
    assert engine.rows == [4, 4]
    exported.step(np.zeros(1, np.int64), 0)
    exported.step(np.zeros(9, np.int64), 1)
    assert engine.rows[2:] == [1, 4, 4, 1]


def test_pixels_are_clipped_and_rounded(draft: DraftTransformer) -> None:
    _, exported = backends(draft, ())
    pixels = exported.decode(np.zeros(SHAPE.image_tokens, np.int64))
    assert pixels.shape == (4, 4, 3)
    assert pixels.dtype == np.uint8
    assert pixels.min() == 0
    assert pixels.max() == 255


def test_bad_input_is_named(draft: DraftTransformer) -> None:
    _, exported = backends(draft, ())
    with pytest.raises(ValueError, match="has shape"):
        exported.open(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="holds no word"):
        exported.open(np.zeros(SHAPE.condition_length, np.int32))
    with pytest.raises(ValueError, match="names word 99999"):
        exported.open(np.full(SHAPE.condition_length, 99999, np.int32))
    with pytest.raises(ValueError, match="leave the picture"):
        exported.step(np.zeros(3, np.int64), SHAPE.image_tokens - 2)
    with pytest.raises(BundleError, match="lack 'slots'"):
        ExportedDraft(info(), {k: v for k, v in tables(draft).items() if k != "slots"}, CountingEngine(draft))
    short = tables(draft) | {"tokens": np.zeros((3, 32), np.float32)}
    with pytest.raises(BundleError, match="3 rows for 16 codes"):
        ExportedDraft(info(), short, CountingEngine(draft))


def test_the_largest_entry_keeps_its_digits_in_fuse() -> None:
    center = torch.tensor([[40.0, 0.0, -1.0], [3.0, 3.0, 0.0]])
    lower, upper = fuse(center, torch.zeros(2, 3))
    torch.testing.assert_close(lower, center.softmax(-1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(upper, lower)
