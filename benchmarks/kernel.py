"""``kernel``: one CUDA kernel by lltm_jit.kernel, beside torch.cuda._compile_kernel. Needs a GPU.

It times the first call in an empty cache, the call after an edit, a call in a new process, and a
launch on the host, beside an addition of torch. Each row is a process of its own, which has loaded
both packages and made the CUDA context before the clock starts. torch keeps nothing on disk.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from lltm_jit.jit import LltmJitError

from .builds import python, temporary_folder
from .shared.busy import Others
from .shared.table import Row, measured_once
from .shared.times import HOST

TITLE, WIDTH = "A kernel of one line", 18

# A process prints seconds: from the text to the result, from an edited text, and of a launch.
_STEP = '''
import json, os, statistics, sys, time
os.environ["LLTM_JIT_AT_IMPORT"] = "0"
import torch
import lltm_jit
side, value = sys.argv[1], int(sys.argv[2])
TEXT = """
__global__ void scale(const float* x, float* y, int n, double factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * float(factor) + VALUE;
}
"""
x = torch.ones(1024, device="cuda")
y = torch.empty_like(x)
torch.cuda.synchronize()

def launch_of(text):
    if side == "ours":
        kernel = lltm_jit.kernel(text, "scale")
        return lambda: kernel[4, 256](x, y, 1024, 2.0)
    kernel = torch.cuda._compile_kernel(text, "scale")
    return lambda: kernel(grid=(4, 1, 1), block=(256, 1, 1), args=[x, y, 1024, 2.0])

def seconds(value):
    began = time.perf_counter()
    launch = launch_of(TEXT.replace("VALUE", str(value)))
    launch()
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    assert y[0].item() == 2 + value
    return took, launch

def host(call, calls=500):
    """The median time of a call, which fits into the queue of the GPU."""
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times)

first, launch = seconds(value)
edit, launch = seconds(value + 1)
add = host(lambda: torch.add(x, 1.0, out=y))
print(json.dumps([first, edit, host(launch), add]))
'''
_OTHER = "_compile_kernel"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(cuda=True)


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    if not torch.cuda.is_available():
        raise LltmJitError("the benchmark of a kernel needs a GPU")
    with temporary_folder() as folder:
        others = Others()
        sides = {"ours": "ours", _OTHER: "torch"}
        found = {name: _take(folder, side, 1) for name, side in sides.items()}
        again = {name: _take(folder, side, 2) for name, side in sides.items()}
        busy = others.many()

    def rows(step: str, seconds: dict[str, float], goals: dict[str, float | None]) -> list[Row]:
        times = {name: {HOST: each} for name, each in seconds.items()}
        return measured_once(TITLE, step, "scale", times, goals, busy)

    yield rows("first call", {name: each[0] for name, each in found.items()}, {_OTHER: None})
    yield rows("edit", {name: each[1] for name, each in found.items()}, {_OTHER: None})
    # A new process calls the edited text.
    yield rows("cached", {name: each[0] for name, each in again.items()}, {_OTHER: 1.0})
    launches = {name: each[2] for name, each in found.items()}
    goals: dict[str, float | None] = {_OTHER: 1.0, "torch.add": 1.5}
    yield rows("launch, host", {**launches, "torch.add": found["ours"][3]}, goals)


def _take(folder: Path, side: str, value: int) -> list[float]:
    return json.loads(python(folder, _STEP, side, str(value)).splitlines()[-1])
