"""First calls on a GPU in new processes that find no kernels in the cache, and compile them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from op_testing import needs_gpu, run_program

import lltm_jit
from lltm_jit.jit.store import cache
from lltm_jit.ops.rnn.layers import LAYERS

IN_A_GRAPH = """
import sys
import torch
import lltm_jit

x = torch.randn(5, 4, 8, device="cuda")
x[0] @ x[0].t()  # torch cannot initialise its libraries while a graph is captured
layer = getattr(lltm_jit, sys.argv[1])(8, 32, device="cuda")

def run():
    output, _ = layer(x)
    gradients = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
    return output.detach(), *gradients  # what autograd keeps is of the stream of its first call

def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    graph.replay()
    torch.cuda.synchronize()
    return results

try:
    capture()
except lltm_jit.LltmJitError as error:
    assert "forward and backward, before the capture" in str(error)
else:
    raise AssertionError("a kernel was loaded while a graph was captured")
expected = run()
assert all(map(torch.equal, capture(), expected))
"""

OF_A_RANK = """
import torch
import torch.distributed as dist
import lltm_jit

dist.init_process_group("gloo")
output, _ = lltm_jit.LSTM(8, 32, device="cuda")(torch.randn(5, 4, 8, device="cuda"))
output.sum().backward()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A cache that has nothing but the library of the family."""
    built = lltm_jit.build_info().families["rnn"].directory
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    shutil.copytree(built, cache.builds_directory() / built.name)
    return cache.builds_directory()


@needs_gpu
@pytest.mark.parametrize("kind", sorted({layer.__name__ for layer in LAYERS.values()}))
def test_a_first_call_inside_a_graph(root, kind):
    """It says what to do, and that helps."""
    run_program(IN_A_GRAPH, kind, timeout=300)


@needs_gpu
def test_ranks_compile_a_kernel_once(root):
    options = ["--standalone", "--nproc-per-node=4", "--no-python"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, sys.executable, "-c"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, OF_A_RANK], check=True, timeout=300, env=environment)
    kernels = [path.name for path in root.glob("*/*ward.cuda.o")]
    assert sorted(kernels) == ["backward.cuda.o", "forward.cuda.o"]
