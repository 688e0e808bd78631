"""What checks of ``doctor`` find; its trial builds, which put a few lines through each tool."""

import ctypes
import re
import shlex
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from lltm_jit.jit import Toolchain
from lltm_jit.jit.machine.tools import asked
from lltm_jit.jit.request import flags

# Includes a header of torch, because torch decides how new the compiler must be.
_CXX = """\
#include <Python.h>
#include <c10/core/ScalarType.h>
extern "C" int answer() { return c10::isFloatingType(c10::ScalarType::Half) ? 42 : 0; }
"""
_CUDA = """\
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
extern "C" int launch(float* x) { twice<<<1, 32>>>(x); return cudaGetLastError(); }
"""
STANDARD = "c++20" if torch.__version__ >= "2.13" else "c++17"  # what torch's own build asks for


class Finding(NamedTuple):
    """What a check found: "ok", "warning" (it builds, but) or "problem" (it does not build)."""

    status: str
    text: str
    cure: str = ""


ok, warning, problem = (partial(Finding, status) for status in ("ok", "warning", "problem"))


def cxx(tools: Toolchain) -> str:
    """Compile, link against torch, and load, in the steps of a build; the first error, if any."""
    package, compiler = Path(torch.__file__).parent, shlex.split(tools.cxx or "")
    given = [f"-std={STANDARD}", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    given += ["-isystem", str(package / "include"), "-MMD", "-MF", "trial.d"]
    compiling = [*compiler, *given, "-c", "trial.cpp", "-o", "trial.o"]
    linking = [*compiler, "trial.o", "-shared", f"-L{package / 'lib'}", "-lc10", "-o", "trial.so"]
    return _build("trial.cpp", _CXX, [compiling, linking], load=True)


def cuda(tools: Toolchain) -> str:
    """Compile for the architectures of builds, and link; the first error, if any. Needs no GPU."""
    code = flags.gencode(tools.architectures)
    command = [tools.nvcc or "nvcc", *code, "-shared", "-Xcompiler", "-fPIC"]
    return _build("trial.cu", _CUDA, [[*command, "trial.cu", "-o", "trial.so"]], load=False)


def _build(name: str, text: str, commands: list[list[str]], load: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="lltm_jit-") as directory:
        (Path(directory) / name).write_text(text)
        for command in commands:
            status, said = asked(command, Path(directory))
            if status:
                return _first_error(said) or f"{command[0]} ends with status {status}"
        try:
            if load:
                ctypes.CDLL(f"{directory}/trial.so")
        except OSError as error:
            return str(error)
    return ""


def _first_error(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("error|cannot find|fatal", line)]
    return next(iter([*errors, *lines]), "")
