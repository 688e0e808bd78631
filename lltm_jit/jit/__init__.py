"""The build engine: from C++ and CUDA sources to a loaded module, once for each content."""

from .build import Build, BuildInfo
from .engine import inspect, load
from .errors import BuildError, CacheError, LltmJitError, ToolchainError
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
    "detect",
    "inspect",
    "load",
]
