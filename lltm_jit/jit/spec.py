"""The flags under the name by which projects from `new --standalone` have imported them."""

from .request.flags import default_cflags, default_cuda_cflags

__all__ = ["default_cflags", "default_cuda_cflags"]
