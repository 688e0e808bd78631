"""Times each kernel of the LLTM cell, and says what the plan's choice loses against the best one.

    python tools/time_lltm_kernels.py [-c] [--dtype half ..] [--sizes 64,256,512 ..]

It prints medians in microseconds of a whole pass: on a GPU in a CUDA graph over more operands than
its L2 cache holds, on the CPU in alternation. The name of a GPU kernel ends in its stages of k
(`Medium/3`). `*` marks the choice of `lltm_plan()`, and the last figure is the time of that choice
over the best time.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lltm_jit
from lltm_jit import native
from lltm_jit.jit import detect
from lltm_jit.jit.request.flags import default_cflags, default_cuda_cflags

KERNELS = native.kernels_directory()
CELL_STEP = KERNELS / "rnn" / "cell_step"
MATRICES = KERNELS / "core" / "products" / "matrices.cpp"
FORWARD = ["Library", "Cpu", "Tiny", "Medium", "Large", "MediumCluster"]
FORWARD += ["WideCluster", "LargeCluster"]
BACKWARD = ["Library", "Cpu", "Medium", "Large"]
SIZES = ["16,32,128", "1,128,128", "64,256,512", "1,1024,1024", "16,1024,1024", "128,1024,1024"]
DTYPES = ["half", "bfloat16", "float", "double"]
SECONDS = 0.5  # the time for all kernels of a pass on the CPU
L2_BYTES = 100e6

Plan = tuple[int, int, int, int]


def load(with_cuda: bool) -> Any:
    """The module of time_lltm_kernels.cpp, with the cell's kernels."""
    names = ["plan.cpp", "cpu/pointwise.cpp", "cpu/gemm.cpp"]
    if with_cuda:
        names += [f"cuda/{kind}.cu" for kind in ("pointwise", "gemm", "products", "cluster")]
    return lltm_jit.load(
        "lltm_kernel_times",
        [Path(__file__).with_suffix(".cpp"), MATRICES, *(CELL_STEP / name for name in names)],
        default_cflags(detect(), with_cuda),
        default_cuda_cflags(),
        extra_include_paths=[str(KERNELS)],
        with_cuda=with_cuda,
    )


def forward_kernels(dtype: torch.dtype, planned: Plan, cuda: bool) -> dict[str, Plan]:
    """Plans by name, each with another kernel forward."""
    if not cuda:
        return {name: (FORWARD.index(name), 0, 0, 0) for name in ("Library", "Cpu")}
    names = ["Medium"] if dtype == torch.double else ["Medium", "Large"]
    names += ["Tiny"] if dtype == torch.float else []
    if dtype.itemsize == 2 and torch.cuda.get_device_capability()[0] == 9:
        names += FORWARD[-3:]
    own = {f"{name}/{planned[1]}": (FORWARD.index(name), planned[1], 0, 0) for name in names}
    return {"Library": (0, 0, 0, 0)} | own


def backward_kernels(dtype: torch.dtype, planned: Plan, cuda: bool) -> dict[str, Plan]:
    """Plans by name, each with another kernel backward."""
    if not cuda:
        return {name: (0, 0, BACKWARD.index(name), 0) for name in ("Library", "Cpu")}
    tiles = [(name, stages) for name in ("Medium", "Large") for stages in (3, 4)]
    own = {f"{name}/{stages}": (0, 0, BACKWARD.index(name), stages) for name, stages in tiles}
    return {"Library": (0, 0, 0, 0)} | own


def in_graph(step: Callable[[], object], passes: int) -> float:
    """Microseconds of one of the passes that a step makes."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = step()
        times = []
        for _ in range(40):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            times.append(began.elapsed_time(ended))
    del kept
    return statistics.median(times[10:]) * 1e3 / passes


def times_of(module: Any, kernels: dict[str, Plan], call: Callable, sets: list) -> dict[str, float]:
    """Microseconds by kernel."""
    times: dict[str, list[float]] = {name: [] for name in kernels}
    until = time.perf_counter() + SECONDS
    while True:
        for name, plan in kernels.items():
            module.force(*plan)
            if sets[0][0].is_cuda:
                times[name].append(in_graph(lambda: [call(*inputs) for inputs in sets], len(sets)))
                continue
            for _ in range(3):  # the first run finds another kernel's data in the caches
                began = time.perf_counter()
                call(*sets[0])
                took = time.perf_counter() - began
            times[name].append(took * 1e6)
        if sets[0][0].is_cuda or time.perf_counter() > until:
            return {name: statistics.median(found) for name, found in times.items()}


def operands(sizes: tuple[int, int, int], dtype: torch.dtype, device: str) -> list[list]:
    """Sets of operands of a backward pass, as many as exceed the L2 cache of a GPU."""
    batch, input, hidden = sizes
    state = (batch, hidden)
    shapes = [(batch, input), (3 * hidden, hidden + input), (3 * hidden,), *[state] * 5]
    shapes.append((batch, 3 * hidden))
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    count = 1 if device == "cpu" else min(16, 1 + int(L2_BYTES / (elements * dtype.itemsize)))
    return [
        [(torch.rand(shape, device=device) / 8).to(dtype) for shape in shapes] for _ in range(count)
    ]


def report(module: Any, sizes: str, dtype_name: str, device: str) -> None:
    """Two lines: forward and backward."""
    dtype = getattr(torch, dtype_name)
    batch, input, hidden = map(int, sizes.split(","))
    sets = operands((batch, input, hidden), dtype, device)
    module.follow_plan()
    module.forward(*sets[0][:5])
    module.backward(*sets[0])
    planned: Plan = tuple(module.planned())
    cuda = device == "cuda"
    for direction, kernels, call, slots in (
        (
            "forward",
            forward_kernels(dtype, planned, cuda),
            lambda *all: module.forward(*all[:5]),
            (0, 1),
        ),
        ("backward", backward_kernels(dtype, planned, cuda), module.backward, (2, 3)),
    ):
        times = times_of(module, kernels, call, sets)
        kernel, stages = (planned[slot] for slot in slots)
        names = FORWARD if direction == "forward" else BACKWARD
        taken = (
            f"{names[kernel]}/{stages}" if cuda and names[kernel] != "Library" else names[kernel]
        )
        told = [f"{name}{'*' * (name == taken)} {found:.1f}" for name, found in times.items()]
        loss = times[taken] / min(times.values())
        print(f"{dtype_name} {direction} {sizes}: {', '.join(told)}; {loss:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--cuda", action="store_true", help="on the GPU")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--sizes", nargs="+", metavar="B,I,H", default=SIZES)
    args = parser.parse_args()
    module = load(args.cuda)
    for dtype in args.dtype:
        for sizes in args.sizes:
            report(module, sizes, dtype, "cuda" if args.cuda else "cpu")


if __name__ == "__main__":
    main()
