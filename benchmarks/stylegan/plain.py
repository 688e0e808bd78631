"""The StyleGAN operators as a user of PyTorch would write them to be fast.

The operators' own formulas (``impl="ref"``) are definitions: exact, and slower.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch.nn.functional as F
from torch import Tensor

from lltm_jit.ops.stylegan.bias_act import activation_funcs

_ACTIVATIONS = {each.number: each.func for each in activation_funcs.values()}


@contextmanager
def instead_of_references() -> Iterator[None]:
    """Let ``impl="ref"`` run the functions of this module."""
    plain = {function.__name__: function for function in (bias_act, upfirdn2d, filtered_lrelu)}
    place = "lltm_jit.ops.stylegan._implementation.formula"
    with patch(place, lambda name, *args: plain[name](*args)):
        yield


def bias_act(
    x: Tensor,
    b: Tensor | None,
    dim: int,
    act: int,
    alpha: float,
    gain: float,
    clamp: float | None,
) -> Tensor:
    if b is not None:
        x = x + b.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    x = _ACTIVATIONS[act](x, alpha=alpha)
    x = x if gain == 1 else x * gain
    return x if clamp is None else x.clamp(-clamp, clamp)


def upfirdn2d(
    x: Tensor,
    f: Tensor | None,
    up: Sequence[int],
    down: Sequence[int],
    padding: Sequence[int],
    flip_filter: bool,
    gain: float,
) -> Tensor:
    """Zeros between the samples, padding, and depthwise convolutions."""
    n, c, height, width = x.shape
    if max(up) > 1:
        x = F.pad(x.reshape(n, c, height, 1, width, 1), (0, up[0] - 1, 0, 0, 0, up[1] - 1))
        x = x.reshape(n, c, height * up[1], width * up[0])
    x = F.pad(x, list(padding))
    assert f is not None
    taps = (f * gain ** (f.ndim / 2)).to(x.dtype)
    taps = taps if flip_filter else taps.flip([*range(f.ndim)])
    step = (down[1], down[0])
    if f.ndim == 2:
        return F.conv2d(x, taps.expand(c, 1, -1, -1), stride=step, groups=c)
    x = F.conv2d(x, taps.expand(c, 1, 1, -1), stride=(1, step[1]), groups=c)
    return F.conv2d(x, taps[:, None].expand(c, 1, -1, -1), stride=(step[0], 1), groups=c)


def filtered_lrelu(
    x: Tensor,
    fu: Tensor,
    fd: Tensor,
    b: Tensor,
    up: int,
    down: int,
    padding: Sequence[int],
    gain: float,
    slope: float,
    clamp: float | None,
    flip_filter: bool,
) -> Tensor:
    x = x + b[:, None, None]
    x = upfirdn2d(x, fu, (up, up), (1, 1), padding, flip_filter, up**2)
    x = F.leaky_relu(x, slope) * gain
    x = x if clamp is None else x.clamp(-clamp, clamp)
    return upfirdn2d(x, fd, (1, 1), (down, down), (0, 0, 0, 0), flip_filter, 1)
