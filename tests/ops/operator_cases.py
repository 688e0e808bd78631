"""The table of operators, a row or a few for each: test_every_operator.py goes through it.

Here are the rows of the StyleGAN operators.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from elementwise_cases import ELEMENTWISE, Calls, Case, normal
from recurrent_cases import RECURRENT
from torch import Tensor

from lltm_jit.ops.bias_act import bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.fma import fma
from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.stylegan import implementation
from lltm_jit.ops.stylegan2 import fused_bias_act
from lltm_jit.ops.upfirdn2d import upfirdn2d

ops = torch.ops.lltm_jit

TAPS = torch.tensor([1.0, 3.0, 2.0])
FILTER = TAPS.outer(torch.tensor([1.0, 2.0]))


# Copied before any call: a graph takes no copy from the CPU, and one that is made inside a
# transform of torch.func is of its level.
FILTERS = {
    (device, f.dim()): f.to(device)
    for device in ("cpu", "meta", "cuda")[: 2 + torch.cuda.is_available()]
    for f in (TAPS, FILTER)
}


def beside(x: Tensor, rank: int = 1) -> Tensor:
    """A filter on the device of x, if that is a tensor."""
    return FILTERS[getattr(x, "device", TAPS.device).type, rank]


def bias_act_calls(*tensors: Tensor) -> Calls:
    x = tensors[0].detach()
    kind, grad = (1, 4, 0.0, 1.0, 0.5), torch.randn_like(x)
    return [
        ("bias_act", (*tensors, *kind)),
        ("bias_act_backward", (grad, x, None, *kind, [True, True])),
    ]


def upfirdn2d_calls(x: Tensor) -> Calls:
    wide = x.detach().repeat(1, 4, 1, 1).contiguous(memory_format=torch.channels_last)
    args = ([2, 1], [1, 3], [13, 14, 15, 16], True, 2.0)
    filters = [f if f is None else f.to(x.device) for f in (None, TAPS, FILTER)]
    return [
        ("upfirdn2d", (image, f, *args)) for image in (x, wide.requires_grad_()) for f in filters
    ]


def filtered_lrelu_calls(x: Tensor, b: Tensor) -> Calls:
    f, f2, plain = TAPS.to(x.device), FILTER.to(x.device), x.detach()
    call, found = (2, 3, [3, 4, 5, 6], 1.2, 0.2, 0.5, False), []
    for name, more in (("filtered_lrelu", ()), ("filtered_lrelu_forward", ([3, 14],))):
        found.append((name, (x, f, f2, b, *call, *more)))
        found.append((name, (plain, None, f2, None, *call, *more)))
    y, _ = ops.filtered_lrelu_forward(plain, f, None, b.detach(), 2, 1, *call[2:], [0, 0])
    size = list(y.shape[2:])
    words = 65 * -(-size[0] // 16) * -(-size[1] // 64)
    signs = torch.randint(-(2**31), 2**31, (*y.shape[:2], words), device=x.device).int()
    linear = (1, 2, [1, 0, 2, 1], size, [-2, -1], [0, 0], 1.0, 0.3, True)
    for with_sums in (False, True):
        args = (y.detach().requires_grad_(), signs, None, f, *linear, with_sums)
        found.append(("filtered_lrelu_linear", args))
    return found


def draw_images(large: bool) -> list[Tensor]:
    """Images, and a number for each channel."""
    return normal((2, 8, 65, 40) if large else (2, 2, 4, 3), (8 if large else 2,))


def sample(images: Tensor, grid: Tensor) -> Tensor:
    """Every pixel weighs 1 - |distance| in x and in y. Torch's own has no second derivative."""

    def weights(places: Tensor, size: int) -> Tensor:
        pixels = torch.arange(size, dtype=places.dtype, device=places.device)
        distances = ((places + 1) * size - 1).unsqueeze(-1) / 2 - pixels
        return (1 - distances.abs()).relu()

    across, down = weights(grid[..., 0], images.size(3)), weights(grid[..., 1], images.size(2))
    return torch.einsum("nchw,nijh,nijw->ncij", images, down, across)


def draw_points(large: bool) -> list[Tensor]:
    """Images, and points in them and around them."""
    batch, *size = (2, 3, 33, 31) if large else (2, 2, 4, 5)
    points = (17, 5) if large else (3, 2)
    grid = 2.8 * torch.rand(batch, *points, 2, dtype=torch.double) - 1.4
    return [*normal((batch, *size)), grid]


def with_reference(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [function, partial(function, impl="ref")]


def convolve(x: Tensor, w: Tensor) -> Tensor:
    return conv2d_resample(x, w, beside(x), up=2, padding=1)


STYLEGAN = [
    Case(
        f"bias_act {act}",
        ["x", "b"],
        *with_reference(partial(bias_act, act=act, clamp=0.9)),
        draw_images,
        family="stylegan",
        calls=bias_act_calls,
        optional=("b",),
    )
    for act in ("lrelu", "swish", "tanh")
]
STYLEGAN += [
    Case(
        "fused_bias_act",
        ["input", "bias"],
        *with_reference(
            lambda x, b, **impl: fused_bias_act(x, b, None, 3, 0, 0.2, -1.5, **impl),
        ),
        draw_images,
        family="stylegan",
        calls=lambda x, b: [("fused_bias_act", (x, b, None, 3, 0, 0.2, 1.5))],
        optional=("bias",),
    ),
    Case(
        "upfirdn2d",
        ["x"],
        *with_reference(
            lambda x, **impl: upfirdn2d(x, beside(x), 2, [1, 3], [1, 2, -1, 3], **impl),
        ),
        lambda large: draw_images(large)[:1],
        family="stylegan",
        calls=upfirdn2d_calls,
    ),
    Case(
        "filtered_lrelu",
        ["x", "b"],
        *with_reference(
            lambda x, b, **impl: filtered_lrelu(
                x, beside(x), beside(x, rank=2), b, 2, 2, 4, clamp=0.9, **impl
            ),
        ),
        draw_images,
        family="stylegan",
        calls=filtered_lrelu_calls,
        optional=("b",),
    ),
    Case(
        "fma",
        ["a", "b", "c"],
        fma,
        lambda a, b, c: a * b + c,
        lambda large: normal(*([(41, 33, 65)] * 3 if large else [(2, 3, 4), (3, 1), (2, 1, 1)])),
        sees="addcmul",
    ),
    Case(
        "grid_sample",
        ["input", "grid"],
        grid_sample,
        sample,
        draw_points,
        sees="grid_sampler_2d",
        exact_on_gpus=False,
    ),
    Case(
        "conv2d_resample",
        ["x", "w"],
        convolve,
        implementation("ref")(convolve),
        lambda large: normal(
            *[(2, 8, 33, 20), (5, 8, 3, 3)] if large else [(1, 2, 4, 3), (2, 2, 3, 2)]
        ),
        under_autocast=(torch.bfloat16,),
        sees="upfirdn2d",
        library_sums=True,
    ),
]

CASES = [*ELEMENTWISE, *RECURRENT, *STYLEGAN]
