"""``elementwise``: every elementwise operator beside its reference in plain PyTorch, and a copy."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit.cli import lltm
from lltm_jit.ops._elementwise import OPERATORS, Elementwise

from . import options
from .shared import times
from .shared.table import Row, group_of, type_name

TITLE, WIDTH = "Elementwise operators", 28
FORWARD, BACKWARD = "forward", "forward + backward"


def add_options(parser: argparse.ArgumentParser) -> None:
    lltm.add_device(parser)
    options.add_measuring(parser)
    parser.add_argument("--only", choices=OPERATORS, help="one operator (default: all)")
    parser.add_argument(
        "--size", type=lltm.positive, default=2**22, help="elements (default: %(default)s)"
    )


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    device = lltm.device(args.cuda, "basic")
    native.load("basic")
    dtype = options.dtype(args) or torch.float
    for name in [args.only] if args.only else OPERATORS:
        for phase in (FORWARD, BACKWARD):
            yield rows(OPERATORS[name], phase, args.size, dtype, device, args.seconds)


def rows(
    operator: Elementwise,
    phase: str,
    size: int,
    dtype: torch.dtype,
    device: torch.device,
    seconds: float,
) -> list[Row]:
    """Time the kernels, plain PyTorch and a copy of one tensor in turns."""
    inputs = [torch.randn(size, device=device, dtype=dtype) for _ in operator.inputs]
    functions: dict[str, Callable[[], Any]] = {
        "kernels": step(operator.function, inputs, phase),
        "plain PyTorch": step(operator.reference, inputs, phase),
        "copy": inputs[0].clone,
    }
    found = times.measure(functions, seconds, times.modes(device)[:1])
    table = f"{type_name(dtype)}, {size} elements, {device.type}"
    beside = {"kernels": {"plain PyTorch": None}}
    return group_of(table, operator.reference.__name__, phase, found, beside)


def step(function: Callable[..., Tensor], inputs: list[Tensor], phase: str) -> Callable[[], Any]:
    """A call, or a call and its derivative, as a function without arguments."""
    if phase == FORWARD:
        return lambda: function(*inputs)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]

    def run() -> tuple[Tensor, ...]:
        result = function(*leaves)
        return torch.autograd.grad(result, leaves, result.detach())

    return run
