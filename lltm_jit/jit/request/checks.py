"""What is refused before anything is compiled, because it would fail."""

from __future__ import annotations

from ..machine.toolchain import Toolchain, find_cxx
from ..machine.tools import cuda_cure, find_ninja, why_no_cxx
from ..store import cache
from ..user import settings
from ..user.errors import ToolchainError
from .spec import BuildSpec


def check(spec: BuildSpec, toolchain: Toolchain) -> None:
    """Refuse a build that is known to fail, before anything is compiled."""
    check_tools(spec, toolchain)
    settings.count("LLTM_JIT_KEEP")  # read after the work, which ends with pruning
    cache.make_builds_directory()


def check_tools(spec: BuildSpec, toolchain: Toolchain) -> None:
    """The part of :func:`check` that writes nothing."""
    if toolchain.cxx is None or toolchain.recorded or not toolchain.cxx_version:
        raise ToolchainError("; ".join(why_no_cxx(find_cxx())))
    if spec.with_cuda and not toolchain.cuda:
        raise ToolchainError(
            f"{spec.name} has CUDA sources, but {toolchain.cuda_missing}; {cuda_cure()}"
        )
    # Where the flags say what nvcc compiles for, torch passes the list over.
    if spec.with_cuda and not any("arch" in flag for flag in spec.cuda_cflags):
        toolchain.check_architectures()
    find_ninja()
