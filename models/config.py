"""Shapes of the networks, as frozen dataclasses that check themselves and read and write plain JSON values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


class ConfigError(ValueError):
    """A configuration value is missing, unknown or out of range; the message names the field."""


class _Config:
    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build from JSON values; unknown and missing fields are refused by name."""
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        if unknown := sorted(set(values) - known):
            raise ConfigError(f"{cls.__name__} has no field {unknown[0]!r}: remove it")
        if missing := sorted(known - set(values)):
            raise ConfigError(f"{cls.__name__} lacks the field {missing[0]!r}: add it")
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}  # type: ignore[call-overload]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _positive(owner: object, *names: str) -> None:
    for name in names:
        if not _whole(value := getattr(owner, name)):
            raise ConfigError(f"{type(owner).__name__}.{name} must be a whole number of at least 1, not {value!r}")


def _finite(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ConfigError(f"{type(owner).__name__}.{name} must be a finite number above 0, not {value!r}")


def _widths(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(_whole, value))


@dataclass(frozen=True)
class TransformerConfig(_Config):
    """Shape of a LlamaGen decoder. Defaults are the bundled model's; `LLAMAGEN` holds the published sizes.

    Attributes:
        dim: model width d.
        layers: decoder blocks.
        heads: attention heads; head_dim = dim / heads, a multiple of 4 (2-D RoPE splits it twice).
        ffn_dim: hidden width of SwiGLU.
        vocab_size: visual codes V.
        grid: image tokens a side; T = grid ** 2.
        condition_length: condition tokens before the image (LlamaGen: 120 text, 1 class).
        rope_base, norm_eps: as LlamaGen.
    """

    dim: int = 256
    layers: int = 6
    heads: int = 4
    ffn_dim: int = 768
    vocab_size: int = 1024
    grid: int = 16
    condition_length: int = 10
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        _positive(self, "dim", "layers", "heads", "ffn_dim", "vocab_size", "grid", "condition_length")
        _finite(self, "rope_base", "norm_eps")
        if self.dim % self.heads or (self.dim // self.heads) % 4:
            raise ConfigError(f"TransformerConfig.dim {self.dim} over {self.heads} heads is no multiple of 4")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.dim // self.heads

    @property
    def image_tokens(self) -> int:
        """T, tokens of one picture."""
        return self.grid**2

    @property
    def length(self) -> int:
        """Positions of the table: condition and image."""
        return self.condition_length + self.image_tokens


def _llamagen(layers: int, dim: int, heads: int, ffn_dim: int) -> TransformerConfig:
    return TransformerConfig(dim, layers, heads, ffn_dim, vocab_size=16384, grid=16, condition_length=120)


LLAMAGEN = {
    "B": _llamagen(12, 768, 12, 2048),
    "L": _llamagen(24, 1024, 16, 2816),
    "XL": _llamagen(36, 1280, 20, 3584),
    "XXL": _llamagen(48, 1536, 24, 4096),
    "3B": _llamagen(24, 3200, 32, 8704),
}


@dataclass(frozen=True)
class VQConfig(_Config):
    """Shape of LlamaGen's VQ tokenizer; `VQ16` holds the published one, the defaults are the bundled model's.

    Attributes:
        channels: width at full resolution.
        multipliers: width of each level over `channels`; each level but the last halves the side.
        res_blocks: residual blocks a level in the encoder (the decoder has one more).
        latent_channels: width between the networks and the codebook's projections.
        codebook_size, codebook_dim: V codes of this width, L2-normalised at look-up.
        norm_groups: groups of every GroupNorm.
    """

    channels: int = 16
    multipliers: tuple[int, ...] = (1, 4, 8)
    res_blocks: int = 1
    latent_channels: int = 64
    codebook_size: int = 1024
    codebook_dim: int = 8
    norm_groups: int = 8

    def __post_init__(self) -> None:
        _positive(self, "channels", "res_blocks", "latent_channels", "codebook_size", "codebook_dim", "norm_groups")
        if not _widths(self.multipliers):
            raise ConfigError(
                f"VQConfig.multipliers must be whole numbers of at least 1, one a level, not {self.multipliers!r}"
            )
        if self.channels % self.norm_groups:
            raise ConfigError(f"VQConfig.channels {self.channels} is no multiple of norm_groups {self.norm_groups}")

    @property
    def downsampling(self) -> int:
        """Pixels a token, each way."""
        return int(2 ** (len(self.multipliers) - 1))


VQ16 = VQConfig(128, (1, 1, 2, 2, 4), 2, 256, 16384, 8, 32)
