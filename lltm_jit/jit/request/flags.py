"""The flags of the compilers and the linker: those of every extension, and more for our kernels."""

from __future__ import annotations

import os

from ..machine.toolchain import Toolchain
from ..user import settings

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


def default_cflags(toolchain: Toolchain, with_cuda: bool) -> tuple[str, ...]:
    """C++ flags of our own kernels."""
    flags = [*common_cflags(toolchain, "-O3")]
    if toolchain.machine == "x86_64" and toolchain.cxx_family in ("gcc", "clang"):
        flags += _CPU_FLAGS.get(toolchain.cpu_capability, "").split()
    if toolchain.cxx_family == "gcc":
        # Without it at::parallel_for runs on one thread. The link goes without: libgomp then is the
        # one that torch has loaded. clang's OpenMP calls another library, which may not be there.
        flags.append("-fopenmp")
    if with_cuda:
        flags.append("-DWITH_CUDA")
    return tuple(flags)


def common_cflags(toolchain: Toolchain, level: str = "-O1") -> tuple[str, ...]:
    """C++ flags of every extension; the level is that of the user's own, unless their flags differ.

    torch passes no level, so that compilers optimise nothing. -O1 takes no longer to compile.
    """
    flags = ["-O0", "-g"] if settings.flag("LLTM_JIT_DEBUG") else [level]
    if sanitizers := settings.text("LLTM_JIT_SANITIZE"):
        flags += [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-g"]
    if toolchain.cxx_family == "gcc":
        # GNU unique symbols would be shared between the old and the new library after a reload;
        # clang does not make any, and does not know the flag.
        flags.append("-fno-gnu-unique")
        # Below a GiB, g++'s own garbage collector takes an eighth of the time, and frees little.
        flags.append("--param=ggc-min-heapsize=1048576")
    if toolchain.cxx_family:
        flags.append("-fdiagnostics-color=never")
    return tuple(flags)


def default_cuda_cflags() -> tuple[str, ...]:
    """nvcc flags of our own kernels."""
    return (*common_cuda_cflags(("-O3",)), *_HALF_OPERATORS)


def common_cuda_cflags(level: tuple[str, ...] = ("-Xcompiler", "-O1")) -> tuple[str, ...]:
    """nvcc flags of every extension; the level is that of the host code in the user's own.

    nvcc optimises device code anyway, and puts any level of the user's behind this one.
    """
    flags = [*level]
    if settings.flag("CUDA_DEVICE_DEBUG"):
        flags = ["-g", "-G", "-O0"]
    elif settings.flag("LLTM_JIT_DEBUG"):
        flags = ["-g", "-lineinfo", "-O0"]
    elif settings.flag("LLTM_JIT_LINEINFO"):
        flags += ["-lineinfo"]
    if "clang" not in os.environ.get("CC", ""):  # torch hands CC to nvcc as its host compiler
        flags += ["-Xcompiler", "-fno-gnu-unique"]
    return tuple(flags)


def default_ldflags(toolchain: Toolchain) -> tuple[str, ...]:
    """Linker flags of every extension.

    A compiler that finds no libstdc++.so silently links the static library, and the second C++
    runtime in the process crashes when it first formats a number. Naming the shared library, which
    torch has already loaded, takes precedence over the static one.
    """
    flags = []
    if sanitizers := settings.text("LLTM_JIT_SANITIZE"):
        flags.append(f"-fsanitize={sanitizers}")
    if toolchain.cxx_family == "gcc":
        flags.append("-l:libstdc++.so.6")
    return tuple(flags)
