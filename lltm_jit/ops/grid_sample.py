"""``grid_sample``; see :func:`lltm_jit.ops.stylegan.grid_sample.grid_sample`."""

from lltm_jit.ops.stylegan.grid_sample import grid_sample

__all__ = ["grid_sample"]
