"""What the target draws: distributed as the guided target, kept in chunks, and drawn anew for another target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from pixdraft.models.config import TransformerConfig
from pixdraft.models.transformer import Transformer
from pixdraft.training import corpus as module
from pixdraft.training.corpus import Corpus, draw_tokens, guided, guided_distribution
from pixdraft.training.scenes import SceneStream
from pixdraft.training.sprites import Sprites, names
from pixdraft.training.vocabulary import CONDITION_LENGTH
from tiny import decoder

SHAPE = TransformerConfig(
    dim=16, layers=1, heads=2, ffn_dim=32, vocab_size=5, grid=2, condition_length=CONDITION_LENGTH
)
PROMPT = torch.tensor([[0] * 7 + [3, 1, 2]])


@pytest.fixture
def target() -> Transformer:
    torch.manual_seed(0)
    return decoder(SHAPE)


def exact(target: Transformer, tokens: torch.Tensor, scale: float) -> torch.Tensor:
    """The guided distribution after given tokens [B, n], from two plain passes, float64 [B, n + 1, V]."""
    ids = PROMPT.expand(len(tokens), -1)
    none = target(ids, tokens, torch.ones(len(tokens), dtype=torch.bool))
    q: torch.Tensor = (none + scale * (target(ids, tokens) - none)).double().softmax(-1)
    return q


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_pictures_follow_the_guided_target(target: Transformer, scale: float) -> None:
    """Chi-square of the first two tokens together against their exact distribution."""
    rows = 4000
    tokens = draw_tokens(target, PROMPT.expand(rows, -1), scale, seed=1)
    assert tokens.shape == (rows, 4)
    assert tokens.dtype == torch.int64
    q = exact(target, torch.arange(5)[:, None], scale)
    joint = (q[0, 0][:, None] * q[:, 1]).flatten().numpy()
    seen = np.bincount((tokens[:, 0] * 5 + tokens[:, 1]).numpy(), minlength=25)
    assert stats.chisquare(seen, joint / joint.sum() * rows).pvalue > 1e-3
    others = exact(target, torch.arange(5)[:, None], 4.0 - scale)
    wrong = (others[0, 0][:, None] * others[:, 1]).flatten().numpy()
    assert stats.chisquare(seen, wrong / wrong.sum() * rows).pvalue < 1e-6  # the test would see another guidance


def test_a_draw_is_a_function_of_its_seed(target: Transformer) -> None:
    ids = PROMPT.expand(20, -1)
    tokens = draw_tokens(target, ids, 2.0, seed=1)
    assert torch.equal(draw_tokens(target, ids, 2.0, seed=1), tokens)
    assert not torch.equal(draw_tokens(target, ids, 2.0, seed=2), tokens)


def test_guidance_takes_prompts_first() -> None:
    rows = torch.tensor([[3.0], [5.0], [1.0], [2.0]])
    assert guided(rows, 2.0).tolist() == [[5.0], [8.0]]


def test_the_distribution_of_given_pictures(target: Transformer) -> None:
    tokens = torch.tensor([[0, 3, 1, 4], [2, 2, 0, 1]])
    q = guided_distribution(target, PROMPT.expand(2, -1), tokens, 2.0)
    assert q.dtype == torch.float32
    assert q.shape == (2, 4, 5)
    torch.testing.assert_close(q.sum(-1), torch.ones(2, 4))
    expected = exact(target, tokens[:, :-1], 2.0).float()
    torch.testing.assert_close(q, expected, atol=0.05, rtol=0)  # the passes run in bfloat16


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every call that draws; chunks hold three pictures."""
    rows: list[int] = []

    def counted(target: Transformer, condition: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
        rows.append(len(condition))
        return draw_tokens(target, condition, scale, seed)

    monkeypatch.setattr(module, "draw_tokens", counted)
    monkeypatch.setattr(Corpus, "CHUNK", 3)
    return rows


@pytest.fixture
def stream(sprites: Sprites) -> SceneStream:
    return SceneStream(sprites, names(), 3)


def test_chunks_are_drawn_once(target: Transformer, stream: SceneStream, tmp_path: Path, draws: list[int]) -> None:
    condition, tokens = Corpus(tmp_path, target, stream, 2.0).load(5)
    assert draws == [3, 3]
    assert (condition.shape, tokens.shape) == ((5, CONDITION_LENGTH), (5, 4))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0000.pt", "0001.pt"]
    again = Corpus(tmp_path, target, stream, 2.0)
    for count in (5, 2, 6):
        more = again.load(count)
        assert torch.equal(more[0][:5], condition[:count])
        assert torch.equal(more[1][:5], tokens[:count])
    assert draws == [3, 3]
    (tmp_path / "0001.pt").unlink()
    assert torch.equal(again.load(5)[1], tokens)
    assert draws == [3, 3, 3]


def test_other_pictures_of_another_target_or_guidance(
    target: Transformer, stream: SceneStream, tmp_path: Path, draws: list[int]
) -> None:
    first = Corpus(tmp_path, target, stream, 2.0).load(3)[1]
    Corpus(tmp_path, target, stream, 3.0).load(3)
    assert draws == [3, 3]
    with torch.no_grad():
        target.output.weight.mul_(-1.5)
    other = Corpus(tmp_path, target, stream, 3.0).load(3)[1]
    assert draws == [3, 3, 3]
    assert not torch.equal(first, other)


def test_a_corpus_shows_its_stream(target: Transformer, stream: SceneStream, tmp_path: Path, draws: list[int]) -> None:
    corpus = Corpus(tmp_path, target, stream, 2.0)
    condition, _ = corpus.load(6)
    shown = corpus.names(6)
    assert shown == [stream.scene(i).name for i in range(6)]
    words = corpus.captions.encoder.words
    for row, name in zip(condition.tolist(), shown, strict=True):
        assert name.replace("-", " ") in " ".join(words[i - 1] for i in row if i)
