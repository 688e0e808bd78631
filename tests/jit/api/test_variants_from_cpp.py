"""Variants of a real kernel, called from C++: on the CPU and the GPU, from threads and children."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from harness import HERE, in_threads

from lltm_jit import jit
from lltm_jit.jit import torch_api, variants
from lltm_jit.jit.variants import Variant

KERNELS = HERE.parents[1] / "kernels"
SUMS = HERE / "sums"
pytestmark = pytest.mark.slow  # the host takes seconds to compile
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def host():
    """An extension that calls variants from C++, by addresses of tensors."""
    return torch_api.load("sums_host", SUMS / "host.cpp", extra_include_paths=[KERNELS])


@pytest.fixture
def kernel_name(host, root, tmp_path) -> str:
    """A name that the host has not asked for yet, and an empty cache."""
    return tmp_path.name.replace("_", "-") + ".sums"


@pytest.fixture
def sums(kernel_name) -> Variant:
    """A kernel for the real compiler."""
    declared = Variant(kernel_name, SUMS / "variants" / "sums.cpp", (KERNELS,))
    variants.declare(declared)
    return declared


def check(call, kernel: Variant, size: int, device: str = "cpu", element: str = "float") -> None:
    """Sums by a variant are the sums."""
    x = torch.arange(12 * size, dtype=getattr(torch, element), device=device)
    y = torch.zeros(12, dtype=x.dtype, device=device)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
    assert call(kernel.name, element, size, x.data_ptr(), y.data_ptr(), 12, stream) == 0
    assert torch.equal(y, x.view(12, size).sum(1))


def test_results_from_cpp(host, kernel_name, capsys):
    kernel = Variant(kernel_name, SUMS / "variants" / "sums.cpp", (KERNELS,))
    variants.declare(kernel)
    for _ in range(2):
        check(host.sums, kernel, 3)
        check(host.sums, kernel, 4)
        check(host.sums_elsewhere, kernel, 4, element="double")
    told = [line for line in capsys.readouterr().err.splitlines() if "building" in line]
    assert [line.split(" for ")[0].partition(" variant ")[2] for line in told] == [
        "float, size 3",
        "float, size 4",
        "double, size 4",
    ]


AGAIN = """
import ctypes, os, sys
os.environ["LLTM_JIT_AT_IMPORT"] = "0"
from pathlib import Path
from lltm_jit.jit import variants

started = []
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)
source, kernels = map(Path, sys.argv[2:])
constants = (("ELEMENT", "float"), ("SIZE", "3"))
variants.declare(variants.Variant(sys.argv[1], source, (kernels,)))
address = variants.load_declared((sys.argv[1], "sums", constants, ""))
x, y = (ctypes.c_float * 3)(1, 2, 4), ctypes.c_float()
ctypes.CFUNCTYPE(ctypes.c_int)(address)(x, ctypes.byref(y), ctypes.c_long(1), None)
print(y.value, len(started))
"""


def test_another_process_starts_none(host, sums):
    check(host.sums, sums, 3)
    command = [sys.executable, "-c", AGAIN, sums.name]
    done = subprocess.run(
        [*command, str(sums.source), str(KERNELS)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("7.0 0\n", "")


def test_eight_threads_build_three_variants_once(host, sums, capfd):
    sizes = [number % 3 + 1 for number in range(8)]
    in_threads(*(partial(check, host.sums_elsewhere, sums, size) for size in sizes))
    assert capfd.readouterr().err.count("building") == 3


def test_a_forked_child_uses_and_builds_variants(host, sums):
    check(host.sums, sums, 3)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check(host.sums, sums, 3)
            check(host.sums_elsewhere, sums, 4)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("call", ["sums", "sums_elsewhere"])
def test_an_error_names_the_users_line_each_time(host, sums, tmp_path, call):
    source = tmp_path / "broken.cpp"
    source.write_text("// a comment\nint x = SIZE + zero;\n")
    variants.declare(replace(sums, source=source))
    for _ in range(2):
        with pytest.raises(jit.BuildError) as caught:
            getattr(host, call)(sums.name, "float", 3, 0, 0, 0, 0)
        place, *shown = str(caught.value).splitlines()[1:5]
        assert place.endswith("broken.cpp:2:16")
        assert shown == ["  |", "2 | int x = SIZE + zero;", "  |                ^"]
    variants.declare(sums)
    with pytest.raises(jit.BuildError, match=r"(?s)  --> constants\.h:1.*#define ELEMENT flaot"):
        host.sums(sums.name, "flaot", 3, 0, 0, 0, 0)


def test_a_kernel_that_nobody_declared_is_told(host):
    with pytest.raises(jit.LltmJitError, match=r"declared, but got 'unknown\.kernel'"):
        host.sums("unknown.kernel", "float", 3, 0, 0, 0, 0)


def test_a_loaded_variant_costs_next_to_nothing(host, sums):
    """Measured are 1 to 10 ns; of several runs the quickest, as the machine does other things."""
    costs = {
        count: min(host.overhead(sums.name, count, 20_000) for _ in range(9))
        for count in (1, 20, 1000)
    }
    print({count: f"{cost:.1f} ns" for count, cost in costs.items()})
    assert max(costs.values()) < 200


@needs_gpu
def test_on_the_gpu_and_not_while_a_graph_is_captured(host, kernel_name):
    source = SUMS / "variants" / "sums_cuda.cu"
    cuda = Variant(kernel_name, source, (KERNELS,), prepare="sums.prepare(float, 3)")
    variants.declare(cuda)
    check(host.sums, cuda, 4, "cuda")
    x, y = torch.ones(36, device="cuda"), torch.zeros(12, device="cuda")

    def call() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        host.sums(cuda.name, "float", 3, x.data_ptr(), y.data_ptr(), 12, stream)

    refused, graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    message = (
        r"the kernel for float, size 3 is not loaded yet, .*; call sums\.prepare\(float, 3\) before"
    )
    with pytest.raises(jit.LltmJitError, match=message), torch.cuda.graph(refused):
        call()
    constants = (("ELEMENT", "float"), ("SIZE", "3"))
    variants.load_declared((cuda.name, "sums", constants, ""))  # which is what prepare() would do
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    assert y.tolist() == [3.0] * 12
