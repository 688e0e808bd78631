"""The resampling functions as modules, whose filter is a buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from lltm_jit.ops.stylegan._upfirdn2d_reference import Factor, Padding
from lltm_jit.ops.stylegan.upfirdn2d import downsample2d, filter2d, setup_filter, upsample2d


class _Resample(nn.Module):
    f: Tensor

    def __init__(self, f: Tensor | Sequence | None, factors: tuple, options: dict[str, Any]) -> None:
        super().__init__()
        self.register_buffer("f", setup_filter(f))
        self.factors = factors
        self.options = options

    def _run(self, function: Callable[..., Tensor], x: Tensor) -> Tensor:
        return function(x, self.f, *self.factors, **self.options)

    def extra_repr(self) -> str:
        return ", ".join([*map(str, self.factors), f"taps={list(self.f.shape)}"])


class Filter2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.filter2d` as a module.

    Args:
        f: the taps, for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`.
        padding, flip_filter, gain: see the function.

    Attributes:
        f: buffer, the filter.
    """

    def __init__(
        self,
        f: Tensor | Sequence | None,
        padding: Padding = 0,
        flip_filter: bool = False,
        gain: float = 1,
    ) -> None:
        super().__init__(f, (), {"padding": padding, "flip_filter": flip_filter, "gain": gain})

    def forward(self, x: Tensor) -> Tensor:
        """Return the filtered images; see the function."""
        return self._run(filter2d, x)


class Upsample2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.upsample2d` as a module.

    Args:
        f: the taps, for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`.
        up, padding, flip_filter, gain: see the function.

    Attributes:
        f: buffer, the filter.
    """

    def __init__(
        self,
        f: Tensor | Sequence | None,
        up: Factor = 2,
        padding: Padding = 0,
        flip_filter: bool = False,
        gain: float = 1,
    ) -> None:
        super().__init__(f, (up,), {"padding": padding, "flip_filter": flip_filter, "gain": gain})

    def forward(self, x: Tensor) -> Tensor:
        """Return the enlarged images; see the function."""
        return self._run(upsample2d, x)


class Downsample2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.downsample2d` as a module.

    Args:
        f: the taps, for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`.
        down, padding, flip_filter, gain: see the function.

    Attributes:
        f: buffer, the filter.
    """

    def __init__(
        self,
        f: Tensor | Sequence | None,
        down: Factor = 2,
        padding: Padding = 0,
        flip_filter: bool = False,
        gain: float = 1,
    ) -> None:
        super().__init__(f, (down,), {"padding": padding, "flip_filter": flip_filter, "gain": gain})

    def forward(self, x: Tensor) -> Tensor:
        """Return the reduced images; see the function."""
        return self._run(downsample2d, x)
