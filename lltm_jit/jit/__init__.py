"""The build engine: from C++ and CUDA sources to a loaded module, once for each content."""

from .build import Build, BuildInfo
from .engine import inspect, load
from .errors import BuildError, CacheError, LltmJitError, ToolchainError
from .flags import default_cflags, default_cuda_cflags
from .spec import BuildSpec
from .toolchain import Toolchain, detect

__all__ = [
    "Build",
    "BuildError",
    "BuildInfo",
    "BuildSpec",
    "CacheError",
    "LltmJitError",
    "Toolchain",
    "ToolchainError",
    "default_cflags",
    "default_cuda_cflags",
    "detect",
    "inspect",
    "load",
]
