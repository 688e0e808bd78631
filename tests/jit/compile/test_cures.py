"""Every cure in ``causes.py`` is of something that happens, and helps where that can be tried."""

import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from golden import record
from small_files import write

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.user import causes

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.txt"
TORCH = Path(torch.__file__).parent / "include"
# What no log of a compiler has: errors of Python, of its imports, and of torch.
ERRORS = (
    'generic_type: type "P" is already registered!',
    "x.so: undefined symbol: foo_bar",
    "dynamic module does not define module export function (PyInit_mine)",
    "/noexec/x.so: failed to map segment from shared object",
    "libfoo.so.1: cannot open shared object file: No such file or directory",
    "unrecognized command line option '-std=c++20'",
    "'torch' has not been declared",
    "bindings: 'f' was not declared in this scope",
)


@dataclass
class Trial:
    """A build that fails, what its message advises, and what that changes."""

    files: dict[str, str]
    advice: str
    arguments: dict[str, Any] = field(default_factory=dict)
    then_files: dict[str, str] = field(default_factory=dict)
    then: dict[str, Any] = field(default_factory=dict)


USES = {"a.cpp": "int far();\nint value() { return far(); }\n"}
FAR = "int far() { return 1; }\n"
WITH_FAR = {"extra_ldflags": ["-L{here}", "-l{far}", "-Wl,-rpath,{here}"]}
WITH_TORCH = {
    "extra_include_paths": [str(TORCH), str(TORCH / "torch/csrc/api/include")],
    "extra_cflags": ["-std=c++20"],
    "extra_ldflags": [shlex.quote(f"-L{TORCH.parent}/lib"), "-lc10", "-ltorch_cpu", "-ltorch"],
}
MODULE = """#include <pybind11/pybind11.h>
struct P {};
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { pybind11::class_<P>(m, "P"); }
"""
WITH_PYBIND = {
    "extra_include_paths": [str(TORCH), sysconfig.get_path("include")],
    "extra_cflags": ["-DTORCH_EXTENSION_NAME={name}"],
    "is_python_module": True,
}
TRIALS = {
    "flag": Trial(
        {"a.cpp": ""},
        "remove this flag",
        {"extra_cflags": ["-fnonsense"]},
        then={"extra_cflags": []},
    ),
    "header": Trial(
        {"a.cpp": '#include "b.h"\n', "there/b.h": ""},
        "add the directory that holds it to the include paths",
        then={"extra_include_paths": ["there"]},
    ),
    "library_header": Trial(
        {"a.cpp": "#include <cusparse.h>\n", "there/cusparse.h": ""},
        "or give a directory with cusparse.h in extra_include_paths",
        then={"extra_include_paths": ["there"]},
    ),
    "old_standard": Trial(
        {"a.cpp": "#include <type_traits>\nstatic_assert(std::is_same_v<int, int>);\n"},
        "remove -std from your flags",
        {"extra_cflags": ["-std=c++14"]},
        then={"extra_cflags": []},
    ),
    "newer_standard": Trial(
        {"a.cpp": "#include <memory>\nauto one = std::make_unique<int>(1);\n"},
        "or give a newer one",
        {"extra_cflags": ["-std=c++11"]},
        then={"extra_cflags": ["-std=c++14"]},
    ),
    "macro": Trial(
        {"a.cpp": "const char* title() { return TITLE; }\n"},
        "write -DNAME='\"text\"'",
        {"extra_cflags": ['-DTITLE="draft"']},
        then={"extra_cflags": ["-DTITLE='\"draft\"'"]},
    ),
    "at_check": Trial(
        {"a.cpp": "#include <c10/util/Exception.h>\nvoid f(int n) { AT_CHECK(n == 2); }\n"},
        "write TORCH_CHECK instead",
        WITH_TORCH,
        {"a.cpp": "#include <c10/util/Exception.h>\nvoid f(int n) { TORCH_CHECK(n == 2); }\n"},
    ),
    "type_of_tensor": Trial(
        {"a.cpp": record.SOURCES["type_of_tensor.cpp"]},
        "write x.scalar_type() instead of x.type()",
        WITH_TORCH,
        {"a.cpp": record.SOURCES["type_of_tensor.cpp"].replace("x.type", "x.scalar_type")},
    ),
    "torchs_name": Trial(
        {"a.cpp": "at::Tensor f(at::Tensor x) { return x; }\n"},
        "include the header that declares it, such as <torch/extension.h>",
        WITH_TORCH,
        {"a.cpp": "#include <torch/types.h>\nat::Tensor f(at::Tensor x) { return x; }\n"},
    ),
    "symbol": Trial(USES, "defines far(): add the source", then_files={"b.cpp": FAR}),
    "symbol_of_library": Trial(USES, "the -l flag that does", then=WITH_FAR),
    "library": Trial(
        USES,
        "give its directory in extra_ldflags: -L/its/directory",
        {"extra_ldflags": ["-l{far}"]},
        then=WITH_FAR,
    ),
    "library_at_import": Trial(
        USES,
        "link with -Wl,-rpath,/its/directory",
        {"extra_ldflags": ["-L{here}", "-l{far}"]},
        then=WITH_FAR,
    ),
    "undefined": Trial(
        USES,
        "no given source or library defines it",
        {"extra_ldflags": ["-Wl,-z,defs"]},
        {"b.cpp": FAR},
    ),
    "twice": Trial(
        {"a.cpp": FAR, "b.cpp": FAR},
        "mark it `inline`",
        then_files=dict.fromkeys(("a.cpp", "b.cpp"), f"inline {FAR}"),
    ),
    "no_module": Trial(
        {"a.cpp": MODULE.replace("TORCH_EXTENSION_NAME", "other")},
        "write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)",
        WITH_PYBIND,
        {"a.cpp": MODULE.replace('"P"', '"P", pybind11::module_local()')},
    ),
    "no_module_needed": Trial(
        {"a.cpp": FAR},
        "a library without a module needs is_python_module=False",
        {"is_python_module": True},
        then={"is_python_module": False},
    ),
    "class": Trial(
        {"a.cpp": MODULE.replace('"P"', '"P", pybind11::module_local(false)')},
        "declare it with pybind11::module_local()",
        WITH_PYBIND,
        {"a.cpp": MODULE.replace('"P"', '"P", pybind11::module_local()')},
    ),
}


def test_every_cause_is_provoked():
    """By a log in ``golden``, or by an error as above."""
    told = GOLDEN.read_text("utf-8") + "".join(f"{causes.cure_of(error)}\n" for error in ERRORS)
    literal = [max(re.split(r"\{\w+\}", cure), key=len) for _, cure in causes.CAUSES]
    assert [cure for cure in literal if cure not in told] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_the_advice_helps(real, monkeypatch, name):
    trial = TRIALS[name]
    monkeypatch.chdir(real.directory)
    far = f"far_of_{name}"  # of a name that this process has not loaded
    make = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", f"lib{far}.so"]
    subprocess.run(make, input=FAR.encode(), check=True)
    if name == "class":  # which another extension has defined
        load("earlier", trial.files, trial.arguments, far)
    with pytest.raises(BuildError) as caught:
        load("mine", trial.files, trial.arguments, far)
    assert trial.advice in str(caught.value)
    load("mine", trial.files | trial.then_files, trial.arguments | trial.then, far)


def load(name: str, files: dict[str, str], arguments: dict[str, Any], far: str) -> None:
    """Write files into the working directory, and load what they are the sources of."""
    for file, text in files.items():
        write(file, text)
    marks = {"here": Path.cwd(), "name": name, "far": far}
    arguments = {
        key: [each.format(**marks) for each in given] if isinstance(given, list) else given
        for key, given in arguments.items()
    }
    sources = [file for file in files if file.endswith(".cpp")]
    torch_api.load(name, sources, **{"is_python_module": False, **arguments})


HALF = record.NO_HALF + record.NO_HALF.replace("-D", " -U")
DEVICE = """#include "common.cuh"
__global__ void k(float* x) { x[0] = elsewhere(x[0]); }
"""
SHARED = """extern __shared__ float s[];
__global__ void k(float* x) { s[0] = x[0]; }
void f(float* x) {
  cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 80000);
  k<<<1, 1, 80000>>>(x);
}
"""
# A log in ``golden``, the command that its message leads to, and the sources.
OF_NVCC = {
    "nvcc/half": (f"nvcc {HALF} -arch=sm_90 -c half.cu -o o.o", {}),
    "nvcc/half_to_float": (f"nvcc {HALF} -arch=sm_90 -c half_to_float.cu -o o.o", {}),
    "nvcc/host_too_new": ("nvcc -ccbin g++ -c empty.cu -o o.o", {}),
    "nvcc/architecture": ("nvcc -arch=$(nvcc --list-gpu-arch | head -1) -c empty.cu -o o.o", {}),
    "ptxas/extern": (
        "nvcc -arch=sm_90 -shared -Xcompiler -fPIC one.cu two.cu -o o.so",
        {
            "common.cuh": "inline __device__ float elsewhere(float x) { return x; }\n",
            "one.cu": DEVICE.replace("k", "one"),
            "two.cu": DEVICE.replace("k", "two"),
        },
    ),
    "ptxas/shared": ("nvcc -arch=sm_90 -c shared.cu -o o.o", {"shared.cu": SHARED}),
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("case", OF_NVCC)
def test_the_advice_helps_nvcc(tmp_path, case):
    record.write_sources(tmp_path)
    command, files = OF_NVCC[case]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)


def test_what_replaces_the_thc_headers_is_in_torch():
    advice = causes.cure_of("THC/THC.h: No such file or directory")
    headers = re.findall("<(.*?)>", advice)
    texts = "".join((TORCH / header).read_text() for header in headers)
    assert len(headers) == 3
    assert "define C10_CUDA_CHECK" in texts
    assert "ceil_div(" in texts


def test_a_header_that_pip_installed_is_found(tmp_path, monkeypatch):
    header = write(tmp_path / "nvidia" / "cu13" / "include" / "cusparse.h")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    advice = causes.cure_of("fatal error: cusparse.h: No such file or directory")
    assert advice.endswith(f"such as {header.parent}")
