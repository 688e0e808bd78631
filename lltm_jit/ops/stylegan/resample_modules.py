"""The resampling functions as modules, with the filter in a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from lltm_jit.ops.stylegan._arguments import Factor, Padding
from lltm_jit.ops.stylegan.upfirdn2d import Taps, downsample2d, filter2d, setup_filter, upsample2d


class _Resample(nn.Module):
    """Calls `function` with the filter, the factors and the options that it was made with."""

    function: Callable[..., Tensor]
    factors: tuple[Factor, ...] = ()
    f: Tensor

    def __init__(
        self, f: Taps, padding: Padding = 0, flip_filter: bool = False, gain: float = 1
    ) -> None:
        super().__init__()
        self.register_buffer("f", setup_filter(f))
        self.options = (padding, flip_filter, gain)

    def forward(self, x: Tensor) -> Tensor:
        """Return the resampled images; see the function."""
        return type(self).function(x, self.f, *self.factors, *self.options)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        return ", ".join([*map(str, self.factors), f"taps={list(self.f.shape)}"])


class Filter2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.filter2d` as a module.

    Args:
        f: the taps, as for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`, whose result is
            the buffer ``f``.
        padding, flip_filter, gain: see the function.

    Example:
        >>> Filter2d([1, 3, 3, 1])(torch.ones(1, 1, 8, 8)).shape
        torch.Size([1, 1, 8, 8])
    """

    function = staticmethod(filter2d)


class Upsample2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.upsample2d` as a module.

    Args:
        f: the taps, as for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`, whose result is
            the buffer ``f``.
        up, padding, flip_filter, gain: see the function.

    Example:
        >>> Upsample2d([1, 3, 3, 1])(torch.ones(1, 1, 8, 8)).shape
        torch.Size([1, 1, 16, 16])
    """

    function = staticmethod(upsample2d)

    def __init__(
        self,
        f: Taps,
        up: Factor = 2,
        padding: Padding = 0,
        flip_filter: bool = False,
        gain: float = 1,
    ) -> None:
        super().__init__(f, padding, flip_filter, gain)
        self.factors = (up,)


class Downsample2d(_Resample):
    """:func:`~lltm_jit.ops.stylegan.upfirdn2d.downsample2d` as a module.

    Args:
        f: the taps, as for :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`, whose result is
            the buffer ``f``.
        down, padding, flip_filter, gain: see the function.

    Example:
        >>> Downsample2d([1, 3, 3, 1])(torch.ones(1, 1, 8, 8)).shape
        torch.Size([1, 1, 4, 4])
    """

    function = staticmethod(downsample2d)

    def __init__(
        self,
        f: Taps,
        down: Factor = 2,
        padding: Padding = 0,
        flip_filter: bool = False,
        gain: float = 1,
    ) -> None:
        super().__init__(f, padding, flip_filter, gain)
        self.factors = (down,)
