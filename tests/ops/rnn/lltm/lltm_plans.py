"""Cells and GPUs for the plan of the LLTM's kernels, and on a GPU the kernels by any plan."""

import functools
from typing import Any

import plans

import lltm_jit

# As lltm_describe_gpu() would describe them: the architecture of the code, whether it has wgmma,
# bytes of shared memory that a block may ask for, SMs, clusters of four that run at once.
GPUS = {
    "H100, H200": (90, True, 227 * 1024, 132, 30),
    "H100 with code for 9.0": (90, False, 227 * 1024, 132, 0),
    "A100": (80, False, 163 * 1024, 108, 0),
    "A40": (86, False, 99 * 1024, 84, 0),
    "L4": (89, False, 99 * 1024, 58, 0),
    "T4": (75, False, 64 * 1024, 40, 0),
}


@functools.cache
def launches() -> Any:
    """The module of lltm_launches.cpp."""
    cell_step = plans.KERNELS / "rnn" / "cell_step"
    kernels = [cell_step / "cuda" / name for name in ("gemm.cu", "products.cu", "cluster.cu")]
    return lltm_jit.load(
        "lltm_launches",
        [f"{plans.__path__[0]}/lltm_launches.cpp", cell_step / "plan.cpp", *kernels],
        ["-O3", "-DWITH_CUDA"],
        extra_include_paths=[str(plans.KERNELS), *plans.__path__],
        with_cuda=True,
    )


def problem(planner: Any, sizes: tuple[int, int, int], type: str, **facts: Any) -> Any:
    """A cell whose operands are aligned and dense, and whose gradients are all wanted."""
    problem = planner.Problem()
    problem.batch_size, problem.input_size, problem.hidden_size = sizes
    problem.type = getattr(planner.Type, type)
    problem.aligned = problem.apart = True
    problem.grad_columns = sizes[1] + sizes[2]
    for name, value in facts.items():
        setattr(problem, name, value)
    return problem


def gpu(planner: Any, name: str) -> Any:
    """The description of a GPU."""
    gpu = planner.Gpu()
    gpu.architecture, gpu.wgmma, gpu.shared_bytes, gpu.sms, gpu.clusters = GPUS[name]
    return gpu
