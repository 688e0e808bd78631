"""What the commands about builds share: a build, and its build file."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lltm_jit.jit import BuildInfo, detect
from lltm_jit.jit.compile.seed import compile_line_places
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.loading.parallel import build_all
from lltm_jit.jit.machine.tools import find_ninja, output_of
from lltm_jit.jit.store import cache
from lltm_jit.jit.store.cache import BUILD_FILE


@dataclass(frozen=True)
class CompiledBuild:
    """A build and its commands.

    ``words`` splits a command of the build into words, with this checkout's paths in them: a key is
    made of contents, so another checkout may have made the build, with paths of its own.
    """

    info: BuildInfo
    words: Callable[[str], list[str]]

    def variables(self) -> dict[str, list[str]]:
        """The variables at the top of the build file that torch wrote, in words."""
        text = (self.info.directory / BUILD_FILE).read_text("utf-8")
        pairs = re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE)
        return {name: self.words(re.sub(r"\$([$ :])", r"\1", value)) for name, value in pairs}


def compiled(extensions: Sequence[Extension]) -> list[CompiledBuild]:
    """The builds of extensions in the cache, made where there is none."""
    toolchain = detect()
    builds = []
    for extension, info in zip(extensions, build_all(extensions), strict=True):
        record = cache.read_record(info.directory)
        assert record is not None
        places = compile_line_places(extension.spec(toolchain), toolchain)
        builds.append(CompiledBuild(info, _splitter(record.places, places)))
    return builds


def database(directory: Path) -> list[dict[str, str]]:
    """What ninja knows of each object of a build: its file, its output and its command."""
    command = [str(find_ninja()), "-t", "compdb", "compile", "cuda_compile"]
    return json.loads(output_of(command, directory))


def _splitter(theirs: list[str], ours: list[str]) -> Callable[[str], list[str]]:
    meant = dict(zip(theirs, ours, strict=True))
    # In one pass and the longest first, because one path may be inside another.
    paths = "|".join(re.escape(path) for path in sorted(meant, key=len, reverse=True))
    # A path begins a word, or follows an option or one of `=,:`, and ends with a component.
    in_word = re.compile(rf"(^(?:-[IL])?|[=,:])({paths})(?=[/=,:]|$)")

    def words(command: str) -> list[str]:
        split = shlex.split(command)
        return [in_word.sub(lambda match: match[1] + meant[match[2]], word) for word in split]

    return words


def local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
