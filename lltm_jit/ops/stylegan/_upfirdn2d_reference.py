"""upfirdn2d in plain PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor

from lltm_jit.ops.stylegan._arguments import Factor, Padding, pair, sides_of
from lltm_jit.ops.stylegan._implementation import result_like


def upfirdn2d_reference(
    x: Tensor,
    f: Tensor | None,
    up: Factor = 1,
    down: Factor = 1,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
) -> Tensor:
    """``upfirdn2d`` in plain PyTorch: the definition, step by step; 16-bit types in float.

    It calls no convolution of torch, because settings may round that to TF32 or bfloat16.
    """
    up_x, up_y = pair("upfirdn2d", "up", up)
    down_x, down_y = pair("upfirdn2d", "down", down)
    n, c, height, width = x.shape
    dtype = torch.double if x.dtype == torch.double else torch.float
    y = x.to(dtype)
    if up_x > 1 or up_y > 1:
        y = F.pad(y.reshape(n, c, height, 1, width, 1), (0, up_x - 1, 0, 0, 0, up_y - 1))
        y = y.reshape(n, c, height * up_y, width * up_x)
    sides = [s if isinstance(s, torch.SymInt) else index(s) for s in sides_of("upfirdn2d", padding)]
    y = F.pad(y, [torch.sym_max(side, 0) for side in sides])
    if any(side < 0 for side in sides):  # a side may lose more than the image has
        y = F.pad(y, [torch.sym_min(side, 0) for side in sides])
    if f is None:
        y = y[:, :, ::down_y, ::down_x]
    else:
        taps = f.detach().to(dtype) if flip_filter else f.detach().to(dtype).flip([*range(f.ndim)])
        if f.ndim == 1:
            y = _correlate(_correlate(y, taps, 3, down_x), taps, 2, down_y)
        else:
            rows = _met(y, taps.shape[0], 2, down_y)
            y = _sum(_correlate(row, taps[t], 3, down_x) for t, row in enumerate(rows))
    return result_like(x, (y * gain).to(x.dtype))


def _correlate(x: Tensor, taps: Tensor, dim: int, step: int) -> Tensor:
    """Correlate along a dimension, and keep every `step`-th result."""
    return _sum(part * taps[t] for t, part in enumerate(_met(x, taps.shape[0], dim, step)))


def _met(x: Tensor, taps: int, dim: int, step: int) -> Iterator[Tensor]:
    """The part of x that each tap multiplies; its gradient is no larger than that of x."""
    for t in range(taps):
        part = slice(t, x.shape[dim] - taps + 1 + t, step)
        yield x[:, :, part] if dim == 2 else x[:, :, :, part]


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)
