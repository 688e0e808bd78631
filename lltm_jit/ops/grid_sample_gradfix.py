"""``grid_sample``, under the name that code written for ``torch_utils.ops`` imports."""

from lltm_jit.ops.stylegan.grid_sample import grid_sample

__all__ = ["grid_sample"]
