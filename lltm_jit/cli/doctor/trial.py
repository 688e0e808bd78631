"""What checks of ``doctor`` find; its trial builds, which put a few lines through each tool."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from lltm_jit.jit import Toolchain

# Includes a header of torch, because torch decides how new the compiler must be.
_CXX = """\
#include <Python.h>
#include <c10/core/ScalarType.h>
extern "C" int answer() { return c10::isFloatingType(c10::ScalarType::Half) ? 42 : 0; }
"""
_CUDA = """\
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
extern "C" int launch(float* x) {
  twice<<<1, 32>>>(x);
  return cudaGetLastError();
}
"""

STANDARD = "c++20" if torch.__version__ >= "2.13" else "c++17"  # what torch's own build asks for
_TIMEOUT = 120  # seconds; a compiler that hangs must not hang the doctor


@dataclass(frozen=True)
class Finding:
    """What a check found: "ok", "warning" (it builds, but) or "problem" (it does not build)."""

    status: str
    text: str
    cure: str = ""


def cxx(tools: Toolchain) -> str:
    """Compile, link against torch, and load, in the steps of a build; the first error, if any."""
    package, compiler = Path(torch.__file__).parent, shlex.split(tools.cxx or "")
    flags = [f"-std={STANDARD}", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    flags += ["-isystem", str(package / "include")]
    compiling = [*compiler, "-MMD", "-MF", "trial.d", *flags, "-c", "trial.cpp", "-o", "trial.o"]
    linking = [*compiler, "trial.o", "-shared", f"-L{package / 'lib'}", "-lc10", "-o", "trial.so"]
    return _build("trial.cpp", _CXX, [compiling, linking], load=True)


def cuda(tools: Toolchain) -> str:
    """Compile for the architectures of builds, and link; the first error, if any. Needs no GPU."""
    code = []
    for architecture in tools.architectures:
        number = architecture.removesuffix("+PTX").replace(".", "")
        code += [f"-gencode=arch=compute_{number},code=sm_{number}"]
    command = [tools.nvcc or "nvcc", *code, "-shared", "-Xcompiler", "-fPIC"]
    return _build("trial.cu", _CUDA, [[*command, "trial.cu", "-o", "trial.so"]], load=False)


def _build(name: str, text: str, commands: list[list[str]], load: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="lltm_jit-") as directory:
        (Path(directory) / name).write_text(text)
        try:
            for command in commands:
                done = subprocess.run(
                    command,
                    cwd=directory,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_TIMEOUT,
                )
                if done.returncode:
                    return _first_error(done)
            if load:
                ctypes.CDLL(str(Path(directory) / "trial.so"))
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return ""


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line or "cannot find" in line or "fatal" in line]
    return (errors or lines or [f"exit status {done.returncode}"])[0]
