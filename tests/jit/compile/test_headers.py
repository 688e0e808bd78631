"""Narrow headers and the halves of nvcc: who gets them, and that they change no result."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import ALL, wait_for
from small_files import write

from lltm_jit import jit
from lltm_jit.cli import main
from lltm_jit.jit.compile import headers, launcher, ninja
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.request import Request

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
EXTENSION = "#include <torch/extension.h>\n"

NARROW = {
    "a call": "auto y = torch::relu(x);",
    "requires_grad is asked": "bool b = x.requires_grad();",
    "a gradient from here": "auto y = x.requires_grad_();",
    "the version": "#if TORCH_VERSION_MAJOR >= 2 && TORCH_VERSION_MINOR > 3\n#endif",
    "a macro of its own": "#ifndef TORCH_MINE_H\n#define TORCH_MINE_H\n#endif\n#ifdef FAST\n#endif",
    "other headers": "#include <torch/library.h>\n#include <ATen/cuda/CUDAContext.h>",
    "a comment": "// torch::nn::Linear\n/* torch::tensor(1) */",
}
FULL = {
    "auto y = torch::zeros(2, torch::requires_grad());": "torch's factories take options with",
    "auto o = x.options().requires_grad(true);": "torch's factories take options with",
    "auto y = torch::tensor({1.5});": "torch::tensor chooses another dtype",
    "using namespace torch;\nauto y = tensor(1.5);": "torch::tensor chooses another dtype",
    "torch::nn::Linear layer(1, 2);": "only the full headers have this part of torch",
    "namespace F = torch::nn::functional;": "only the full headers have this part of torch",
    "THPVariable_Check(o);": "only the full headers have this part of torch",
    "#include <torch/script.h>": "it includes a header of torch that may expect the full ones",
    "#if __has_include(<ATen/ATen.h>)\n#endif": "it asks which headers there are",
    "#ifdef C10_HOST_DEVICE\n#endif": "the full headers may define C10_HOST_DEVICE",
    "#if defined(X) || \\\n  PYBIND11_VERSION_HEX\n#endif": "the full headers may define PYBIND11_",
}


def chosen(bench, text: str, **changes: Any) -> headers.Headers | None:
    source = bench.write("mine.cpp", text)
    return headers.of_source(
        Request(bench.spec(paths=(str(source),), **changes)), str(source), False
    )


@pytest.mark.parametrize("text", NARROW.values(), ids=NARROW)
def test_narrow_headers(bench, text):
    assert chosen(bench, EXTENSION + text).digest


@pytest.mark.parametrize(("text", "why"), FULL.items())
def test_what_means_something_else_gets_the_full_headers(bench, text, why):
    bench.write("more.h", text)
    for source in (EXTENSION + text, f'{EXTENSION}#include "more.h"\n'):
        found = chosen(bench, source)
        assert not found.digest
        assert found.told.startswith(f"torch's full headers: {why}")


def test_operators_that_are_named_anywhere_have_their_headers(bench):
    """Without an argument list, in a header of the user's, and without its namespace."""
    bench.write(
        "more.h", "#define APPLY(f) f(x)\nAPPLY(at::sigmoid)\nusing namespace at; auto y = tanh(x);"
    )
    made = chosen(bench, f'{EXTENSION}#include "more.h"\n').files
    assert {"ATen/ops/sigmoid.h", "ATen/ops/tanh.h"} <= made.keys()
    assert "ATen/ops/relu.h" not in made


def test_who_gets_the_full_headers(bench, monkeypatch):
    """By a setting, by an argument and with an unknown torch: in builds of their own. Our own
    sources, and those without torch's large headers, get nothing.
    """
    assert len({Request(bench.spec(narrow=wanted)).key for wanted in (True, False)}) == 2
    assert chosen(bench, "#include <torch/library.h>\n") is None
    assert chosen(bench, EXTENSION, ours=True, include_paths=("/",)) is None
    assert chosen(bench, EXTENSION, narrow=False).told.endswith("narrow headers are switched off")
    monkeypatch.setenv("LLTM_JIT_NARROW", "0")
    assert not chosen(bench, EXTENSION).digest
    monkeypatch.delenv("LLTM_JIT_NARROW")
    monkeypatch.setattr(headers, "_all_operators", frozenset)
    assert "has other headers" in chosen(bench, EXTENSION).told


def test_what_does_not_compile_with_narrow_headers_is_tried_once(bench, monkeypatch, capsys):
    """The next build, and so the next edit, has the full headers at once. An archive takes the
    objects that were compiled.
    """
    monkeypatch.chdir(bench.directory)
    bench.write("one/one.cpp", f"{EXTENSION}//! full no such thing\n")
    bench.write("two/two.cpp", EXTENSION)
    build = bench.load()
    assert bench.counts == ["compile one.cpp", *ALL]
    assert build.record.full == ["one.o"]
    assert "error" not in capsys.readouterr().err
    assert main(["archive", str(bench.sources)]) == 0
    assert bench.counts == []
    bench.edited("one/one.cpp", f"{EXTENSION}//! full no such thing\n2\n")
    bench.edited("two/two.cpp", f"{EXTENSION}2\n")
    assert engine.build(bench.spec(), force=True).compiled == 2
    assert bench.counts == ["compile one.cpp", *ALL]


def test_an_object_with_the_full_headers_is_none_with_narrow_ones(bench, monkeypatch):
    """Also where the rest of the build fails, which then remembers nothing."""
    monkeypatch.setenv("MAX_JOBS", "1")
    bench.write("one/one.cpp", f"{EXTENSION}//! full no such thing\n// the longer is the first\n")
    bench.write("two/two.cpp", "//! error wrong\n")
    bench.fails("wrong")
    bench.write("two/two.cpp", "right\n")
    assert bench.counts.count("compile one.cpp") == 2
    bench.load()
    assert bench.counts.count("compile one.cpp") == 2


def test_an_error_is_that_of_the_full_headers(bench):
    bench.write("one/one.cpp", f"{EXTENSION}//! full not declared\n//! error it is wrong\n")
    bench.fails("error: it is wrong")


FINAL = {
    "c++: error: expected ';' before '}' token": True,
    'k.cu(3): error: expected a ";"': True,
    "a.cpp:1:2: error: ‘blokIdx’ was not declared in this scope": True,
    'k.cu(3): error: identifier "blokIdx" is undefined': True,
    "a.cpp:1:2: error: ‘TORCH_LIBRARY’ was not declared in this scope": False,
    "a.cpp:1:2: error: ‘parallel_for’ was not declared in this scope": False,
    "a.cpp:1:2: error: ‘accumulate’ is not a member of ‘std’": False,
    "a.cpp:1:2: error: expected constructor, destructor, or type conversion before ‘(’": False,
    "a.cpp:1:2: fatal error: cusparse.h: No such file or directory": True,
    'k.cu(3): error: expected a ";"\nk.cu(4): error: identifier "IValue" is undefined': False,
}


@pytest.fixture(scope="module")
def names() -> set[str]:
    folders = (headers._INCLUDE, headers._API, sysconfig.get_path("include"))
    flags = [word for folder in folders for word in ("-isystem", folder)]
    return launcher._names_of_full_headers(["c++", "-c", "a.cpp", "-std=c++20", *flags])


@pytest.mark.parametrize(("said", "final"), FINAL.items())
def test_what_the_full_headers_cannot_cure_is_not_tried_with_them(monkeypatch, names, said, final):
    monkeypatch.setattr(launcher, "_names_of_full_headers", lambda command: names)
    assert launcher._is_final(said, []) is final


SOURCE = Path(__file__).parents[1] / "constructs.cpp"


def results(module: Any, namespace: str) -> Iterator[Any]:
    """What the functions of the constructs give, and what was registered."""
    for dtype in (torch.float32, torch.float64):
        x = torch.linspace(-2, 3, 12, dtype=dtype).view(3, 4)
        for name in ("factories", "indexing", "calls", "operators", "dispatch", "derivatives"):
            yield getattr(module, name)(x)
        yield module.words(x)
        yield module.guards(x)
    maybe, device = torch.ones(2), torch.device("cpu")
    given = [[2], device, torch.half, 1.5, "word", torch.contiguous_format, None, (3, 4)]
    given.append([maybe] * 3)
    for tensor in (maybe, None):
        yield str(module.arguments(tensor, *given, {"a": 2.0}))
    for call in (lambda: module.refused(maybe), module.wrong, lambda: module.arguments(1)):
        with pytest.raises((RuntimeError, IndexError, TypeError)) as caught:
            call()
        yield caught.type
        yield str(caught.value).partition("\nException raised from")[0]
    yield module.arguments.__doc__
    yield module.Adder(2).add(maybe)
    ops = getattr(torch.ops, namespace)
    yield ops.registered(maybe, 3.0, [4])
    yield ops.inferred(maybe, 2, {"a": 1.0})
    for name in ("registered", "inferred", "more"):
        yield str(getattr(ops, name).default)
        yield str(getattr(ops, name).default._schema)
    adder = getattr(torch.classes, namespace).Adder(1.5)
    yield adder.add(maybe)
    yield adder.value


@pytest.mark.slow
def test_the_same_results_and_schemas_as_with_the_full_headers(root, tmp_path):
    found = []
    for name, wanted in (("constructs_a", True), ("constructs_b", False)):
        text = SOURCE.read_text().replace("NAMESPACE", name)
        source = write(tmp_path / name / "constructs.cpp", text)
        build = jit.load(jit.Spec(name, (str(source),), cflags=("-O0",), narrow=wanted))
        assert build.record.full == []
        found.append(list(results(build.module, name)))
    for one, other in zip(*found, strict=True):
        if isinstance(one, str):
            assert one.replace("constructs_a", "constructs_b") == other
        elif isinstance(one, type):
            assert one is other
        else:
            torch.testing.assert_close(one, other, rtol=0, atol=0)


HALVES = {
    "it compiles, with a header for the GPU alone": """
        #ifdef __CUDA_ARCH__
        #include "gpu.h"
        #endif
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


@needs_nvcc
@pytest.mark.parametrize("kind", HALVES)
def test_both_halves_at_once_are_what_nvcc_makes(tmp_path, monkeypatch, kind):
    (tmp_path / "x.cu").write_text(HALVES[kind])
    (tmp_path / "gpu.h").touch()
    alone = compiled(tmp_path, "")
    assert (alone[0] == 0) == (not kind.startswith("an error"))
    assert ("gpu.h" in alone[3]) == ("header" in kind)
    assert compiled(tmp_path, "halves") == alone


@needs_nvcc
def test_a_build_that_is_ended_leaves_no_temporary_files(tmp_path):
    (tmp_path / "x.cu").write_text("#include <cuda/std/complex>\n#include <regex>\n")
    (tmp_path / "tmp").mkdir()
    words = ["nvcc", "-MD", "-MF", "x.d", "-c", "x.cu", "-o", "x.o"]
    command = [sys.executable, "-IS", launcher.__file__, "", "halves", *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    wait_for(lambda: [*tmp_path.glob("tmp/*/*.ii")])
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert [*(tmp_path / "tmp").iterdir()] == []


@needs_nvcc
def test_nvcc_is_taken_apart_where_its_steps_are_known(tmp_path):
    (tmp_path / "x.cu").touch()
    words = ["nvcc", "-c", str(tmp_path / "x.cu"), "-o", "x.o", "-MD", "-MF", "x.d"]
    assert launcher._steps(words, str(tmp_path))
    for more in (["-fatbin"], ["-ptx"], ['-DX="a"'], ["-DX=$HOME"], ["--no-such-flag"]):
        assert launcher._steps([*words, *more], str(tmp_path)) is None


def test_halves_are_compiled_at_once_where_there_are_processors_for_them(cuda, toolkit):
    request = Request(cuda.spec())
    request.work.mkdir(parents=True)
    for jobs, halves in ((5, 0), (6, 1)):
        ninja.BuildFile(request).write(request.objects, {}, jobs)
        assert (request.work / "build.ninja").read_text().count("''$ halves") == halves
