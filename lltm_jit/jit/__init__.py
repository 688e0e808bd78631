"""The build engine: from C++ and CUDA sources to a loaded module, once for each content."""

from collections.abc import Callable
from typing import Any

from .loading.build import Build, BuildInfo
from .loading.engine import inspect, load
from .machine.toolchain import Toolchain, detect
from .request.flags import default_cflags, default_cuda_cflags
from .request.spec import Spec
from .user.errors import BuildError, BuildTimeout, CacheError, LltmJitError, ToolchainError

__all__ = [
    "Build",
    "BuildError",
    "BuildInfo",
    "BuildTimeout",
    "CacheError",
    "LltmJitError",
    "Spec",
    "Toolchain",
    "ToolchainError",
    "default_cflags",
    "default_cuda_cflags",
    "detect",
    "inspect",
    "load",
]

# The kernels that C++ may request as variants: a name, and a function that returns the Variant. The
# module ``variants`` calls the function on a request; most programs request none.
kernels: dict[str, Callable[[], Any]] = {}
