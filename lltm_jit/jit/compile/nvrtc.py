"""NVRTC compiles code for the GPU alone, in this process, without nvcc, build file and ninja.

NVRTC does not report the files that it reads. The engine finds them by their includes, and refuses
options and includes that it cannot follow.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ..machine import gpus, nvrtc
from ..machine.tools import nvrtc_cure
from ..request import flags, texts
from ..request.request import IN_NAME, Request
from ..request.spec import CONSTANTS
from ..store import cache, files
from ..user.errors import BuildError, ToolchainError
from ..user.progress import FAILED
from .objects import NINJA_LOG, SYMBOLS

# Headers of the standard library for code on the GPU. NVRTC has none of its own.
STANDARD = os.path.join(os.path.dirname(__file__), "standard")
_DIRECTIVE = r"(?m)^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import)\b[ \t]*(.*?)[ \t]*$"
_QUOTED = r"[<\"]([^<>\"\n]+)[>\"]"
_NAMING = r"^__nv_name_map\(\d+\): (error): "  # where NVRTC places an error in a kernel's name
# Options that make NVRTC read a file that no include names, search other folders, or write one.
_FILES = r"-I|-?-(?:include-path|pre-include|include$|options-file|optf|.*pch)"


def check(request: Request) -> None:
    """Refuse a request that is known to fail.

    Raises:
        ToolchainError: there is no NVRTC, or no single architecture for all GPUs.
    """
    name = request.spec.name
    if not request.nvrtc:
        missing = f"torch {torch.__version__} has no CUDA"
        if torch.version.cuda:
            missing = f"NVRTC {torch.version.cuda} was not found"
        raise ToolchainError(f"{name} needs CUDA, but {missing}; {nvrtc_cure()}")
    if not request.architectures:
        told = ", ".join(gpus.architectures(request.nvrtc.newest))
        raise ToolchainError(
            f"{name} is compiled for one architecture, and none of {told} runs on all GPUs of this "
            "machine; set TORCH_CUDA_ARCH_LIST to one that does"
        )


class Command:
    """The call of NVRTC for a request, which has one source."""

    def __init__(self, request: Request) -> None:
        assert request.nvrtc is not None
        self._request, self._nvrtc = request, request.nvrtc
        ((self._name, source),) = request.objects.items()
        self._source = request.path_of(source)
        told = request.architectures[0].replace(".", "")
        kind = "compute_" if told.endswith("+PTX") else "sm_"
        self._folders = [STANDARD, *self._nvrtc.include_paths]  # after the request's own
        self._options = [
            f"-arch={kind}{told.removesuffix('+PTX')}",
            *flags.words(request.cuda_cflags),
            *(f"-I{folder}" for folder in (*request.include_paths, *self._folders)),
        ]
        for option in flags.words(request.cuda_cflags):
            if re.match(_FILES, option):
                raise BuildError(
                    f"{request.spec.name}: NVRTC does not report the files of {option}, whose "
                    "edits would go unnoticed; include headers in the source and use include_paths"
                )

    def commands(self) -> dict[str, str]:
        """The command of each object, as it would be typed."""
        words = ["nvrtc", *self._options, *(f"-kernel={f}" for f in self._request.spec.functions)]
        return {self._name: shlex.join([*words, "-c", self._source, "-o", self._name])}

    def write(self, wanted: Collection[str], headers: Mapping[str, Any], jobs: int) -> None:
        """Do nothing: NVRTC needs no build file."""

    def run(self, jobs: int, on_line: Callable[[str], None], on_tick: Callable[[], None]) -> int:
        """Compile the source; pass on lines, leave files and return a status as ninja does."""
        request, began = self._request, time.time()
        work, name, command = request.work, self._name, self.commands()[self._name]
        try:
            text = Path(self._source).read_text("utf-8", "surrogateescape")
        except OSError as error:
            raise BuildError(f"error: cannot read {self._source}: {error.strerror}") from error
        if request.spec.constants:  # in front of the source, as if it included them
            before = f'#line 1 "{CONSTANTS}"\n{request.spec.macros}#line 1 "{self._source}"\n'
            text = before + text
        read = self._read()
        how = (self._source, self._options, request.spec.functions)
        done = nvrtc.compile(self._nvrtc.path, text, *how)
        on_line(f"[1/1 {time.time() - began:.3f}] {command}")
        if not done.code:
            on_line(f"{FAILED}[code=1] {name}\n{command}")
        for line in done.log.splitlines():
            on_line(re.sub(_NAMING, rf"\1: {IN_NAME}", line))
        if not done.code:
            return 1
        with cache.writing():
            (work / name).write_bytes(done.code)
            (work / f"{name}{SYMBOLS}").write_text(json.dumps(done.symbols), "utf-8")
            rule = " ".join(re.sub(r"([ \t#:])", r"\\\1", path) for path in read)
            (work / f"{name}.d").write_text(f"{name}: {rule}\n", "utf-8", "surrogateescape")
            took = round(1000 * (time.time() - began))
            (work / NINJA_LOG).write_text(f"# as ninja's\n0\t{took}\t0\t{name}\t0\n", "utf-8")
        return 0

    def _read(self) -> Iterable[str]:
        """The files that NVRTC may read: by all includes, under any condition, in any folder."""
        request = self._request
        macros = dict(request.spec.constants)
        macros |= dict(re.findall(r"(?m)^-D\n?([\w]+)=(.*)$", "\n".join(self._options)))

        def rare(path: str) -> Iterable[str]:
            return self._included(path, macros) if request.is_own(path) else ()

        return files.closure([self._source], [*request.searched, *self._folders], rare)

    def _included(self, path: str, macros: dict[str, str]) -> Iterator[str]:
        """The names that one of the user's files includes, also in rare spellings and by macros.

        Raises:
            BuildError: neither a constant nor this file defines the macro of an include.
        """
        text = texts.without_comments(texts.read(path).replace("\\\n", ""))
        for target in re.findall(_DIRECTIVE, text):
            told = [target]
            if not re.fullmatch(_QUOTED, target):
                told = re.findall(rf"(?m)^\s*#\s*define[ \t]+{re.escape(target)}[ \t]+(.*\S)", text)
                told += [macros[target]] if target in macros else []
            quoted = [re.fullmatch(_QUOTED, each) for each in told]
            if not all(quoted) or not quoted:
                raise BuildError(
                    f"error: {path}: `#include {target}` does not name a file, so its edits would "
                    "go unnoticed; name it in quotes, or by a constant that has them"
                )
            yield from (match[1] for match in quoted if match)
