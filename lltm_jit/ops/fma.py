"""``fma``; see :func:`lltm_jit.ops.stylegan.fma.fma`."""

from lltm_jit.ops.stylegan.fma import fma

__all__ = ["fma"]
