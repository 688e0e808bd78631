"""The precompiled header of ``torch/extension.h``, which is most of the cost of compiling with it.

g++ takes ``torch/extension.h.gch`` from a directory that it searches, if its own conditions hold:
the same compiler, the same options, and no macro that would have changed the header. This module
checks the rest: that the headers are unchanged, and that the build's include paths would find the
same ones. Making the header takes a minute and most of a gigabyte, so a separate process does it at
low priority during a build, for use from the next build on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine.toolchain import Toolchain
from ..request.spec import CUDA_SUFFIXES, BuildSpec
from ..store import cache, lock, private, publish, retention
from ..store.retention import HEADER_RECORD
from ..user import cancel, settings
from ..user.progress import Reporter
from . import header_maker, jobs
from .process import interpreter

_TURN = "pch"  # the lock of those that make a header
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
_NOT_OURS = {"CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX"}  # what adds to the search


@dataclass(frozen=True)
class Header:
    """A precompiled header, made or not, and the build's own include paths."""

    key: str
    command: tuple[str, ...]
    searched: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """The directory that a compiler has to search."""
        return retention.headers() / self.key


@contextmanager
def beside(
    build_file: Path, spec: BuildSpec, toolchain: Toolchain, reporter: Reporter
) -> Iterator[dict[str, str]]:
    """The variables by which a build's compilers find the header, inside a ``with`` block.

    If there is none, it is made for the next build; a spec that requests it waits for it.
    """
    header = of(build_file, spec, toolchain)
    if header is None:
        yield {}
        return
    directory = find(header)
    if directory is None and spec.with_header and make(header, reporter, nice=0):
        reporter.report("waiting for the precompiled header of torch/extension.h")
        directory = wait(header)
    if directory:
        reporter.detail(f"the precompiled header is {directory}")
        # It is searched before the directories of torch, and after those that the build names.
        files = (_record(directory) or {}).get("files", ())  # before somebody prunes it
        try:
            yield {"CPATH": str(directory)}
        finally:  # also for the objects that an interrupted build keeps
            _tell_files(files, build_file.parent, spec)
        return
    at_once = jobs.job_count(spec.with_cuda) > 2 * len(spec.sources)
    if at_once:
        make(header, reporter)
    yield {}
    if not at_once:
        make(header, reporter)


def taken_jobs() -> int:
    """How many of MAX_JOBS are taken, because a header is being made."""
    if not settings.text("MAX_JOBS"):
        return 0
    with lock.try_lock(_TURN, shared=True) as turn:  # others may look at the same time
        return int(turn is None)


def _tell_files(files: Iterable[str], directory: Path, spec: BuildSpec) -> None:
    """Add the header's files to what compilers report that they read; they omit them.

    Only g++ knows which sources used the header. A source that read ``torch/extension.h`` itself
    did not; one that never includes it gets more files than it read, and at worst is compiled
    again.
    """
    names = [re.sub(r"([ #])", r"\\\1", path).replace("$", "$$") for path in files]
    included = {name for name in names if name.endswith("/torch/extension.h")}
    for target in spec.objects:
        depfile = directory / f"{target}.d"
        if target.endswith(".cuda.o") or not depfile.is_file():
            continue  # nvcc gives its host compiler what is preprocessed already
        told = depfile.read_text("utf-8", "surrogateescape").rstrip("\n")
        if included.isdisjoint(told.split()):
            depfile.write_text(f"{told} {' '.join(names)}\n", "utf-8", "surrogateescape")


def of(build_file: Path, spec: BuildSpec, toolchain: Toolchain) -> Header | None:
    """The header that would serve a build; None if no source or no compiler would use it."""
    if toolchain.cxx_family != "gcc" or not settings.flag("LLTM_JIT_PCH"):
        return None
    searched_too = {name for name, _ in toolchain.environment} & _NOT_OURS
    if searched_too or not any(_starts_with_it(path, spec) for path in spec.sources):
        return None
    variables = re.findall(r"(?m)^(cxx|cflags|post_cflags) = (.*)$", build_file.read_text("utf-8"))
    if (command := _command(dict(variables))) is None:
        return None
    tools = (toolchain.cxx_version, toolchain.torch_version, toolchain.python_abi)
    facts = [*tools, toolchain.machine, toolchain.environment, command[0], header_maker.BESIDE]
    return Header(hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20], *command)


def _starts_with_it(path: Path, spec: BuildSpec) -> bool:
    text = ""
    if path.suffix not in (*CUDA_SUFFIXES, ".c", ".m"):  # not compiled as C++, or not by g++
        with suppress(OSError):  # which the compiler will tell
            text = dict(spec.texts).get(path) or path.read_text("utf-8", errors="replace")
    return _FIRST.match(text) is not None


def _command(variables: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The command for a header, and the build's own include paths; None if a flag is unknown."""
    flags = f"{variables.get('cflags', '')} {variables.get('post_cflags', '')}"
    if re.search(r"[$`;&|<>*?~#]", flags):  # the shell has a part in it
        return None
    try:
        words, command = iter(shlex.split(flags)), shlex.split(variables.get("cxx", ""))
    except ValueError:  # a quote that is not closed
        return None
    searched = []
    for word in words:
        if word.startswith("-iquote"):
            searched.append(word.removeprefix("-iquote"))
        elif word.startswith("-I"):
            searched.append(word[2:] or next(words, ""))
        elif word == "-isystem":
            command += [word, next(words, "")]
        elif not _KNOWN.match(word):
            return None
        elif not word.startswith("-DTORCH_EXTENSION_NAME="):
            command.append(word)
    return tuple(command), tuple(searched)


def find(header: Header) -> Path | None:
    """The directory with a header that is valid for a build; marks it as used."""
    if (record := _record(header.directory)) is None:
        return None
    if record["failed"]:  # the compiler may do better some other day
        outdated = cache.last_use(header.directory, HEADER_RECORD) < time.time() - _TRIED_AGAIN
    else:
        mine = (header.directory / name for name in (HEADER_RECORD, "torch/extension.h.gch"))
        outdated = any(map(private.why_not_private, mine)) or any(
            header_maker.identity(path) != known for path, known in record["files"].items()
        )
    if outdated:
        publish.remove_whole(header.directory)
        return None
    if record["failed"] or any(_shadows(Path(path), record) for path in header.searched):
        return None
    cache.mark_used(header.directory, HEADER_RECORD)
    return header.directory


def _record(directory: Path) -> dict[str, Any] | None:
    try:
        return json.loads((directory / HEADER_RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _shadows(directory: Path, record: dict[str, Any]) -> bool:
    """Whether a directory has another file under a name by which the header may include one.

    Such a name is any end of a header's path, or one that a header passes to ``__has_include``.
    """
    try:
        there = set(os.listdir(directory))
    except OSError:
        return False
    if any(name.partition("/")[0] in there for name in record["asked"]):
        return True
    for path in record["files"]:
        parts = path.split("/")
        for index in range(1, len(parts)):
            if parts[index] in there:
                other = directory.joinpath(*parts[index:])
                if other.is_file() and not other.samefile(path):
                    return True
    return False


def make(header: Header, reporter: Reporter, nice: int = 19) -> bool:
    """Start to make a header, unless that is under way or has failed; whether it is under way.

    At low priority one is made at a time, and counts as one of MAX_JOBS.
    """
    if _record(header.directory) is not None:  # of a compiler that failed, or it shadows
        return False
    if nice and settings.text("MAX_JOBS") and (settings.count("MAX_JOBS") == 1 or jobs.is_shared()):
        reporter.detail("no precompiled header: MAX_JOBS leaves no job to make it")
        return False
    place = retention.headers()
    try:
        cache.make_directory(place)
        if shutil.disk_usage(place).free < _DISK or jobs.available_memory() < _MEMORY:
            reporter.detail("no precompiled header: too little free space or memory for it")
            return False
        with lock.try_lock(f"pch-{header.key}") as mine, lock.try_lock(_TURN) as turn:
            if mine is None:
                return True
            if nice and turn is None:
                return False
            directory = tempfile.mkdtemp(prefix=f"tmp-{header.key}-", dir=place)
            request: dict[str, Any] = {"directory": directory, "header": str(header.directory)}
            request |= {"command": header.command, "mode": cache.mode(), "nice": nice}
            # It goes on alone, and outlives this process where that ends earlier.
            subprocess.run(
                [interpreter(), "-I", "-S", "-X", "utf8", header_maker.__file__],
                input=json.dumps(request).encode() + b"\n",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[descriptor for descriptor in (mine, turn) if descriptor is not None],
            )
        reporter.detail("a precompiled header of torch/extension.h is being made")
    except OSError as error:
        reporter.detail(f"no precompiled header: {error}")
        return False
    return True


def wait(header: Header) -> Path | None:
    """The result of :func:`find`, once nobody makes the header any more."""
    while True:
        with lock.try_lock(f"pch-{header.key}") as mine:
            if mine is not None:
                return find(header)
        cancel.check()
        time.sleep(0.1)
