"""What this machine can build with. Nothing here raises, creates a CUDA context, or builds."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import glob
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, NamedTuple

import torch

from ..store import cache, files, private
from ..user import settings
from ..user.errors import LltmJitError

_NAMING = ("CC", "NVCC_CCBIN", "PYTORCH_NVCC")  # nvcc, or its host compiler or that one's folder

# Wrappers whose own settings may make them start another compiler than last time.
_WRAPPERS = {"ccache", "sccache", "distcc", "icecc"}

# Variables that change what the same command line produces.
_COMPILE_ENVIRONMENT = """
    CC CCC_OVERRIDE_OPTIONS COMPILER_PATH CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH CUDA_INC_PATH
    CUDNN_HOME CUDNN_PATH GCC_EXEC_PREFIX LD_RUN_PATH LIBRARY_PATH NVCC_APPEND_FLAGS NVCC_CCBIN
    NVCC_PREPEND_FLAGS PYTORCH_NVCC
"""


class Toolchain(NamedTuple):
    """The tools found, and the versions that a build depends on."""

    cxx: str | None  # the C++ compiler's command
    cxx_version: str
    cxx_family: str  # "gcc", "clang", or "" for others
    nvcc: str | None
    nvcc_version: str
    cuda_home: str | None
    cuda_missing: str  # why CUDA sources cannot be built; empty if they can
    architectures: tuple[str, ...]
    torch_version: str
    torch_cuda: str | None
    python_abi: str
    machine: str
    cpu_capability: str
    environment: tuple[tuple[str, str], ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()  # compilers that are scripts, and digests
    tells_link: bool = False  # whether the linker reports the files that it reads

    @property
    def cuda(self) -> bool:
        """Whether CUDA sources can be built."""
        return not self.cuda_missing

    @property
    def compiler(self) -> str:
        """The C++ compiler in two words, such as ``g++ 12.2``."""
        version = re.search(r"\d+\.\d+", self.cxx_version.rpartition(")")[2] or self.cxx_version)
        name = {"gcc": "g++", "clang": "clang++"}.get(self.cxx_family, "C++ compiler")
        return f"{name} {version[0]}" if version else name


class Nvrtc(NamedTuple):
    """The compiler of device code that comes with torch's CUDA."""

    path: str
    version: str
    newest: tuple[int, int]  # the newest architecture that it can compile for
    include_paths: tuple[str, ...]  # the folders of CUDA's headers


def includes(capability: str, needed: str) -> bool:
    """Whether a processor's vector instructions, by torch's names, include others."""
    known = ["DEFAULT", "AVX2", "AVX512"]  # each includes the one before
    return needed == capability or (needed in known and capability in known[known.index(needed) :])


def detect() -> Toolchain:
    """Find this machine's tools. Never raises; starts no process if the answers are known."""
    cxx = find_cxx()
    cxx_facts = _answers(cxx, "cxx") if cxx else {}
    nvcc, cuda_home = _find_nvcc()
    nvcc_facts = _answers([nvcc], "nvcc") if nvcc else {}
    cuda_home = cuda_home or nvcc_facts.get("root")
    nvcc_version = nvcc_facts.get("version", "")
    cuda_missing = _why_no_cuda(nvcc, nvcc_version)
    architectures: tuple[str, ...] = ()
    if not cuda_missing:
        from . import gpus

        architectures = gpus.architectures(tuple(nvcc_facts["newest"]))
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
        scripts=_scripts([*cxx, os.path.join(cuda_home or "", "bin", "nvcc")]),
    )


def _scripts(command: list[str]) -> tuple[tuple[str, str], ...]:
    """The compilers that are scripts: these may add flags of their own."""
    named = " ".join(os.environ.get(name, "") for name in _NAMING).split()
    hosts = [os.path.join(word, name) for word in named for name in ("gcc", "g++")]  # in a folder
    command = [*command, *named, *hosts]
    found = []
    for path in dict.fromkeys(filter(None, map(shutil.which, command))):
        with suppress(OSError), open(os.open(path, files.AT_ONCE), "rb", 0) as file:
            start = file.read(2)
            if start == b"#!":
                found.append((path, hashlib.sha256(start + file.read()).hexdigest()))
    return tuple(found)


def find_cxx() -> list[str]:
    """The C++ compiler's command in words, such as ``ccache g++ -m32``; empty if not found."""
    try:
        words = shlex.split(settings.text("CXX"))
    except ValueError:
        return []  # a quote that is not closed
    return words if words and shutil.which(words[0]) else []


def _find_nvcc() -> tuple[str | None, str | None]:
    """nvcc, and the CUDA root if it was given."""
    for given in (settings.text("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if given:
            return shutil.which("nvcc", path=os.path.join(given, "bin")), given
    # The last place is the package nvidia-cuda-nvcc, which need not be beside torch.
    major = (torch.version.cuda or "none").partition(".")[0]
    packaged = [os.path.join(place, "nvidia", f"cu{major}", "bin") for place in sys.path]
    places = os.pathsep.join(["/usr/local/cuda/bin", *packaged])
    return shutil.which("nvcc") or shutil.which("nvcc", path=places), None


def find_nvrtc(cuda_home: str | None) -> Nvrtc | None:
    """The NVRTC of torch's CUDA, from torch's packages or the toolkit; None if there is none."""
    packages = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
    major = (torch.version.cuda or "none").partition(".")[0]
    homes = [f"{packages}/{name}" for name in (f"cu{major}", "cuda_nvrtc", "cuda_runtime")]
    homes += [cuda_home or "/usr/local/cuda", sys.prefix]  # conda's prefix has CUDA, too
    ends = [f"/{folder}/libnvrtc.so.{major}" for folder in ("lib", "lib64", "targets/*/lib")]
    found = (path for home in homes for end in ends for path in sorted(glob.glob(home + end)))
    path = next(found, "")
    facts = _answers([path], "nvrtc") if path else {}
    if not facts.get("version"):
        return None
    headers = [f"{home}/include" for home in homes if os.path.exists(f"{home}/include/cuda.h")]
    headers += [f"{folder}/cccl" for folder in headers]
    there = tuple(folder for folder in headers if os.path.isdir(folder))
    return Nvrtc(path, facts["version"], tuple(facts["newest"]), there)


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


def _answers(command: list[str], kind: str) -> dict[str, Any]:
    """What a compiler says of itself, now or when it was last asked: asking starts processes.

    An answer holds as long as the files it was read from have the same stamps, so that a replaced
    compiler is noticed. It is kept in the cache, if that can be written.
    """
    programs = [*filter(None, map(shutil.which, command))] if kind != "nvrtc" else command
    lasting = _WRAPPERS.isdisjoint(os.path.basename(os.path.realpath(each)) for each in programs)
    memo = None
    with suppress(OSError, ValueError, LltmJitError):  # a setting that the build will refuse
        memo = cache.builds_directory() / f"tools-{files.digest_of([programs, command])}.json"
        if lasting and not private.why_not_private(memo):  # else somebody else may have written it
            known = files.read_json(memo)
            if known["files"] == _stamps(known["files"]):
                return known
    from . import tools  # most imports do not need it

    found = getattr(tools, f"probe_{kind}")(command)
    found["files"] = _stamps([*programs, *found.pop("watch")])
    if memo and lasting and found["version"]:  # else the next process asks again
        with suppress(OSError, LltmJitError):
            cache.make_builds_directory()
            files.write_json(memo, found)
    return found


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    return {path: files.stamp_of(path) for path in paths}
