"""The decoder of pictures in operators that XNNPACK takes, so that it runs as one call of the delegate.

The same function as `export.graph.PictureGraph`, but

- GroupNorm is made of means over the map, which pooling gives, and 1 x 1 convolutions that average within groups;
- doubling the size and then convolving 3 x 3 is one transposed convolution of 4 x 4 taps with stride 2, because the
  doubled pixels are equal in pairs: less than half the work;
- attention is written out, without the cases that softmax cannot have here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.export.graph import PictureGraph
from pixdraft.models.tokenizer import AttnBlock, Level, ResnetBlock, Upsample


class Norm(nn.Module):
    """GroupNorm over [1, C, H, W]."""

    average: Tensor

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        channels, size = norm.num_channels, norm.num_channels // norm.num_groups
        same = torch.arange(channels) // size
        average = (same[:, None] == same[None]).float() / size
        self.register_buffer("average", average[:, :, None, None].contiguous(), persistent=False)
        self.weight = nn.Parameter(norm.weight.detach()[None, :, None, None].clone(), requires_grad=False)
        self.bias = nn.Parameter(norm.bias.detach()[None, :, None, None].clone(), requires_grad=False)
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - self._mean(x)
        scale = torch.rsqrt(self._mean(centred * centred) + self.eps) * self.weight
        return centred * scale + self.bias

    def _mean(self, x: Tensor) -> Tensor:
        """Mean over each group, [1, C, 1, 1]."""
        return F.conv2d(x.mean((2, 3), keepdim=True), self.average)


class Residual(nn.Module):
    """See `models.tokenizer.ResnetBlock`."""

    def __init__(self, block: ResnetBlock) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(block.norm1), Norm(block.norm2)
        self.conv1, self.conv2, self.shortcut = block.conv1, block.conv2, block.nin_shortcut

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.shortcut is None else self.shortcut(x))


class Attention(nn.Module):
    """See `models.tokenizer.AttnBlock`."""

    def __init__(self, block: AttnBlock) -> None:
        super().__init__()
        self.norm = Norm(block.norm)
        self.q, self.k, self.v, self.proj_out = block.q, block.k, block.v, block.proj_out

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        channels, places = x.shape[1], x.shape[2] * x.shape[3]
        q, k, v = (f(normed).view(1, channels, places) for f in (self.q, self.k, self.v))
        weights = torch.softmax(torch.bmm(q.permute(0, 2, 1), k) * channels**-0.5, dim=-1)
        mixed = torch.bmm(v, weights.permute(0, 2, 1))
        return x + self.proj_out(mixed.view(x.shape))


def doubling(upsample: Upsample) -> nn.ConvTranspose2d:
    """Nearest-neighbour doubling and the 3 x 3 convolution after it, as one layer."""
    conv = upsample.conv
    made = nn.ConvTranspose2d(conv.in_channels, conv.out_channels, 4, stride=2, padding=1)
    first, second, third = conv.weight.detach().unbind(2)
    rows = torch.stack([third, second + third, first + second, first], dim=2)
    first, second, third = rows.unbind(3)
    taps = torch.stack([third, second + third, first + second, first], dim=3)
    with torch.no_grad():
        made.weight.copy_(taps.transpose(0, 1))
        assert made.bias is not None
        assert conv.bias is not None
        made.bias.copy_(conv.bias)
    return made.requires_grad_(False)


def _level(level: Level) -> list[nn.Module]:
    steps: list[nn.Module] = []
    for i, block in enumerate(level.res):
        steps.append(Residual(block))
        if len(level.attn):
            steps.append(Attention(level.attn[i]))
    if isinstance(level.upsample, Upsample):
        steps.append(doubling(level.upsample))
    return steps


class XnnPicture(nn.Module):
    """See `PictureGraph`.

    Args:
        picture: that it does the work of; convolutions are shared with it.
    """

    units: Tensor

    def __init__(self, picture: PictureGraph) -> None:
        super().__init__()
        self.register_buffer("units", picture.units, persistent=False)
        self.post_quant_conv = picture.post_quant_conv
        decoder = picture.decoder
        self.conv_in = decoder.conv_in
        first, attention, second = decoder.mid
        levels = [step for level in decoder.conv_blocks for step in _level(level)]
        self.steps = nn.Sequential(Residual(first), Attention(attention), Residual(second), *levels)
        self.norm_out, self.conv_out = Norm(decoder.norm_out), decoder.conv_out

    def forward(self, tokens: Tensor) -> Tensor:
        """Pixels [1, 3, H, W] in about [-1, 1] of tokens [1, T]."""
        side = int(tokens.shape[1] ** 0.5)
        codes = F.embedding(tokens, self.units).view(1, side, side, -1).permute(0, 3, 1, 2)
        x = self.steps(self.conv_in(self.post_quant_conv(codes)))
        return self.conv_out(F.silu(self.norm_out(x)))
