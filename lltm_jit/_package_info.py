"""What is installed, and how its kernels were built."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from lltm_jit.jit import BuildInfo, Toolchain
from lltm_jit.jit.build import in_columns, show_as_printed


@dataclass(frozen=True)
class PackageInfo:
    """What is installed, and how the loaded families of kernels were built.

    It prints as a short table. ``toolchain`` describes this machine as it is now, whatever the
    builds were made with.
    """

    lltm_jit_version: str
    python_version: str
    toolchain: Toolchain
    families: dict[str, BuildInfo]

    def __str__(self) -> str:
        tools = self.toolchain
        cuda = f"nvcc {tools.nvcc_version} for {' '.join(tools.architectures)}"
        rows = [
            ("lltm_jit", self.lltm_jit_version),
            ("Python", self.python_version),
            ("torch", tools.torch_version),
            ("compiler", tools.compiler),
            ("CUDA", f"no: {tools.cuda_missing}" if tools.cuda_missing else cuda),
        ]
        builds = [
            (name, "cached" if made.cached else "new", f"{made.seconds:.1f} s", made.reason)
            for name, made in self.families.items()
        ]
        columns = ("family", "build", "made in", "reason")
        return f"{in_columns(rows)}\n\n{in_columns([columns, *builds])}"

    _repr_pretty_ = show_as_printed


def installed(toolchain: Toolchain) -> dict[str, Any]:
    """The entries of a ``PackageInfo`` that are known before there is a build."""
    from lltm_jit import __version__  # not there yet when this module is imported

    return {
        "lltm_jit_version": __version__,
        "python_version": platform.python_version(),
        "toolchain": toolchain,
    }
