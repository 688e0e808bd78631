"""What the commands about the build share: the package's build, and its build file."""

from __future__ import annotations

import re
import time
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import BuildInfo


def package_build() -> BuildInfo:
    """The build of the package's kernels, made where there is none."""
    return native.load().info


def ninja_variables(directory: Path) -> dict[str, str]:
    """The variables at the top of the build file that torch wrote, unescaped."""
    text = (directory / "build.ninja").read_text("utf-8")
    pairs = re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE)
    return {name: re.sub(r"\$([$ :])", r"\1", value).strip() for name, value in pairs}


def local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def table(rows: list[list[str]]) -> str:
    """Rows of text in columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)
