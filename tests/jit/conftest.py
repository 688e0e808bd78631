import itertools
import os
import subprocess
import sysconfig
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_driver import Driver
from harness import Bench, Gate, Package

from lltm_jit.jit import variants
from lltm_jit.jit.machine import nvrtc
from lltm_jit.jit.machine.toolchain import Nvrtc
from lltm_jit.jit.request import request
from lltm_jit.jit.user import errors

TEMPLATE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
PyMODINIT_FUNC PyInit_basic() { return PyModule_Create(&definition); }
PyMODINIT_FUNC PyInit_rnn() { return PyModule_Create(&definition); }
"""


_numbers = itertools.count()


@pytest.fixture
def tmp_path(tmp_path) -> Path:
    """A folder that no test had before: the engine has loaded what was built there.

    Some versions of pytest give a test the folder of one that has passed.
    """
    path = tmp_path / str(next(_numbers))
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    """A real, empty extension module, which the fake linker appends to."""
    directory = tmp_path_factory.mktemp("template")
    source, library = directory / "template.cpp", directory / "template.so"
    source.write_text(TEMPLATE)
    include = sysconfig.get_path("include")
    command = ["c++", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """An empty cache, for the real compiler."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gate(tmp_path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def bench(tmp_path, template, monkeypatch) -> Bench:
    bench = Bench(tmp_path)
    compiler = bench.write_compiler()
    bench.environment = {
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "cache"),
        "CXX": str(compiler),
        "FAKE_TEMPLATE": str(template),
        "FAKE_COUNTS": str(tmp_path / "counts"),
        "MAX_JOBS": "2",
    }
    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))  # the machine's nvcc is not asked
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a disk takes hundredths of a second
    for name in ("LLTM_JIT_QUIET", "LLTM_JIT_VERBOSE", "LOCAL_RANK", "CC"):
        monkeypatch.delenv(name, raising=False)
    bench.write("core/shared.h", "shared header\n")
    bench.write("one/one.cpp", '#include "core/shared.h"\none\n')
    bench.write("two/two.cpp", "two\n")
    return bench


@pytest.fixture
def real(bench, monkeypatch):
    """The bench with a real compiler, and torch's build in small."""
    monkeypatch.setenv("CXX", "c++")
    return bench


@pytest.fixture
def hour(monkeypatch) -> threading.Event:
    """Once it is set, an hour has passed for limits of time."""
    passed, now = threading.Event(), time.monotonic
    later = SimpleNamespace(monotonic=lambda: now() + 3600 * passed.is_set())
    monkeypatch.setattr(errors, "time", later)
    return passed


@pytest.fixture
def cuda(bench, monkeypatch):
    """A bench with a CUDA source, and a torch that has CUDA."""
    bench.write("three.cu", "three\n")
    for name in ("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("lltm_jit.jit.machine.gpus.compute_capabilities", list)
    return bench


@pytest.fixture
def toolkit(cuda, monkeypatch) -> Path:
    """The root of a CUDA toolkit, which CUDA_HOME names."""
    root = cuda.write_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(root))
    return root


@pytest.fixture
def by_nvrtc(cuda, monkeypatch):
    """A bench without any compiler but a fake NVRTC, which tells what it compiled: the code is the
    text. A text with the word "wrong" does not compile, and kernels have the type in ``type``.
    """
    found = Nvrtc("/fake/libnvrtc.so.13", "13.0.88", (12, 1), ())
    monkeypatch.setattr(request, "find_nvrtc", lambda home: found)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    # Another test may have used this machine's GPU.
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    cuda.compiled, cuda.type = [], "void (float const*, float*, long, float)"

    def compile(path, text, name, options, functions=()):
        cuda.compiled.append((text, options))
        if "wrong" in text:
            return nvrtc.Compiled(b"", {}, f'{name}(2): error: identifier "wrong" is undefined')
        symbols = {name: [f"_Z{name}", cuda.type] for name in functions}
        return nvrtc.Compiled(text.encode(), symbols, "")

    monkeypatch.setattr(nvrtc, "compile", compile)
    return cuda


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(variants.ctypes, "CDLL", lambda name: driver)
    return driver


@pytest.fixture
def package(bench) -> Package:
    """The package with small families, and with torch itself."""
    return Package(bench)
