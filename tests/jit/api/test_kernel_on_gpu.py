"""``kernel`` on a GPU: results, streams, graphs, clusters, several GPUs, and torch.compile."""

import ctypes
import time
from functools import partial

import pytest
import torch
from harness import in_threads

import lltm_jit
from lltm_jit import jit

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.usefixtures("root"),
]

SCALE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T>
__global__ void scale(const T* x, T* y, long n, float factor) {
  long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * factor);
}
"""
TYPES = {
    "float": torch.float,
    "double": torch.double,
    "__half": torch.half,
    "__nv_bfloat16": torch.bfloat16,
}


def blocks(x, *rest):
    return (x.numel() + 255) // 256


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", [0, 1, 255, 256, 100_001])
def test_results(name, size):
    x = torch.randn(size, dtype=TYPES[name], device="cuda")
    y = torch.empty_like(x)
    lltm_jit.kernel(SCALE, f"scale<{name}>")[blocks, 256](x, y, size, 2.0)
    torch.testing.assert_close(y, 2 * x)


OTHERS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct Size { long rows; int columns; };
__global__ void others(bool flag, short small, unsigned char byte, __half half_, __nv_bfloat16 b,
                       double d, Size size, const float* none, double* out) {
  out[0] = flag; out[1] = small; out[2] = byte; out[3] = __half2float(half_);
  out[4] = __bfloat162float(b); out[5] = d; out[6] = size.rows; out[7] = size.columns;
  out[8] = none == nullptr;
}
"""


class Size(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int64), ("columns", ctypes.c_int))


def test_every_type_of_argument():
    out = torch.empty(9, dtype=torch.double, device="cuda")
    kernel = lltm_jit.kernel(OTHERS, "others")
    kernel[1, 1](True, -2, 200, 1.5, -0.25, 0.1, Size(1 << 40, -7), None, out)
    assert out.tolist() == [1, -2, 200, 1.5, -0.25, 0.1, 1 << 40, -7, 1]
    with pytest.raises(ValueError, match="argument 7, Size, to have 16 bytes, but got 3"):
        kernel[1, 1](True, -2, 200, 1.5, -0.25, 0.1, b"123", None, out)


def test_it_runs_on_the_current_stream():
    x, y = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    kernel, stream = lltm_jit.kernel(SCALE, "scale<float>"), torch.cuda.Stream()
    kernel[blocks, 256](x, y, x.numel(), 2.0)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        kernel[blocks, 256](x, y, x.numel(), 3.0)
    assert not stream.query()
    stream.synchronize()
    assert y[0].item() == 3


def test_what_is_not_loaded_is_refused_in_a_graph():
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel = lltm_jit.kernel(SCALE + "// in a graph\n", "scale<float>")
        with pytest.raises(jit.LltmJitError, match=r"call its load\(\), before the capture"):
            kernel[1, 8](x, x, 8, 2.0)
    kernel[1, 8](x, x, 8, 2.0)
    assert x.tolist() == [2.0] * 8


MEMORY = """
__global__ void large(float* y) {
  extern __shared__ float memory[];
  memory[threadIdx.x * 512] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = memory[(blockDim.x - 1 - threadIdx.x) * 512];
}
__global__ void clusters(int* y) {
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  y[blockIdx.x] = size;
}
__global__ void together(unsigned* count, unsigned* seen) {
  atomicAdd(count, 1);
  __threadfence();
  while (atomicAdd(count, 0) < gridDim.x) { }
  seen[blockIdx.x] = *count;
}
"""


def test_shared_memory_above_the_usual():
    y = torch.empty(32, device="cuda")
    lltm_jit.kernel(MEMORY, "large")[1, 32, 32 * 512 * 4](y)
    assert y.tolist() == [*range(31, -1, -1)]


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0),
    reason="needs a GPU with clusters",
)
@pytest.mark.parametrize("cluster", [2, 4, 16])
def test_clusters(cluster):
    y = torch.empty(16, dtype=torch.int, device="cuda")
    lltm_jit.kernel(MEMORY, "clusters").launch(16, 32, cluster=cluster)(y)
    assert y.tolist() == [cluster] * 16


def test_a_cooperative_launch():
    count = torch.zeros(1, dtype=torch.int, device="cuda")
    seen = torch.zeros(16, dtype=torch.int, device="cuda")
    kernel = lltm_jit.kernel(MEMORY, "together")
    kernel.launch(16, 1, cooperative=True)(count, seen)
    assert seen.tolist() == [16] * 16
    with pytest.raises(jit.LltmJitError, match="together cannot be launched: the driver says"):
        kernel.launch(1 << 20, 1024, cooperative=True)(count, seen)


def test_a_launch_that_the_driver_refuses():
    x = torch.ones(8, device="cuda")
    with pytest.raises(jit.LltmJitError, match=r"says .* to grid \(1, 1, 1\), block \(2048, 1, 1"):
        lltm_jit.kernel(SCALE, "scale<float>")[1, 2048](x, x, 8, 1.0)
    lltm_jit.kernel(SCALE, "scale<float>")[1, 8](x, x, 8, 2.0)
    assert x.tolist() == [2.0] * 8


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_several_gpus():
    """It runs where the tensors are, whichever is the current one."""
    kernel = lltm_jit.kernel(SCALE, "scale<float>")
    for place in (1, 0, 1):
        x = torch.ones(8, device=f"cuda:{place}")
        kernel[1, 8](x, x, 8, 3.0)
        assert x.tolist() == [3.0] * 8
        assert torch.cuda.current_device() == 0


def test_new_threads_can_launch():
    kernel, found = lltm_jit.kernel(SCALE, "scale<float>"), []

    def run(factor):
        x = torch.ones(1000, device="cuda")
        for _ in range(100):
            y = torch.empty_like(x)
            kernel[blocks, 256](x, y, 1000, factor)
            found.append(bool((y == factor).all()))

    in_threads(*(partial(run, float(n)) for n in range(8)))
    assert found == [True] * 800


def test_it_is_recorded_in_a_graph_which_keeps_the_old_code_after_an_edit(tmp_path):
    source = tmp_path / "scale.cu"
    source.write_text(SCALE)
    kernel = lltm_jit.kernel(source, "scale<float>")
    x, y = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[1, 8](x, y, 8, 2.0)
    source.write_text(SCALE.replace("* factor", "* factor + 1"))
    lltm_jit.reload(kernel)
    kernel[1, 8](x, y, 8, 2.0)
    assert y.tolist() == [3.0] * 8
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10.0] * 8


@pytest.mark.slow
def test_a_launch_takes_little_more_than_an_addition():
    x = torch.ones(8, device="cuda")
    launch = lltm_jit.kernel(SCALE, "scale<float>")[1, 8]

    def host(call):
        best = 1.0
        for _ in range(20):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(200):
                call()
            best = min(best, (time.perf_counter() - began) / 200)
        return best

    assert host(lambda: launch(x, x, 8, 1.0)) < 1.5 * host(lambda: torch.add(x, 1.0, out=x))
