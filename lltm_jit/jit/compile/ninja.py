"""torch writes the build file, and ninja runs it.

Only this file uses private functions of ``torch.utils.cpp_extension``: one for the linker's flags
and one for the build file. The engine also relies on the order of the build file, whose build
statements come last. ``tests/jit/compile/test_build_file.py`` compares the result with the file
that torch's own ``load`` writes.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ..machine.tools import SPEAK_PLAINLY, find_ninja
from ..request import flags
from ..request.request import Request
from ..store import cache
from ..user import settings
from ..user.errors import BuildError, ToolchainError, check_wanted
from ..user.progress import FAILED
from .headers import Headers

LINK_DEPENDENCIES = "link.d"
TELL_LINK = f"-Wl,--dependency-file={LINK_DEPENDENCIES}"
_GUARD, _LAUNCHER = (Path(__file__).with_name(f"{name}.py") for name in ("guard", "launcher"))
_TICK = 0.25  # seconds between signs of life while compilers are silent
_LAST_WORDS = 0.3  # seconds of silence after which a compiler that failed has said everything
# Variables that make tools print something else, write elsewhere, or run more jobs.
_LEFT_OUT = ["MAKEFLAGS", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "FORCE_COLOR"]
_FORMS = Path(__file__).with_name("forms")  # replace some of torch's headers
_COMPILES = re.compile(r"(?m)^(rule (?:cuda_)?compile\n(?:  (?!command).*\n)*  command = )")
_HAS_LINKER = re.compile(r"-fuse-ld|--ld-path")

_turn = threading.Lock()  # held by a thread that lets torch write


class BuildFile:
    """The compile commands of a request, and the build file for some of its objects.

    ``text`` has the variables and rules that torch wrote.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self.text = _adapted(_written(request), request)
        self.variables = dict(re.findall(r"(?m)^(\w+) = (.*)$", self.text))
        told = re.findall(r"(?m)^rule (\w+)\n(?:  (?!command).*\n)*  command = (.*)$", self.text)
        self._rules = dict(told)

    def commands(self) -> dict[str, str]:
        """The command of each object, as the shell gets it."""
        objects = self._request.objects.items()
        return {name: self._command(name, source) for name, source in objects}

    def _command(self, name: str, source: str) -> str:
        inside = {"in": shlex.quote(source), "out": shlex.quote(name)}

        def expand(match: re.Match[str]) -> str:
            told = inside.get(match[1]) or str(self.variables.get(match[1], ""))
            return re.sub(r"\$([$ :])", r"\1", told)

        return re.sub(r"\$(\w+)", expand, self._rules[_rule(name)])

    def write(self, wanted: Collection[str], headers: Mapping[str, Headers], jobs: int) -> None:
        """Write the build file for these objects and the product.

        ``launcher.py`` compiles the objects with narrow headers. It also compiles CUDA objects, if
        there are two processors for each, one for each of nvcc's halves.
        """
        request = self._request
        launcher = shlex.join([interpreter(), "-I", "-S", "-X", "utf8", str(_LAUNCHER)])
        halves = 2 * len(wanted) <= jobs and not request.spec.device_code
        text, lines = self.text, []
        for name in wanted:
            lines.append(f"build {name}: {_rule(name)} {_escaped(request.objects[name])}")
            folder = headers[name].folder if name in headers and headers[name].digest else ""
            apart = halves and _rule(name) == "cuda_compile"
            if folder or apart:
                text = _COMPILES.sub(r"\1$launcher", self.text)  # empty for the other objects
                words = shlex.join([folder, "halves" if apart else ""])
                lines.append(f"  launcher = {_escaped(f'{launcher} {words}')} ")
        if not request.spec.device_code:
            lines.append(f"build {request.product}: link {' '.join(request.objects)}")
        text = "\n".join([text.rstrip(), "", *lines, f"default {request.product}", ""])
        with cache.writing():
            path = request.work / cache.BUILD_FILE
            path.write_text(text, "utf-8", "surrogateescape")

    def run(self, jobs: int, on_line: Callable[[str], None], on_tick: Callable[[], None]) -> int:
        """Run ninja with this many compilers in the folder of the request.

        Calls ``on_line`` with each line of the output, and ``on_tick`` while there is none. Returns
        ninja's exit status, negative if a signal ended it. When this function ends, even by an
        exception, no process that it started survives.
        """
        environment = {k: v for k, v in os.environ.items() if k not in _LEFT_OUT}
        environment |= {"NINJA_STATUS": "[%f/%t %e] ", **SPEAK_PLAINLY}
        command = [interpreter(), "-I", "-S", "-X", "utf8", str(_GUARD), str(os.getpid())]
        command += [str(find_ninja()), "-v", "-j", str(jobs), self._request.product]
        try:
            guard = subprocess.Popen(
                command,
                cwd=self._request.work,
                stdin=subprocess.DEVNULL,  # a compiler that reads its input would wait for ever
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the guard
                umask=0o002 if settings.flag("LLTM_JIT_TRUST_ROOT") else 0o022,
            )
        except OSError as error:
            raise ToolchainError(f"cannot start {command[0]}: {error.strerror}") from error
        assert guard.stdout is not None
        try:
            with guard.stdout as output:
                _pass_on(output.fileno(), guard, on_line, on_tick)
            return guard.wait()
        finally:
            _end(guard)


def _rule(name: str) -> str:
    return "cuda_compile" if name.endswith(".cuda.o") else "compile"


def _escaped(path: str) -> str:
    return re.sub(r"([$ :])", r"$\1", path)


def _written(request: Request) -> str:
    """The build file as torch writes it."""
    spec, cuda_home = request.spec, request.toolchain.cuda_home
    # Without architectures in the flags, torch would ask the GPU.
    chosen = any("arch" in flag for flag in request.cuda_cflags)
    gencode = [] if chosen else flags.gencode(request.architectures)
    with _turn, tempfile.TemporaryDirectory(prefix="lltm_jit-") as folder:
        path = Path(folder, "build.ninja")
        cpp_extension = _cpp_extension()
        theirs = (cpp_extension.CUDA_HOME, cpp_extension.TORCH_LIB_PATH)
        cpp_extension.CUDA_HOME = cuda_home
        cpp_extension.TORCH_LIB_PATH = shlex.quote(theirs[1])  # torch does not quote it
        try:
            how = (request.with_cuda, False, False, spec.standalone)
            ldflags = cpp_extension._prepare_ldflags([*request.ldflags], *how)
            # CUDA from Python packages has the library only under its full name, in lib.
            for library in glob.glob(f"{glob.escape(cuda_home or '')}/lib/libcudart.so.*"):
                if request.with_cuda and not os.path.exists(f"{cuda_home}/lib64"):
                    ldflags[ldflags.index("-lcudart")] = shlex.quote(library)
            cpp_extension._write_ninja_file_to_build_library(
                path=str(path),
                name=spec.name,
                sources=[f"/source{'.cu' if request.with_cuda else '.cpp'}"],
                extra_cflags=[*request.cflags],
                extra_cuda_cflags=[*gencode, *request.cuda_cflags],
                extra_sycl_cflags=[],
                extra_ldflags=ldflags,
                extra_include_paths=[*request.include_paths],
                with_cuda=request.with_cuda,
                with_sycl=False,
                is_standalone=spec.standalone,
            )
        except UnicodeEncodeError as error:
            mark = error.object[error.start]
            word = next(word for word in error.object.split() if mark in word)
            raise BuildError(
                f"a build file cannot contain the flag {word!r}, which is not UTF-8: change it, or "
                "start Python with LC_ALL=C.UTF-8 set"
            ) from error
        finally:
            cpp_extension.CUDA_HOME, cpp_extension.TORCH_LIB_PATH = theirs
        return path.read_text("utf-8", "surrogateescape")


def _cpp_extension() -> Any:
    """torch's module, which takes a seventh of a second to import."""
    if module := sys.modules.get("torch.utils.cpp_extension"):
        return module
    logger = logging.getLogger("torch.utils.cpp_extension")
    level, by_nvml = logger.level, "PYTORCH_NVML_BASED_CUDA_CHECK"
    asked, searched = os.environ.get(by_nvml), sys.path
    logger.setLevel(logging.ERROR)  # it warns on a machine without a GPU
    os.environ[by_nvml] = "1"  # else its search for a GPU breaks a later fork
    # setuptools fails if modules are searched in a working directory that is gone.
    sys.path = [folder for folder in searched if folder]
    try:
        from torch.utils import cpp_extension
    finally:
        sys.path = searched
        logger.setLevel(level)
        if asked is None:
            del os.environ[by_nvml]
        else:
            os.environ[by_nvml] = asked
    return cpp_extension


def _adapted(text: str, request: Request) -> str:
    """torch's variables and rules, changed so that compilers and the linker report each file that
    they read, in files that ninja does not delete.
    """
    head = text[: text.index("\nbuild ") + 1]
    head = head.replace(" -MMD -MF ", " -MD -MF ").replace("\n  deps = gcc", "")
    if "$nvcc -MD" not in head:
        head = head.replace(" $nvcc ", " $nvcc -MD -MF $out.d ", 1)
    cxx = request.toolchain.cxx or ""
    if len(shlex.split(cxx)) > 1:  # torch quotes CXX as one word, after a wrapper of its own
        head = re.sub(r"(?m)^cxx = .*$", lambda _: f"cxx = {cxx}", head)
    if not request.spec.ours:
        forms = f" -isystem {shlex.quote(str(_FORMS))}".replace("$", "$$")
        head = re.sub(r"(?m)^(?:cuda_)?cflags = .*?(?= -isystem )", lambda m: m[0] + forms, head)
    if request.toolchain.tells_link and not _HAS_LINKER.search(" ".join(request.ldflags)):
        head = re.sub(r"(?m)^ldflags = .*$", rf"\g<0> {TELL_LINK}", head)
    return head


def _pass_on(
    output: int,
    guard: subprocess.Popen[bytes],
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> None:
    """Pass on lines until the output ends, or only orphaned processes hold it open."""
    rest, failed, ended = b"", False, False
    waiting = select.poll()
    waiting.register(output, select.POLLIN)
    while True:
        check_wanted()
        if not waiting.poll(1000 * (_LAST_WORDS if failed else _TICK)):
            if ended:
                return
            if failed:  # ninja would wait for the compilers that still run
                guard.send_signal(signal.SIGHUP)
            ended = guard.poll() is not None
            on_tick()
            continue
        read = os.read(output, 1 << 16)
        *lines, rest = (rest + read).split(b"\n")
        for line in [*lines, rest] if not read and rest else lines:
            failed = failed or FAILED.encode() in line[:20]
            on_line(line.decode(errors="replace").rstrip("\r"))
        if not read:
            return


def _end(guard: subprocess.Popen[bytes]) -> None:
    guard.send_signal(signal.SIGHUP)
    try:
        guard.wait(timeout=5)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
    if guard.returncode:
        from .guard import end_session  # most builds do not need it

        end_session(guard.pid)  # ninja and the compilers outlive a guard that was killed


def interpreter() -> str:
    """The path of Python. In a program that embeds it, ``sys.executable`` may be that program."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = (os.path.join(prefix, "bin") for prefix in (sys.prefix, sys.base_prefix))
    beside = (os.path.join(folder, name) for folder in folders for name in (version, "python3"))
    for path in (sys.executable or "", *beside):
        if re.match(r"(?i)python|pypy", os.path.basename(path)) and os.access(path, os.X_OK):
            return path
    raise ToolchainError(
        f"there is no {version} in {sys.prefix}/bin, and sys.executable is {sys.executable!r}; "
        "set sys.executable to the Python that is to run the compilers"
    )
