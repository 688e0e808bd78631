"""What compiles one source: both halves of nvcc side by side give what nvcc alone gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from lltm_jit.jit.compile import launcher, ninja
from lltm_jit.jit.request.request import Request

SOURCES = {
    "it compiles": """
        namespace { __device__ int counter; }
        template <class T> __global__ void kernel(T* x) { x[0] += counter; }
        int launch(float* x, double* y) {
          int never;
          kernel<<<1, 1>>>(x);
          kernel<<<1, 1>>>(y);
          return cudaGetLastError();
        }
    """,
    "an error for the host": "__global__ void kernel() {}\nint launch() { return missing; }\n",
    "an error for the GPU": """
        #ifdef __CUDA_ARCH__
        __global__ void kernel(float* x) { x[0] = missing; }
        #endif
    """,
    "an error of ptxas": '__global__ void kernel() { asm volatile("no_instruction;"); }\n',
    "a header for the GPU alone": """
        #ifdef __CUDA_ARCH__
        #include "gpu.h"
        #endif
        __global__ void kernel() {}
    """,
}


def compiled(folder, how, *more):
    """The status, what was said, the symbols and the headers that were reported."""
    words = ["nvcc", "-MD", "-MF", "x.d", "-gencode=arch=compute_90a,code=sm_90a", *more]
    words += ["-gencode=arch=compute_80,code=compute_80", "-c", "x.cu", "-o", "x.o"]
    command = [sys.executable, "-IS", launcher.__file__, "", how, *words]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    symbols, headers = [], []
    if done.returncode == 0:
        told = subprocess.check_output(["nm", "-C", "x.o"], cwd=folder, text=True)
        # Names that hold the number of a process are of no interest.
        symbols = sorted({line[17:] for line in told.splitlines() if "x_cu" not in line})
        _, _, rest = (folder / "x.d").read_text().partition(":")
        headers = sorted({*rest.replace("\\", "").split()})
    return done.returncode, re.sub(r"/\S*tmpxft\S+", "FILE", done.stdout), symbols, headers


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("kind", SOURCES)
def test_both_halves_at_once_are_what_nvcc_makes(tmp_path, monkeypatch, kind):
    (tmp_path / "x.cu").write_text(SOURCES[kind])
    (tmp_path / "gpu.h").touch()
    alone = compiled(tmp_path, "")
    assert (alone[0] == 0) == (not kind.startswith("an error"))
    assert ("gpu.h" in alone[3]) == ("header" in kind)
    assert compiled(tmp_path, "halves") == alone


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_is_taken_apart_where_its_steps_are_known(tmp_path):
    (tmp_path / "x.cu").touch()
    words = ["nvcc", "-c", str(tmp_path / "x.cu"), "-o", "x.o", "-MD", "-MF", "x.d"]
    assert launcher._steps(words, str(tmp_path))
    for more in (["-fatbin"], ["-ptx"], ['-DX="a"'], ["-DX=$HOME"], ["--no-such-flag"]):
        assert launcher._steps([*words, *more], str(tmp_path)) is None


def test_halves_are_compiled_at_once_where_there_are_processors_for_them(cuda, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    request = Request(cuda.spec())
    request.work.mkdir(parents=True)
    for jobs, halves in ((5, 0), (6, 1)):
        ninja.BuildFile(request).write(request.objects, {}, jobs)
        assert (request.work / "build.ninja").read_text().count("''$ halves") == halves
