"""The flags of the compilers and the linker: those of every extension, and more for our kernels."""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache

import torch

from ..machine.toolchain import Nvrtc, Toolchain
from ..user import settings
from .spec import CONSTANTS, Spec

# ATen's vector classes choose their width when they are compiled: without these flags a kernel
# built here would use the narrowest one. Other processors keep their default.
_CPU_FLAGS = {
    "AVX2": "-mavx2 -mfma -mf16c -DCPU_CAPABILITY=AVX2 -DCPU_CAPABILITY_AVX2",
    "AVX512": "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -mf16c "
    "-DCPU_CAPABILITY=AVX512 -DCPU_CAPABILITY_AVX512",
}

# torch switches these operators off for nvcc; kernels for 16-bit types want them.
_HALF_OPERATORS = (
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__",
)
# GNU unique symbols, which are static variables in templates and inline functions, would be shared
# by the old and the new library after a reload.
_NO_UNIQUE = "-fno-gnu-unique"
# Below a GiB of memory, g++'s own garbage collector takes an eighth of the time, and frees little.
_HEAP = "--param=ggc-min-heapsize=1048576"
# By default, g++ reports a header of a system folder by its real path if that is shorter. This
# would hide a symbolic link, which may lead elsewhere next time.
_AS_SEARCHED = "-fno-canonical-system-headers"
_OF_HOST_COMPILER = ("CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_NAMED = re.compile(r"(?<![^@=])/.*")  # a path in a word: all of it, or behind `@` or `=`
_PASSED_ON = r"^-W[lap],|^-X(?:linker|compiler|assembler|preprocessor)$"

Flags = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # for C++, CUDA and the linker


def of(spec: Spec, tools: Toolchain, with_cuda: bool) -> Flags:
    """All flags for C++, for nvcc and for the linker. The user's flags follow ours, and the flags
    of settings come last.
    """
    if spec.ours:
        cflags = default_cflags(tools, with_cuda and not spec.variant)
        cuda = default_cuda_cflags(spec.cuda_cflags) if with_cuda else ()
    else:
        cflags, host = _common_cflags(tools, "-O1"), ("-Xcompiler", "-O1")
        cuda = _common_cuda_cflags(host, spec.cuda_cflags) if with_cuda else ()
    more = ("-include", CONSTANTS) if spec.variant else ()
    only = ("-fatbin",) if spec.device_code else ()
    debug = ("-O0", "-g") if settings.flag("LLTM_JIT_DEBUG") else ()
    cuda_debug = (*debug, "-lineinfo") if debug else ()
    if settings.flag("CUDA_DEVICE_DEBUG"):
        cuda_debug = ("-O0", "-g", "-G")
    sanitizers = settings.text("LLTM_JIT_SANITIZE")
    ldflags = [f"-fsanitize={sanitizers}"] if sanitizers else []
    if tools.cxx_family == "gcc":
        # A compiler that finds no libstdc++.so silently links the static library, and the second
        # C++ runtime in the process crashes when it first formats a number. The shared library,
        # which torch has loaded, takes precedence if it is named.
        ldflags.append("-l:libstdc++.so.6")
    return (
        (*cflags, *spec.cflags, *more, *debug),
        (*cuda, *spec.cuda_cflags, *more, *only, *cuda_debug) if with_cuda else (),
        (*ldflags, *spec.ldflags),
    )


def of_nvrtc(spec: Spec) -> Flags:
    """All flags for NVRTC. A function without an execution space is for the GPU."""
    lineinfo = [name for name in ("LLTM_JIT_LINEINFO", "LLTM_JIT_DEBUG") if settings.flag(name)]
    debug = ("-G",) if settings.flag("CUDA_DEVICE_DEBUG") else ("-lineinfo",) if lineinfo else ()
    return (), ("-default-device", *spec.cuda_cflags, *debug), ()


def default_cflags(toolchain: Toolchain, with_cuda: bool) -> tuple[str, ...]:
    """C++ flags of our own kernels."""
    flags = [*_common_cflags(toolchain, "-O3")]
    if toolchain.machine == "x86_64" and toolchain.cxx_family in ("gcc", "clang"):
        flags += _CPU_FLAGS.get(toolchain.cpu_capability, "").split()
    if toolchain.cxx_family == "gcc":
        # Without it at::parallel_for runs on one thread. The linker does not get it, and so takes
        # the libgomp that torch has loaded. clang's OpenMP needs another library, maybe missing.
        flags.append("-fopenmp")
    if with_cuda:
        flags.append("-DWITH_CUDA")
    return tuple(flags)


def _common_cflags(toolchain: Toolchain, level: str) -> tuple[str, ...]:
    """C++ flags of every extension. -O1 compiles as fast as torch's flags, which have no
    level.
    """
    flags = [level]
    if sanitizers := settings.text("LLTM_JIT_SANITIZE"):
        flags += [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-g"]
    if toolchain.cxx_family == "gcc":
        flags += [_NO_UNIQUE, _HEAP, _AS_SEARCHED]
    return (*flags, "-fdiagnostics-color=never") if toolchain.cxx_family else tuple(flags)


def default_cuda_cflags(more: Iterable[str] = ()) -> tuple[str, ...]:
    """nvcc flags of our own kernels; ``more`` are flags that follow them."""
    return (*_common_cuda_cflags(("-O3",), more), *_HALF_OPERATORS)


def _common_cuda_cflags(level: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """nvcc flags of every extension. nvcc optimises device code anyway; the level is for host
    code, and a level in the user's flags overrides it.
    """
    flags = [*level, *(["-lineinfo"] if settings.flag("LLTM_JIT_LINEINFO") else [])]
    host = " ".join([*more, *(os.environ.get(name, "") for name in _OF_HOST_COMPILER)])
    if "clang" not in host:  # torch hands CC to nvcc as its host compiler
        flags += ["-Xcompiler", _NO_UNIQUE]
    return tuple(flags)


def architectures(tools: Toolchain, cuda_cflags: Iterable[str]) -> tuple[str, ...]:
    """The architectures that nvcc compiles for, in torch's spelling: the flags', else the GPUs'."""
    told = r"(?:code=(sm|compute)|arch=sm)_(\d+)(\d)([af]?)"
    found = [
        f"{major}.{minor}{letter}" + "+PTX" * (kind == "compute")
        for kind, major, minor, letter in re.findall(told, " ".join(cuda_cflags))
    ]
    if found or any("arch" in flag for flag in cuda_cflags):
        return tuple(dict.fromkeys(found))
    return tools.architectures


def nvrtc_architecture(nvrtc: Nvrtc) -> tuple[str, ...]:
    """The one architecture that NVRTC compiles for: the newest requested one that runs on all GPUs
    of this machine, or the newest if there is no GPU.

    The driver compiles code for ``+PTX`` further; it is chosen if nothing else runs. The result is
    empty if nothing runs on all GPUs.
    """
    from ..machine import gpus  # most imports do not need it

    if torch.cuda.is_initialized():  # torch knows the GPUs then
        count = torch.cuda.device_count()
        capabilities = [torch.cuda.get_device_capability(place) for place in range(count)]
    else:
        capabilities = gpus.compute_capabilities()
    asked = gpus.architectures(nvrtc.newest, capabilities)
    found = [name.removesuffix("+PTX") for name in asked] + [n for n in asked if n[-4:] == "+PTX"]
    found = [name for name in found if all(gpus.runs_any([name], each) for each in capabilities)]
    # Without a GPU, PTX is preferred, which later GPUs run, too.
    found.sort(key=lambda name: (name.endswith("+PTX") == (not capabilities), gpus.number(name)))
    return tuple(found[-1:])


def gencode(architectures: Iterable[str]) -> list[str]:
    """nvcc's flags for architectures in torch's spelling."""
    found = []
    for name in architectures:
        number = name.removesuffix("+PTX").replace(".", "")
        found.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if name.endswith("+PTX"):
            found.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return sorted(set(found))


def words(flags: Iterable[str]) -> list[str]:
    """Flags as the shell splits them; each may be several words."""
    joined = " ".join(flags)
    try:
        return shlex.split(joined)
    except ValueError:  # a quote that is not closed
        return joined.split()


def parts(flags: Iterable[str], depth: int = 9) -> list[str]:
    """Words as a compiler passes them to its tools, with those of response files (``@file``)."""
    found = []
    for word in words(flags):
        for part in filter(None, re.sub(_PASSED_ON, "", word).split(",")):
            found.append(part)
            if part.startswith("@/") and depth and os.path.isfile(part[1:]):
                with open(part[1:], encoding="utf-8", errors="surrogateescape") as file:
                    found += parts([file.read()], depth - 1)
    return found


def named_files(flags: Iterable[str]) -> list[str]:
    """The files that flags name, such as files of flags or profiles, which no compiler reports."""
    told = [word for word in parts(flags) if word[:2] != "-D"]
    named = [match[0] for word in told for match in _NAMED.finditer(word)]
    if any("-fprofile-use" in word for word in told):  # a folder may be named
        for folder in filter(os.path.isdir, [*named]):
            named += [os.path.join(folder, name) for name in os.listdir(folder)]
    return list(dict.fromkeys(filter(os.path.isfile, named)))


@cache
def library_folders() -> tuple[str, ...]:
    """Folders of libraries: their files are not the user's, unless a source lies there, too."""
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    prefixes = (sys.prefix, sys.base_prefix)
    places = [sysconfig.get_path("include"), packages]
    places += [os.path.join(prefix, kind) for kind in ("include", "lib") for prefix in prefixes]
    roots = "/usr/include /usr/lib /usr/lib32 /usr/lib64 /usr/local/cuda /usr/local/include"
    roots += " /usr/local/lib /usr/share /lib /lib64 /opt /nix"
    return tuple(os.path.join(path, "") for path in dict.fromkeys([*places, *roots.split()]))
