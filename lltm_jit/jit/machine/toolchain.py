"""What this machine can build with. Nothing here raises, creates a CUDA context, or builds."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ..store import cache, files, private
from ..user import settings
from ..user.errors import LltmJitError, ToolchainError

_CAPABILITIES = ("DEFAULT", "AVX2", "AVX512")  # each includes the one before

_NAMING = ("CC", "NVCC_CCBIN", "PYTORCH_NVCC")

# Where ccache reads which compiler to start.
_CCACHE = ("CCACHE_COMPILER", "CCACHE_CONFIGPATH", "CCACHE_DIR", "CCACHE_PATH", "CCACHE_PREFIX")

# Variables that change what the same command line produces.
_COMPILE_ENVIRONMENT = """
    CC CCC_OVERRIDE_OPTIONS COMPILER_PATH CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH CUDA_INC_PATH
    CUDNN_HOME CUDNN_PATH GCC_EXEC_PREFIX LD_RUN_PATH LIBRARY_PATH NVCC_APPEND_FLAGS NVCC_CCBIN
    NVCC_PREPEND_FLAGS PYTORCH_NVCC
"""


class Toolchain(NamedTuple):
    """The tools found, and the versions that a build depends on.

    ``cxx`` is the C++ compiler's command, or None; ``cuda_missing`` says why CUDA sources cannot be
    built, and is empty if they can. ``not_understood`` says what is wrong with
    TORCH_CUDA_ARCH_LIST, and is empty if nothing is.
    """

    cxx: str | None
    cxx_version: str
    cxx_family: str  # "gcc", "clang", or "" for others
    nvcc: str | None
    nvcc_version: str
    cuda_home: str | None
    cuda_missing: str
    architectures: tuple[str, ...]
    torch_version: str
    torch_cuda: str | None
    python_abi: str
    machine: str
    cpu_capability: str
    environment: tuple[tuple[str, str], ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()  # among the compilers, with digests
    tells_link: bool = False  # whether the linker reports what it reads
    not_understood: str = ""

    @property
    def cuda(self) -> bool:
        """Whether CUDA sources can be built."""
        return not self.cuda_missing

    def check_architectures(self) -> None:
        """Refuse a TORCH_CUDA_ARCH_LIST that neither torch nor nvcc would take."""
        if self.not_understood:
            raise ToolchainError(self.not_understood)

    @property
    def compiler(self) -> str:
        """The C++ compiler in two words, such as ``g++ 12.2``."""
        version = re.search(r"\d+\.\d+", self.cxx_version.rpartition(")")[2] or self.cxx_version)
        name = {"gcc": "g++", "clang": "clang++"}.get(self.cxx_family, "C++ compiler")
        return f"{name} {version[0]}" if version else name


def includes(capability: str, needed: str) -> bool:
    """Whether a processor's vector instructions, by torch's names, include others."""
    if needed in _CAPABILITIES and capability in _CAPABILITIES:
        return _CAPABILITIES.index(needed) <= _CAPABILITIES.index(capability)
    return needed == capability


def detect() -> Toolchain:
    """Look at this machine. Never raises; starts no process if the memo knows the compilers."""
    memo = Memo(cache.builds_directory() / "tools.json")
    cxx = find_cxx()
    cxx_facts = memo.recall(cxx, lambda words: _tools().probe_cxx(words)) if cxx else {}
    nvcc, cuda_home = _find_nvcc()
    nvcc_facts = memo.recall([nvcc], lambda words: _tools().probe_nvcc(words)) if nvcc else {}
    cuda_home = cuda_home or nvcc_facts.get("root")
    memo.save()

    nvcc_version = nvcc_facts.get("version", "")
    cuda_missing = _why_no_cuda(nvcc, nvcc_version)
    architectures: tuple[str, ...] = ()
    not_understood = ""
    if not cuda_missing:
        from . import gpus

        architectures = gpus.architectures(nvcc_facts["architectures"])
        not_understood = gpus.why_not_understood(nvcc_facts["architectures"])
    return Toolchain(
        cxx=settings.text("CXX") if cxx else None,
        cxx_version=cxx_facts.get("version", ""),
        cxx_family=cxx_facts.get("family", ""),
        nvcc=nvcc,
        nvcc_version=nvcc_version,
        cuda_home=cuda_home,
        cuda_missing=cuda_missing,
        architectures=architectures,
        torch_version=torch.__version__,
        torch_cuda=torch.version.cuda,
        python_abi=EXTENSION_SUFFIXES[0],
        machine=platform.machine(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        environment=tuple(
            (k, os.environ[k]) for k in _COMPILE_ENVIRONMENT.split() if os.environ.get(k)
        ),
        tells_link=cxx_facts.get("tells_link", False),
        not_understood=not_understood,
        scripts=_scripts([*cxx, os.path.join(cuda_home or "", "bin", "nvcc"), *_named()]),
    )


def _tools() -> ModuleType:
    """What asks compilers, where the memo has no answer: most imports do without it."""
    from . import tools

    return tools


def _named() -> list[str]:
    """The words of the variables that name nvcc, or its host compiler or the folder of that."""
    words = " ".join(os.environ.get(name, "") for name in _NAMING).split()
    return [*words, *(os.path.join(word, name) for word in words for name in ("gcc", "g++"))]


def _scripts(command: list[str]) -> tuple[tuple[str, str], ...]:
    """The compilers that are scripts: these may add flags of their own."""
    found = []
    for path in dict.fromkeys(filter(None, map(shutil.which, command))):
        try:
            with open(files.open_at_once(path, os.O_RDONLY), "rb", buffering=0) as file:
                start = file.read(2)
                if start == b"#!":
                    found.append((path, hashlib.sha256(start + file.read()).hexdigest()))
        except OSError:
            continue  # which the build will tell
    return tuple(found)


def find_cxx() -> list[str]:
    """The C++ compiler's command in words, such as ``ccache g++ -m32``; empty if not found."""
    words = (command := settings.text("CXX")).split()
    if not {*"\"'\\"}.isdisjoint(command):
        import shlex  # which an import otherwise does without

        try:
            words = shlex.split(command)
        except ValueError:
            return []  # a quote that is not closed
    return words if words and shutil.which(words[0]) else []


def _find_nvcc() -> tuple[str | None, str | None]:
    """nvcc, and the CUDA root if it was given or is the usual one."""
    for given in (settings.text("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if given:
            return shutil.which("nvcc", path=os.path.join(given, "bin")), given
    on_path = shutil.which("nvcc")
    if on_path:
        return on_path, None
    usual = shutil.which("nvcc", path="/usr/local/cuda/bin")
    return usual, "/usr/local/cuda" if usual else None


def _why_no_cuda(nvcc: str | None, nvcc_version: str) -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} has no CUDA"
    if nvcc is None:
        home = settings.text("CUDA_HOME")
        return "nvcc was not found" + (f" (CUDA_HOME is {home})" if home else "")
    if not nvcc_version:
        return f"{nvcc} does not report its version"
    if nvcc_version.split(".")[0] != torch.version.cuda.split(".")[0]:
        return f"nvcc is {nvcc_version}, but torch needs CUDA {torch.version.cuda}"
    return ""


class Memo:
    """What compilers answered when they were last asked, which costs a process each.

    An answer holds as long as the files it was read from have the same stamps, so that a replaced
    compiler is noticed. The memo is a file of the cache, and works read-only or without the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self._changed = False
        try:
            if private.why_not_private(path):
                return  # somebody else may have written it
            self._known = files.read_json(path)
        except (OSError, ValueError, LltmJitError):
            return  # none, or a setting that cannot be used, which the build will tell

    def recall(self, command: list[str], probe: Callable[[list[str]], Any]) -> dict[str, Any]:
        # Also the compiler that a ccache starts: the next word, or the next of its name on PATH.
        programs = [found for word in command for found in _all_on_path(word)]
        read = [*programs, *ccache_files()] if any(map(is_ccache, programs)) else programs
        chosen = [f"{name}={os.environ[name]}" for name in _CCACHE if name in os.environ]
        name = "\n".join([*programs, *command, *chosen])
        entry = self._known.get(name)
        if entry and entry["files"] == _stamps({*read, *entry["files"]}):
            return entry
        entry = probe(command)
        entry["files"] = _stamps([*read, *entry.pop("watch")])
        if entry["version"]:  # else the next process asks again
            self._known[name], self._changed = entry, True
        return entry

    def save(self) -> None:
        if not self._changed:
            return
        try:
            cache.make_builds_directory()
            files.write_json(self._path, self._known)
        except (OSError, LltmJitError):
            return  # only a memo: the next process asks the compilers again


def _all_on_path(word: str) -> list[str]:
    """All programs of a name, the one that is started first."""
    folders = [""] if os.path.dirname(word) else os.get_exec_path()
    found = (shutil.which(word, path=folder or None) for folder in folders)
    return list(dict.fromkeys(filter(None, found)))


def ccache_files() -> list[str]:
    """Where a ccache reads its settings."""
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folders = ("/etc", os.environ.get("CCACHE_DIR") or "~/.ccache", f"{settings}/ccache")
    files = [os.path.expanduser(f"{folder}/ccache.conf") for folder in folders]
    return [*files, *filter(None, [os.environ.get("CCACHE_CONFIGPATH")])]


def is_ccache(program: str) -> bool:
    return os.path.basename(os.path.realpath(program)) == "ccache"


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    return {path: files.stamp_of(path) for path in paths}
