"""What the commands about the build share: the package's build, and its build file."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import BuildInfo, cache, detect, engine
from lltm_jit.jit.builder import compile_line_places


def package_build() -> BuildInfo:
    """The build of the package's kernels in the cache, made where there is none; not imported."""
    toolchain = detect()
    return engine.build(native.package_spec(toolchain), toolchain)


def ninja_variables(directory: Path) -> dict[str, list[str]]:
    """The variables at the top of the build file that torch wrote, in words."""
    text = (directory / "build.ninja").read_text("utf-8")
    pairs = re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE)
    words = words_of(directory)
    return {name: words(re.sub(r"\$([$ :])", r"\1", value)) for name, value in pairs}


def words_of(directory: Path) -> Callable[[str], list[str]]:
    """A function that splits a command of a build into words, with this checkout's paths in them.

    A key is made of contents, so another checkout may have made the build, with paths of its own.
    """
    record = cache.read_record(directory)
    toolchain = detect()
    here = compile_line_places(native.package_spec(toolchain), toolchain)
    ours = dict(zip(record.places, here, strict=True)) if record else {}
    # In one pass and the longest first, for one path may lie inside another.
    paths = "|".join(re.escape(path) for path in sorted(ours, key=len, reverse=True))
    # A path begins a word, or follows an option or one of `=,:`, and ends with a component.
    in_word = re.compile(rf"(^(?:-[IL])?|[=,:])({paths})(?=[/=,:]|$)")

    def words(command: str) -> list[str]:
        def ours_in(word: str) -> str:
            return in_word.sub(lambda match: match[1] + ours[match[2]], word) if ours else word

        return [ours_in(word) for word in shlex.split(command)]

    return words


def local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def table(rows: list[list[str]]) -> str:
    """Rows of text in columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)
