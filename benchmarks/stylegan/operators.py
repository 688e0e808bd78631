"""Times of the StyleGAN operators.

On a GPU, calls are timed in a CUDA graph, and take turns with several tensors, so that no call
finds its input in the cache. Calls on small tensors are timed from the host, as programs call.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..shared import times
from ..shared.table import Row, group_of, type_name
from . import plain
from .cases import FORWARD, Case, Shape, cases, compile_kernels
from .errors import find_errors

IMPLEMENTATIONS = {"kernels": "cuda", "plain PyTorch": "ref"}  # "ref" is plain.py while it is timed
SHAPES: dict[str, list[Shape]] = {
    "cpu": [(4, 64, 128, 128), (1, 512, 64, 64)],
    "cuda": [(16, 512, 64, 64)],
}
DTYPES = {"cpu": [torch.float], "cuda": [torch.float, torch.half, torch.bfloat16]}
SMALL: Shape = (4, 64, 16, 16)  # a call costs the host more than the GPU
# Large enough on a GPU for the kernels of large tensors.
ERROR_SHAPES: dict[str, Shape] = {"cpu": (2, 16, 64, 64), "cuda": (4, 64, 64, 64)}
_ROTATION = 200e6  # bytes of inputs that take turns: several times the cache of a GPU
_MOST_INPUTS = 16
_MOST_COPIED = 256e6  # bytes; the time of a larger copy is a multiple of theirs


def measure_all(
    operators: Sequence[str],
    dtype: torch.dtype | None,
    shape: Shape | None,
    device: torch.device,
    seconds: float,
) -> Iterator[list[Row]]:
    """The times of each case, and then the errors; of all types and shapes, or of those given."""
    dtypes = [dtype] if dtype else DTYPES[device.type]
    shapes = [shape] if shape else SHAPES[device.type]
    error_shape = shape or ERROR_SHAPES[device.type]
    if device.type == "cuda" and "filtered_lrelu" in operators:
        compile_kernels(shapes, dtypes, error_shape)
    for operator, each, size in itertools.product(operators, dtypes, shapes):
        for case in cases(operator, each, size, device):
            yield rows(case, seconds, in_graph=device.type == "cuda")
    for operator in operators if device.type == "cuda" else ():
        for case in cases(operator, dtypes[0], SMALL, device):
            if case.phase == FORWARD:
                yield rows(case, seconds, in_graph=False)
    for operator, each in itertools.product(operators, [dtype] if dtype else DTYPES["cuda"]):
        yield from find_errors(cases(operator, each, error_shape, device))


def rows(case: Case, seconds: float, in_graph: bool) -> list[Row]:
    """Time the kernels, plain PyTorch and a copy in turns."""
    count = inputs_in_turn(math.prod(case.shape) * case.dtype.itemsize, case.device)
    inputs = [case.inputs(seed) for seed in range(count)]
    functions = {name: in_rotation(case, i, inputs) for name, i in IMPLEMENTATIONS.items()}
    copied = min(case.bytes, int(_MOST_COPIED))
    functions["copy"] = copy_in_rotation(copied, case.device)
    # The copy of a part counts as that part of a call.
    units = {"copy": copied / case.bytes}
    mode = times.GRAPH if in_graph else times.HOST
    with plain.instead_of_references():
        found = times.measure(functions, seconds, [mode], units)
    copy = found["copy"][mode].median
    title = f"{case.operator}: {type_name(case.dtype)}, {list(case.shape)}, {case.device.type}"
    if case.device.type == "cuda":
        title += f", {mode}"
    beside = {"kernels": {"plain PyTorch": None}}
    return [
        replace(
            row,
            floor=0.0 if row.name == "copy" else copy,
            figures={"GB/s": case.bytes / row.best.median / 1e9},
        )
        for row in group_of(title, case.name, case.phase, found, beside)
    ]


def in_rotation(case: Case, impl: str, inputs: Iterable[list[Tensor]]) -> Callable[[], Any]:
    """A function that calls with other tensors each time."""
    steps = itertools.cycle([case.step(tensors, impl) for tensors in inputs])
    return lambda: next(steps)()


def copy_in_rotation(size: int, device: torch.device) -> Callable[[], Any]:
    """A function that reads and writes `size` bytes together, other ones each time."""
    elements = max(1, size // 8)  # floats, each read and written
    count = inputs_in_turn(4 * elements, device)
    in_turn = itertools.cycle([torch.zeros(elements, device=device) for _ in range(count)])
    return lambda: next(in_turn).clone()


def inputs_in_turn(size: int, device: torch.device) -> int:
    """How many tensors of `size` bytes take turns; on a CPU one, which is in the cache."""
    if device.type == "cpu":
        return 1
    return min(max(2, math.ceil(_ROTATION / size)), _MOST_INPUTS)
