"""The picture tokenizer: shapes, codes, gradients, and the two layouts in memory."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from pixdraft.models.config import VQConfig
from pixdraft.models.tokenizer import VQTokenizer, channels_last, to_bytes, to_float
from tiny import PIXELS, frozen


@pytest.fixture(scope="module")
def tokenizer() -> VQTokenizer:
    torch.manual_seed(0)
    return frozen(VQTokenizer(PIXELS))


def pictures(count: int = 2, side: int = 8) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, side, side, 3), generator=rng).to(torch.uint8)


@pytest.mark.parametrize(("multipliers", "side"), [((1, 2), 8), ((1, 1, 2), 16), ((1,), 4)])
def test_a_level_halves_the_side(multipliers: tuple[int, ...], side: int) -> None:
    torch.manual_seed(0)
    model = frozen(VQTokenizer(VQConfig(8, multipliers, 1, 8, 16, 4, 4)))
    assert model.config.downsampling == side // 4
    tokens = model.encode(to_float(pictures(side=side)))
    assert tokens.shape == (2, 16)
    assert tokens.dtype == torch.int64
    assert model.decode(tokens).shape == (2, 3, side, side)


def test_a_code_is_the_nearest_by_cosine(tokenizer: VQTokenizer) -> None:
    z = 5 * torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(2))
    found = tokenizer.quantize(z)
    codes = tokenizer.quantize.embedding.weight
    cosine = F.cosine_similarity(z.permute(0, 2, 3, 1).reshape(-1, 1, 4), codes[None], dim=-1)
    assert torch.equal(found.tokens, cosine.argmax(1).view(2, 9))
    assert found.tokens.unique().numel() > 4
    torch.testing.assert_close(found.codes.norm(dim=1), torch.ones(2, 3, 3))
    torch.testing.assert_close(found.normalised.norm(dim=1), torch.ones(18))
    expected = F.normalize(codes, dim=-1)[found.tokens[1, 5]]  # tokens go by rows: 5 is row 1, column 2
    torch.testing.assert_close(found.codes[1, :, 1, 2], expected)


def test_the_scale_of_a_code_means_nothing(tokenizer: VQTokenizer) -> None:
    scaled = copy.deepcopy(tokenizer)
    scaled.quantize.embedding.weight.mul_(7.0)
    x = to_float(pictures())
    tokens = tokenizer.encode(x)
    assert torch.equal(scaled.encode(x), tokens)
    torch.testing.assert_close(scaled.decode(tokens), tokenizer.decode(tokens))


def test_gradients_pass_straight_through(tokenizer: VQTokenizer) -> None:
    z = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(3)).requires_grad_()
    weight = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(4))
    through = torch.autograd.grad((tokenizer.quantize(z).codes * weight).sum(), z)[0]
    as_if_not_there = torch.autograd.grad((F.normalize(z, dim=1) * weight).sum(), z)[0]
    torch.testing.assert_close(through, as_if_not_there)
    assert through.abs().max() > 0.01


def test_the_loss_draws_codes_and_encoder_together() -> None:
    torch.manual_seed(0)
    model = VQTokenizer(PIXELS)
    z = torch.randn(1, 4, 3, 3).requires_grad_()
    found = model.quantize(z)
    found.loss.backward()
    codes = model.quantize.units()[found.tokens.flatten()]
    distance = F.mse_loss(codes, found.normalised)
    torch.testing.assert_close(found.loss, 1.25 * distance)
    assert z.grad is not None
    used = model.quantize.embedding.weight.grad
    assert used is not None
    assert set(used.abs().sum(1).nonzero().flatten().tolist()) == set(found.tokens.flatten().tolist())


def test_layout_in_memory_changes_nothing(tokenizer: VQTokenizer) -> None:
    other = channels_last(copy.deepcopy(tokenizer))
    assert other.encoder.conv_in.weight.is_contiguous(memory_format=torch.channels_last)
    x, y = to_float(pictures()), to_float(pictures(), channels_last=True)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, y)
    tokens = tokenizer.encode(x)
    assert torch.equal(other.encode(y), tokens)
    torch.testing.assert_close(other.decode(tokens), tokenizer.decode(tokens), atol=1e-5, rtol=1e-5)


def test_decoding_is_the_codes_reconstructed(tokenizer: VQTokenizer) -> None:
    found = tokenizer.quantise(to_float(pictures()))
    torch.testing.assert_close(tokenizer.decode(found.tokens), tokenizer.reconstruct(found.codes), atol=1e-5, rtol=1e-5)


def test_bytes_survive_the_way_to_floats_and_back() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(1, 16, 16, 3)
    floats = to_float(every)
    assert floats.shape == (1, 3, 16, 16)
    assert (float(floats.min()), float(floats.max())) == (-1.0, 1.0)
    assert torch.equal(to_bytes(floats), every)
    assert to_bytes(torch.full((1, 3, 1, 1), 1.7)).flatten().tolist() == [255, 255, 255]
