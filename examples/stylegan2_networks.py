"""The networks of examples/stylegan2_train.py: a small StyleGAN2 for images of one channel.

Source of the maths: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2020).
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from lltm_jit.ops.bias_act import bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.fma import fma
from lltm_jit.ops.upfirdn2d import setup_filter, upsample2d

FILTER = (1, 3, 3, 1)  # applied before an image shrinks, and after it grows


class Linear(nn.Module):
    """(N, in) -> (N, out), and an activation.

    The weights are of unit size, and scaled at run time, so that all layers learn at one speed.
    """

    def __init__(
        self, inputs: int, outputs: int, act: str = "linear", bias: float = 0.0, lr: float = 1.0
    ):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / lr)
        self.bias = nn.Parameter(torch.full((outputs,), bias / lr))
        self.scale, self.lr, self.act = lr / math.sqrt(inputs), lr, act

    def forward(self, x: Tensor) -> Tensor:
        return bias_act(x @ (self.weight * self.scale).t(), self.bias * self.lr, act=self.act)


class Conv(nn.Module):
    """(N, in, H, W) -> (N, out, H, W), or half as high and wide, and an activation."""

    def __init__(self, inputs: int, outputs: int, size: int, down: int = 1, act: str = "lrelu"):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(outputs)) if act != "linear" else None
        self.scale, self.down, self.act = 1 / math.sqrt(inputs * size**2), down, act

    def forward(self, x: Tensor, blur: Tensor, gain: float = 1.0) -> Tensor:
        padding = self.weight.size(2) // 2
        x = conv2d_resample(x, self.weight * self.scale, blur, down=self.down, padding=padding)
        return bias_act(x, self.bias, act=self.act) * gain


class ModulatedConv(nn.Module):
    """A convolution whose input channels a style scales, with noise and an activation.

    The scaled weights of each output channel are brought back to unit size, except in layers that
    make an image (`rgb`). Scaling the weights of each sample is the same as scaling its inputs and
    its results, and so a batch shares one convolution.
    """

    def __init__(
        self, inputs: int, outputs: int, size: int, styles: int, up: int = 1, rgb: bool = False
    ):
        super().__init__()
        self.style = Linear(styles, inputs, bias=1.0)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.noise_strength = None if rgb else nn.Parameter(torch.zeros(()))
        self.scale, self.up, self.rgb = 1 / math.sqrt(inputs * size**2), up, rgb

    def forward(self, x: Tensor, w: Tensor, blur: Tensor) -> Tensor:
        style = self.style(w)
        weight, padding = self.weight * self.scale, self.weight.size(2) // 2
        x = x * style[:, :, None, None]
        x = conv2d_resample(x, weight, blur, up=self.up, padding=padding)
        if self.rgb:
            return bias_act(x, self.bias)
        squares = style.square() @ weight.square().sum((2, 3)).t()
        demodulate = (squares + 1e-8).rsqrt()[:, :, None, None]
        noise = torch.randn(len(x), 1, *x.shape[2:], device=x.device) * self.noise_strength
        return bias_act(fma(x, demodulate, noise), self.bias, act="lrelu")


class Generator(nn.Module):
    """Random numbers (N, latent) and classes (N,) -> images (N, 1, size, size), about -1 to 1."""

    def __init__(self, size: int, channels: int, latent: int, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(classes, latent)
        layers = [Linear(2 * latent, latent, "lrelu", lr=0.01)]
        layers += [Linear(latent, latent, "lrelu", lr=0.01) for _ in range(2)]
        self.mapping = nn.Sequential(*layers)
        widths = layer_widths(size, channels)
        self.constant = nn.Parameter(torch.randn(widths[0], 4, 4))
        self.convs, self.to_image = nn.ModuleList(), nn.ModuleList()
        for level, width in enumerate(widths):
            if level:
                self.convs.append(ModulatedConv(widths[level - 1], width, 3, latent, up=2))
            self.convs.append(ModulatedConv(width, width, 3, latent))
            self.to_image.append(ModulatedConv(width, 1, 1, latent, rgb=True))
        self.register_buffer("blur", setup_filter(FILTER))

    def forward(self, z: Tensor, classes: Tensor) -> Tensor:
        w = self.mapping(torch.cat([unit(z), unit(self.embedding(classes))], 1))
        x = self.constant.expand(len(z), -1, -1, -1)
        convs = iter(self.convs)
        x = next(convs)(x, w, self.blur)
        image = self.to_image[0](x, w, self.blur)
        for to_image in self.to_image[1:]:
            x = next(convs)(x, w, self.blur)
            x = next(convs)(x, w, self.blur)
            image = upsample2d(image, self.blur) + to_image(x, w, self.blur)
        return image


class Discriminator(nn.Module):
    """Images (N, 1, size, size) and classes (N,) -> (N,), logits: is it a real one of its class?"""

    def __init__(self, size: int, channels: int, classes: int):
        super().__init__()
        widths = layer_widths(size, channels)[::-1]
        self.from_image = Conv(1, widths[0], 1)
        self.blocks = nn.ModuleList()
        for width, next_width in pairwise(widths):
            block = [Conv(width, width, 3), Conv(width, next_width, 3, down=2)]
            block.append(Conv(width, next_width, 1, down=2, act="linear"))
            self.blocks.append(nn.ModuleList(block))
        self.last = Conv(widths[-1] + 1, widths[-1], 3)
        self.hidden = Linear(16 * widths[-1], widths[-1], "lrelu")
        self.logits = Linear(widths[-1], classes)
        self.register_buffer("blur", setup_filter(FILTER))

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        x = self.from_image(images, self.blur)
        for first, second, skip in self.blocks:
            left = skip(x, self.blur, math.sqrt(0.5))
            x = left + second(first(x, self.blur), self.blur, math.sqrt(0.5))
        # How much a batch varies: the generator must not make the same image each time.
        variation = x.var(0, correction=0).add(1e-8).sqrt().mean().expand(len(x), 1, 4, 4)
        x = self.last(torch.cat([x, variation], 1), self.blur)
        return self.logits(self.hidden(x.flatten(1))).gather(1, classes[:, None]).squeeze(1)


def layer_widths(size: int, channels: int) -> list[int]:
    """Channels at 4x4, 8x8, ... `size`: half as many in the last, which has the most pixels."""
    levels = int(math.log2(size)) - 1
    return [channels] * (levels - 1) + [max(1, channels // 2)]


def unit(x: Tensor) -> Tensor:
    """Rows scaled to a mean square of 1."""
    return x * (x.square().mean(1, keepdim=True) + 1e-8).rsqrt()
