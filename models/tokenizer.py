"""The VQ picture tokenizer of LlamaGen (arXiv 2406.06525), with the parameter names of its checkpoints.

Pictures are float [B, 3, H, W] in [-1, 1]; tokens are int64 [B, (H / f) * (W / f)] in rows, f the downsampling.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.models.config import VQConfig


def _norm(channels: int, config: VQConfig) -> nn.GroupNorm:
    return nn.GroupNorm(config.norm_groups, channels, eps=1e-6)


def _conv3(inputs: int, outputs: int, stride: int = 1, padding: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding)


class ResnetBlock(nn.Module):
    """Norm, SiLU, 3x3 convolution, twice, over a skip; [B, inputs, H, W] -> [B, outputs, H, W]."""

    def __init__(self, inputs: int, outputs: int, config: VQConfig) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(inputs, config), _conv3(inputs, outputs)
        self.norm2, self.conv2 = _norm(outputs, config), _conv3(outputs, outputs)
        self.nin_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class AttnBlock(nn.Module):
    """One-head self-attention over all places of a map, with a skip."""

    def __init__(self, channels: int, config: VQConfig) -> None:
        super().__init__()
        self.norm = _norm(channels, config)
        self.q, self.k, self.v = (nn.Conv2d(channels, channels, 1) for _ in range(3))
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        q, k, v = (f(normed).flatten(2).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return x + self.proj_out(mixed.transpose(1, 2).reshape(x.shape))


class Downsample(nn.Module):
    """Stride-2 convolution, padded right and below only, as taming-transformers has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = _conv3(channels, channels, stride=2, padding=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    """Nearest-neighbour doubling, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = _conv3(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Level(nn.Module):
    """One resolution: residual blocks, attention after each where there is any, and the change of size."""

    def __init__(self, inputs: int, outputs: int, blocks: int, attention: bool, config: VQConfig) -> None:
        super().__init__()
        self.res = nn.ModuleList(ResnetBlock(inputs if i == 0 else outputs, outputs, config) for i in range(blocks))
        self.attn = nn.ModuleList(AttnBlock(outputs, config) for _ in range(blocks if attention else 0))
        self.downsample: nn.Module | None = None
        self.upsample: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.res):
            x = block(x)
            if len(self.attn):
                x = self.attn[i](x)
        for resize in (self.downsample, self.upsample):
            if resize is not None:
                x = resize(x)
        return x


def _middle(channels: int, config: VQConfig) -> nn.ModuleList:
    return nn.ModuleList(
        [ResnetBlock(channels, channels, config), AttnBlock(channels, config), ResnetBlock(channels, channels, config)]
    )


class Encoder(nn.Module):
    """Picture [B, 3, H, W] -> latent [B, latent_channels, H / f, W / f]."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = _conv3(3, config.channels)
        self.conv_blocks = nn.ModuleList()
        last = len(widths) - 1
        for i, width in enumerate(widths):
            before = widths[i - 1] if i else config.channels
            level = Level(before, width, config.res_blocks, i == last, config)
            if i != last:
                level.downsample = Downsample(width)
            self.conv_blocks.append(level)
        self.mid = _middle(widths[-1], config)
        self.norm_out = _norm(widths[-1], config)
        self.conv_out = _conv3(widths[-1], config.latent_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for block in (*self.conv_blocks, *self.mid):
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Decoder(nn.Module):
    """Latent [B, latent_channels, h, w] -> picture [B, 3, h * f, w * f]."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers][::-1]
        self.conv_in = _conv3(config.latent_channels, widths[0])
        self.mid = _middle(widths[0], config)
        self.conv_blocks = nn.ModuleList()
        last = len(widths) - 1
        for i, width in enumerate(widths):
            level = Level(widths[max(i - 1, 0)], width, config.res_blocks + 1, i == 0, config)
            if i != last:
                level.upsample = Upsample(width)
            self.conv_blocks.append(level)
        self.norm_out = _norm(widths[-1], config)
        self.conv_out = _conv3(widths[-1], 3)

    def forward(self, z: Tensor) -> Tensor:
        z = self.conv_in(z)
        for block in (*self.mid, *self.conv_blocks):
            z = block(z)
        return self.conv_out(F.silu(self.norm_out(z)))


class Quantised(NamedTuple):
    """What the codebook made of a latent map.

    Attributes:
        codes: [B, codebook_dim, h, w], unit length, straight-through gradients to the encoder.
        tokens: int64 [B, h * w].
        normalised: [B * h * w, codebook_dim], the encoder's own unit vectors.
        loss: codebook and commitment loss, a scalar.
    """

    codes: Tensor
    tokens: Tensor
    normalised: Tensor
    loss: Tensor


class Codebook(nn.Module):
    """V unit codes; the nearest by cosine stands for each place. The commitment weight is LlamaGen's 0.25."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.codebook_size, config.codebook_dim)
        nn.init.normal_(self.embedding.weight)

    def units(self) -> Tensor:
        """The codes, normalised, [V, codebook_dim]."""
        return F.normalize(self.embedding.weight, dim=-1)

    def forward(self, z: Tensor) -> Quantised:
        batch, dim, height, width = z.shape
        flat = F.normalize(z.permute(0, 2, 3, 1).reshape(-1, dim), dim=-1)
        units = self.units()
        index = (flat @ units.t()).argmax(1)
        codes = units[index]
        loss = F.mse_loss(codes, flat.detach()) + 0.25 * F.mse_loss(flat, codes.detach())
        through = flat + (codes - flat).detach()
        shaped = through.view(batch, height, width, dim).permute(0, 3, 1, 2)
        return Quantised(shaped, index.view(batch, height * width), flat, loss)


class VQTokenizer(nn.Module):
    """Pictures to tokens and back.

    Args:
        config: the shape; `pixdraft.models.config.VQ16` loads LlamaGen's own files.
    """

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.quantize = Codebook(config)
        self.quant_conv = nn.Conv2d(config.latent_channels, config.codebook_dim, 1)
        self.post_quant_conv = nn.Conv2d(config.codebook_dim, config.latent_channels, 1)

    def quantise(self, pictures: Tensor) -> Quantised:
        """Encode and look up, with the losses; pictures [B, 3, H, W] in [-1, 1]."""
        return self.quantize(self.quant_conv(self.encoder(pictures)))

    def encode(self, pictures: Tensor) -> Tensor:
        """Tokens of pictures, int64 [B, T]."""
        return self.quantise(pictures).tokens

    def reconstruct(self, codes: Tensor) -> Tensor:
        """Pictures of code vectors [B, codebook_dim, h, w]."""
        return self.decoder(self.post_quant_conv(codes))

    def decode(self, tokens: Tensor) -> Tensor:
        """Pictures [B, 3, H, W] in about [-1, 1] from tokens [B, T] of a square grid."""
        side = int(tokens.shape[1] ** 0.5)
        codes = self.quantize.units()[tokens].view(tokens.shape[0], side, side, -1).permute(0, 3, 1, 2)
        return self.reconstruct(codes.contiguous())


def channels_last(tokenizer: VQTokenizer) -> VQTokenizer:
    """Lay the weights out for channels-last pictures: convolutions on a CPU are faster so."""
    for parameter in tokenizer.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return tokenizer


def to_float(pictures: Tensor, channels_last: bool = False) -> Tensor:
    """uint8 [B, H, W, 3] to float [B, 3, H, W] in [-1, 1], if wanted in channels-last memory."""
    planes = pictures.permute(0, 3, 1, 2).float() / 127.5 - 1.0
    return planes.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def to_bytes(pictures: Tensor) -> Tensor:
    """Float [B, 3, H, W] in about [-1, 1] to uint8 [B, H, W, 3]."""
    return ((pictures.clamp(-1, 1) + 1.0) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
