"""The precompiled header of ``torch/extension.h``, which is most of the cost of compiling with it.

g++ takes ``torch/extension.h.gch`` from a directory that it searches, if its own conditions hold:
the same compiler, the same options, and no macro that would have changed the header. This module
checks that the headers are unchanged. Making the header takes a minute and most of a gigabyte, so a
separate process does it at low priority during a build, for use from the next build on.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..request.request import Request
from ..request.spec import CUDA_SUFFIXES
from ..store import cache, lock, private
from ..store.files import Stamps, digest_of
from ..store.retention import HEADER_RECORD
from ..user import cancel, settings
from ..user.progress import Reporter
from . import header_maker, jobs
from .ninja import BuildFile, interpreter

_LOCK = "pch"  # of those that make a header
_TRIED_AGAIN = 24 * 3600  # seconds after which a failed compiler is tried again
_MEMORY, _DISK = 3 * jobs.GIBIBYTE, 4 * jobs.GIBIBYTE  # that must be free to make one

# The first include of a source, after comments and other directives. If this is wrong, a header is
# made in vain, or not made.
_FIRST = re.compile(
    r"\ufeff?(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/|#(?![ \t]*(?:include|import))[^\n]*\n)*"
    r'#[ \t]*(?:include|import)[ \t]*[<"]torch/extension\.h[>"]'
)
# Options that g++ compares, or that change no header; with any other there is no header.
_KNOWN = re.compile(
    r"-(?:[DU]\w|[Ogm]|W(?![pal],|.*invalid-pch)|f(?!plugin|modules|syntax)|std=|-param=ggc-|"
    r"w$|pthread$|pipe$)"
)
_SEARCHED_TOO = {"CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX"}  # variables that add folders


class Header(NamedTuple):
    """A precompiled header, made or not."""

    key: str
    command: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """The directory that a compiler has to search."""
        return cache.builds_directory() / "pch" / self.key


class Offered(NamedTuple):
    """What a build gets: the variables by which its compilers find the header, and its files."""

    variables: dict[str, str] = {}  # noqa: RUF012 - nobody changes a default
    files: tuple[str, ...] = ()


@contextmanager
def beside(request: Request, build_file: BuildFile, reporter: Reporter) -> Iterator[Offered]:
    """The header for a build, inside a ``with`` block.

    If there is none, it is made for the next build; a spec that requests it waits for it.
    """
    header = of(request, build_file)
    if header is None:
        yield Offered()
        return
    record = find(header)
    if record is None and request.spec.wait_for_header and make(header, reporter, nice=0):
        reporter.report("waiting for the precompiled header of torch/extension.h")
        record = wait(header)
    if record is not None:
        reporter.detail(f"the precompiled header is {header.directory}")
        # It is searched before the directories of torch, and after those that the build names.
        yield Offered({"CPATH": str(header.directory)}, tuple(record["files"]))
        return
    at_once = jobs.job_count(request.with_cuda) > 2 * len(request.sources)
    if at_once:
        make(header, reporter)
    yield Offered()
    if not at_once:
        make(header, reporter)


def taken_jobs() -> int:
    """How many of MAX_JOBS are taken, because a header is being made."""
    if not settings.text("MAX_JOBS"):
        return 0
    with lock.try_lock(_LOCK) as free:
        return int(not free)


def of(request: Request, build_file: BuildFile) -> Header | None:
    """The header that would serve a build; None if no source or no compiler would use it."""
    tools = request.toolchain
    if tools.cxx_family != "gcc" or not settings.flag("LLTM_JIT_PCH"):
        return None
    if {name for name, _ in tools.environment} & _SEARCHED_TOO:
        return None
    # A folder with parts of torch might have others of the header's files.
    if any(os.path.exists(f"{folder}/{part}") for folder in request.folders for part in _PARTS):
        return None
    if not any(starts_with_it(request, source) for source in request.sources):
        return None
    command = _command(build_file.variables)
    if command is None:
        return None
    facts = [tools.cxx_version, tools.torch_version, tools.python_abi, tools.machine]
    return Header(digest_of([*facts, tools.environment, command, header_maker.BESIDE]), command)


_PARTS = ("torch", "ATen", "c10", "caffe2", "pybind11", "Python.h")


def starts_with_it(request: Request, source: str) -> bool:
    """Whether a source is C++ that includes ``torch/extension.h`` first."""
    text = ""
    if not source.endswith((*CUDA_SUFFIXES, ".c", ".m")):  # not compiled as C++, or not by g++
        with suppress(OSError):  # which the compiler will tell
            text = Path(request.path_of(source)).read_text("utf-8", errors="replace")
    return _FIRST.match(text) is not None


def _command(variables: dict[str, str]) -> tuple[str, ...] | None:
    """The command for a header, without the build's own include paths; None if it is not known."""
    flags = f"{variables.get('cflags', '')} {variables.get('post_cflags', '')}"
    if re.search(r"[$`;&|<>*?~#]", flags):  # the shell has a part in it
        return None
    try:
        words, command = iter(shlex.split(flags)), shlex.split(variables.get("cxx", ""))
    except ValueError:  # a quote that is not closed
        return None
    for word in words:
        if word == "-isystem":
            command += [word, next(words, "")]
        elif word == "-I":
            next(words, "")
        elif word.startswith(("-I", "-iquote", "-DTORCH_EXTENSION_NAME=")):
            continue
        elif not _KNOWN.match(word):
            return None
        else:
            command.append(word)
    return tuple(command)


def find(header: Header) -> dict[str, Any] | None:
    """The record of a header that is valid for a build; marks it as used."""
    try:
        record = json.loads((header.directory / HEADER_RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if record["failed"]:  # the compiler may do better some other day
        outdated = cache.last_use(header.directory, HEADER_RECORD) < time.time() - _TRIED_AGAIN
    else:
        mine = (header.directory / name for name in (HEADER_RECORD, "torch/extension.h.gch"))
        outdated = any(map(private.why_not_private, mine))
        if not outdated:
            outdated = Stamps(header.directory).digests(record["files"]) != record["files"]
    if outdated:
        with suppress(OSError):
            (header.directory / HEADER_RECORD).unlink()
        return None
    if not record["failed"]:
        cache.mark_used(header.directory, HEADER_RECORD)
    return None if record["failed"] else record


def make(header: Header, reporter: Reporter, nice: int = 19) -> bool:
    """Start to make a header, unless that has failed; whether somebody is making one.

    One is made at a time, and counts as one of MAX_JOBS.
    """
    if (header.directory / HEADER_RECORD).exists():  # of a compiler that failed
        return False
    if nice and settings.text("MAX_JOBS") and (settings.count("MAX_JOBS") == 1 or jobs.is_shared()):
        reporter.detail("no precompiled header: MAX_JOBS leaves no job to make it")
        return False
    place = header.directory.parent
    request = {"directory": str(header.directory), "command": header.command, "nice": nice}
    request |= {"lock": str(lock.file_of(_LOCK))}
    try:
        cache.make_directory(place)
        request["mode"] = stat.S_IMODE(place.stat().st_mode)
        if shutil.disk_usage(place).free < _DISK or jobs.available_memory() < _MEMORY:
            reporter.detail("no precompiled header: too little free space or memory for it")
            return False
        # It goes on alone, and outlives this process where that ends earlier.
        subprocess.run(
            [interpreter(), "-I", "-S", "-X", "utf8", header_maker.__file__],
            input=json.dumps(request).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        reporter.detail(f"no precompiled header: {error}")
        return False
    reporter.detail("a precompiled header of torch/extension.h is being made")
    return True


def wait(header: Header) -> dict[str, Any] | None:
    """The result of :func:`find`, once nobody makes a header any more."""
    while True:
        with lock.try_lock(_LOCK) as free:
            if free:
                return find(header)
        cancel.check()
        time.sleep(0.1)
