"""Configurations refuse what no network can be built from, by the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from pixdraft.models.config import LLAMAGEN, VQ16, ConfigError, TransformerConfig, VQConfig


@pytest.mark.parametrize("field", ["dim", "layers", "heads", "ffn_dim", "vocab_size", "grid", "condition_length"])
@pytest.mark.parametrize("value", [0, -4, 2.0, "8", None, True])
def test_sizes_of_a_transformer_are_whole_numbers(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"TransformerConfig\.{field} must be a whole number"):
        TransformerConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["rope_base", "norm_eps"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", True])
def test_constants_of_a_transformer_are_above_zero(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"TransformerConfig\.{field} must be a finite number above 0"):
        TransformerConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("dim", "heads"), [(256, 3), (24, 4), (6, 1)])
def test_a_head_splits_twice(dim: int, heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"TransformerConfig\.dim {dim} over {heads} heads is no multiple of 4"):
        TransformerConfig(dim=dim, heads=heads)


@pytest.mark.parametrize(
    "field", ["channels", "res_blocks", "latent_channels", "codebook_size", "codebook_dim", "norm_groups"]
)
@pytest.mark.parametrize("value", [0, 1.5, "3"])
def test_sizes_of_a_tokenizer_are_whole_numbers(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"VQConfig\.{field} must be a whole number"):
        VQConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [(), (1, 0), (1, 2.0), 4, "12"])
def test_every_level_has_a_width(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"VQConfig\.multipliers must be whole numbers"):
        VQConfig(multipliers=value)


def test_groups_divide_the_channels() -> None:
    with pytest.raises(ConfigError, match=r"VQConfig\.channels 16 is no multiple of norm_groups 5"):
        VQConfig(channels=16, norm_groups=5)


@pytest.mark.parametrize("shape", [TransformerConfig(), *LLAMAGEN.values()])
def test_a_transformer_s_values_survive_json(shape: TransformerConfig) -> None:
    assert TransformerConfig.from_dict(shape.to_dict()) == shape


def test_a_tokenizer_s_values_survive_json() -> None:
    assert VQ16.to_dict()["multipliers"] == [1, 1, 2, 2, 4]
    assert VQConfig.from_dict(VQ16.to_dict()) == VQ16


@pytest.mark.parametrize("kind", [TransformerConfig, VQConfig])
def test_fields_are_all_there_and_no_others(kind: type[TransformerConfig] | type[VQConfig]) -> None:
    values = kind().to_dict()
    with pytest.raises(ConfigError, match=rf"{kind.__name__} has no field 'colour': remove it"):
        kind.from_dict(values | {"colour": 1})
    for name in values:
        with pytest.raises(ConfigError, match=rf"{kind.__name__} lacks the field '{name}': add it"):
            kind.from_dict({k: v for k, v in values.items() if k != name})


def test_derived_sizes() -> None:
    shape = TransformerConfig(dim=64, heads=4, grid=4, condition_length=10)
    assert (shape.head_dim, shape.image_tokens, shape.length) == (16, 16, 26)
    assert VQ16.downsampling == 16
