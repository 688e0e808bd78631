"""What the tests of upfirdn2d share: random calls, and their exact results."""

from dataclasses import dataclass, field

import numpy as np
import torch
from op_testing import assert_accurate
from torch import Tensor

from lltm_jit.ops.stylegan.upfirdn2d import upfirdn2d

FACTORS = [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((1, 1), (2, 2)), ((3, 1), (2, 4))]


def image(
    *shape: int,
    dtype: torch.dtype = torch.float,
    device: str = "cpu",
    channels_last: bool = False,
) -> Tensor:
    x = torch.randn(shape, device=device).to(dtype)
    return x.to(memory_format=torch.channels_last) if channels_last else x


@dataclass
class Call:
    x: Tensor
    f: Tensor | None
    up: tuple[int, int] = (1, 1)
    down: tuple[int, int] = (1, 1)
    padding: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    flip_filter: bool = False
    gain: float = 1.0

    def check(self) -> None:
        options = (self.up, self.down, self.padding, self.flip_filter)
        x, f = self.x.cpu(), None if self.f is None else self.f.cpu()
        exact = upfirdn2d(x.double(), f, *options, self.gain, impl="ref")
        baseline = upfirdn2d(x, f, *options, self.gain, impl="ref")
        sizes = None if f is None else f.abs()
        parts = upfirdn2d(x.double().abs(), sizes, *options, abs(self.gain), impl="ref")
        actual = upfirdn2d(self.x, self.f, *options, self.gain).cpu()
        # Tensor cores take taps in parts.
        on_tensor_cores = self.x.is_cuda and self.x.dtype.itemsize == 2
        # A sum of many parts is rounded as often.
        assert_accurate(actual, exact, baseline, ulps=2, parts=parts, sums=on_tensor_cores)


def random_filter(rng: np.random.Generator, most: int) -> Tensor | None:
    """None, separable or 2-D; of up to `most` taps on an axis."""
    kind = rng.integers(0, 5)
    taps_x, taps_y = (int(n) for n in rng.integers(1, most + 1, 2))
    values = torch.from_numpy(rng.standard_normal((taps_y, taps_x))) / (taps_x * taps_y) ** 0.5
    return None if kind == 0 else (values[0] if kind < 3 else values).float()


def random_call(seed: int, dtype: torch.dtype, device: str) -> Call:
    rng = np.random.default_rng(seed)
    up, down = FACTORS[rng.integers(0, 3)]
    if rng.random() < 0.25:
        up, down = (tuple(int(n) for n in rng.integers(1, 5, 2)) for _ in range(2))
    f = random_filter(rng, (4, 8, 12, 24, 64)[rng.integers(0, 5)])
    taps = (1, 1) if f is None else (f.shape[-1], f.shape[0])
    batch, channels = int(rng.integers(1, 3)), (1, 3, 8, 16, 40)[rng.integers(0, 5)]
    size = [int(n) for n in rng.integers(1, 40, 2)]  # width, height
    padding = [int(n) for n in rng.integers(-4, 9, 4)]
    for axis in (0, 1):
        padded = size[axis] * up[axis] + padding[2 * axis] + padding[2 * axis + 1]
        padding[2 * axis] += max(taps[axis] - padded, 0)
    x = torch.from_numpy(rng.standard_normal((batch, channels, size[1], size[0])))
    x = x.to(device, dtype)
    if rng.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    f = None if f is None else f.to(device)
    return Call(x, f, up, down, padding, bool(rng.integers(0, 2)), float(rng.uniform(0.5, 2)))
