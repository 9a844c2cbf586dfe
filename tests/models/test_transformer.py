"""The decoder: its mathematics against independent references, and the cache against passes without one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pixdraft.models.config import TransformerConfig
from pixdraft.models.transformer import RMSNorm, StaticCache, Transformer, attention_mask, rope_table, rotate
from tiny import decoder

SHAPE = TransformerConfig(dim=32, layers=2, heads=2, ffn_dim=64, vocab_size=16, grid=4, condition_length=5)
PROMPTS = torch.tensor([[0, 0, 3, 1, 2], [4, 1, 2, 3, 1]])  # word ids; 0 is padding


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    return decoder(SHAPE, vocabulary=5)


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return torch.randint(0, SHAPE.vocab_size, (2, SHAPE.image_tokens), generator=torch.Generator().manual_seed(1))


def embedded(model: Transformer, tokens: Tensor) -> tuple[Tensor, Tensor]:
    prompt, valid = model.cls_embedding(PROMPTS)
    return torch.cat([prompt, model.tok_embeddings(tokens)], dim=1), valid


@pytest.mark.parametrize("chunks", [(5, 1, 1, 8, 2, 1, 3), (3, 4, 14), (21,), (1,) * 21])
def test_passes_in_chunks_equal_one_pass(model: Transformer, tokens: Tensor, chunks: tuple[int, ...]) -> None:
    x, valid = embedded(model, tokens)
    assert sum(chunks) == x.shape[1] == SHAPE.length
    cache, first, parts = StaticCache(SHAPE, 2), 0, []
    for count in chunks:
        parts.append(model.core(x[:, first : first + count], valid, first, cache))
        first += count
    torch.testing.assert_close(torch.cat(parts, 1), model.core(x, valid), atol=1e-5, rtol=1e-5)


def test_writing_at_a_position_is_the_rollback(model: Transformer, tokens: Tensor) -> None:
    x, valid = embedded(model, tokens)
    wrong, _ = embedded(model, (tokens + 1) % SHAPE.vocab_size)
    cache = StaticCache(SHAPE, 2)
    model.core(x[:, :9], valid, 0, cache)
    model.core(wrong[:, 9:], valid, 9, cache)
    again = torch.cat([model.core(x[:, 9:11], valid, 9, cache), model.core(x[:, 11:], valid, 11, cache)], 1)
    torch.testing.assert_close(again, model.core(x, valid)[:, 9:], atol=1e-5, rtol=1e-5)


def test_logits_are_the_head_over_states_that_predict(model: Transformer, tokens: Tensor) -> None:
    logits = model(PROMPTS, tokens[:, :6])
    assert logits.shape == (2, 7, SHAPE.vocab_size)
    x, valid = embedded(model, tokens)
    expected = model.core(x, valid)[:, 4:11] @ model.output.weight.T
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert logits.std() > 0.3  # else the comparisons of this file would see nothing


def test_later_tokens_change_nothing_before_them(model: Transformer, tokens: Tensor) -> None:
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % SHAPE.vocab_size
    before, after = model(PROMPTS, tokens), model(PROMPTS, changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:], atol=1e-3)


def test_features_are_added_to_their_token(model: Transformer, tokens: Tensor) -> None:
    extra = torch.zeros(2, 16, SHAPE.dim)
    plain = model.hidden(PROMPTS, tokens)
    assert torch.equal(model.hidden(PROMPTS, tokens, extra=extra), plain)
    extra[:, 5] = model.tok_embeddings.weight[3] - model.tok_embeddings(tokens[:, 5])
    swapped = tokens.clone()
    swapped[:, 5] = 3
    expected = model.hidden(PROMPTS, swapped)
    torch.testing.assert_close(model.hidden(PROMPTS, tokens, extra=extra), expected, atol=1e-5, rtol=1e-5)


def test_rotation_is_a_complex_product() -> None:
    """x_pair * e^(i angle), the first half of a head by its row, the second by its column; conditions times zero."""
    d, grid, prompt = SHAPE.head_dim, SHAPE.grid, SHAPE.condition_length
    x = torch.randn(1, SHAPE.length, SHAPE.heads, d, generator=torch.Generator().manual_seed(2))
    turned = rotate(x, rope_table(SHAPE))[0].double().numpy()
    pairs = x[0].double().numpy()
    z = pairs[..., 0::2] + 1j * pairs[..., 1::2]
    expected = np.zeros_like(pairs)
    for position in range(SHAPE.length):
        for j in range(d // 2):
            factor = 0.0 + 0.0j
            if position >= prompt:
                row, column = divmod(position - prompt, grid)
                place, k = (row, j) if j < d // 4 else (column, j - d // 4)
                factor = np.exp(1j * place * 10000.0 ** (-2.0 * k / (d / 2)))
            product = z[position, :, j] * factor
            expected[position, :, 2 * j], expected[position, :, 2 * j + 1] = product.real, product.imag
    np.testing.assert_allclose(turned, expected, atol=1e-5)
    assert not turned[:prompt].any()
    np.testing.assert_allclose(turned[prompt], pairs[prompt], atol=1e-6)  # row 0, column 0: as it was


def test_the_norm_is_computed_in_float32() -> None:
    torch.manual_seed(3)
    norm = RMSNorm(64, 1e-5).bfloat16()
    x = (torch.randn(50, 64) * 30).bfloat16()
    wide = x.float()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    out = norm(x)
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).abs().max() <= 2**-8 * exact.abs().max()  # one rounding, at the end
    narrow = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    assert (out.float() - exact).abs().mean() < (narrow.float() - exact).abs().mean()
    with torch.no_grad():
        norm.weight.fill_(2.0)
    assert torch.equal(norm(x), out * 2)


def test_the_mask_is_causal_hides_padding_and_keeps_the_diagonal() -> None:
    mask = attention_mask(torch.tensor([[False, False, True], [True, True, True]]), 0, 4)[:, 0]
    assert mask[0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert mask[1].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    later = attention_mask(torch.tensor([[False, False, True]]), 3, 2)
    assert later.shape == (1, 1, 2, 5)
    assert later[0, 0].int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]


def test_what_stands_behind_the_padding_never_matters(model: Transformer, tokens: Tensor) -> None:
    x, valid = embedded(model, tokens)
    garbage = x.clone()
    garbage[:, :5][~valid] = 100 * torch.randn(int((~valid).sum()), SHAPE.dim)
    assert not torch.equal(garbage, x)
    plain, changed = model.core(x, valid), model.core(garbage, valid)
    assert torch.equal(plain[:, 5:], changed[:, 5:])
    assert torch.equal(plain[:, :5][valid], changed[:, :5][valid])
    assert changed.isfinite().all()


def test_the_unconditional_row_forgets_the_words_but_not_the_padding(model: Transformer, tokens: Tensor) -> None:
    drop = torch.tensor([True, True])
    padded = torch.tensor([[0, 0, 3, 1, 2], [0, 0, 4, 4, 1]])
    rows = model(padded, tokens[:1].expand(2, -1), drop)
    assert torch.equal(rows[0], rows[1])
    full = model(torch.tensor([[1, 2, 3, 1, 2]]), tokens[:1], drop[:1])
    assert not torch.allclose(full[0], rows[0], atol=1e-3)
    mixed = model(padded, tokens[:1].expand(2, -1), torch.tensor([False, True]))
    torch.testing.assert_close(mixed[1], rows[1], atol=1e-6, rtol=1e-6)
    assert torch.equal(mixed[0], model(padded, tokens[:1].expand(2, -1))[0])
    assert not torch.allclose(mixed[0], mixed[1], atol=1e-3)
