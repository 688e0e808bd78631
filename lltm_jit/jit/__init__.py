"""The build engine: from C++ and CUDA sources to a loaded module, once for each content."""

from .loading.build_result import Build, BuildInfo
from .loading.engine import inspect, load
from .machine.toolchain import Toolchain, detect
from .request.flags import default_cflags, default_cuda_cflags
from .request.spec import BuildSpec
from .user.errors import BuildError, CacheError, LltmJitError, ToolchainError

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
