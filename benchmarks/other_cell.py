"""An LLTM written elsewhere, from a directory of its sources, to be timed beside ours."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from lltm_jit.jit import LltmJitError, Spec, detect
from lltm_jit.jit.loading import engine

Cell = Callable[..., tuple[Tensor, Tensor]]  # a function of the operands


def build(directory: Path, defines: list[str], device: torch.device) -> Cell:
    """Compile the sources, and wrap them as the tutorial does.

    The module has the tutorial's `forward` and `backward`; where it has `cuda_forward` and
    `cuda_backward` too, these are for the GPU.

    Raises:
        LltmJitError: the directory is not there, or the module lacks these functions.
    """
    if not directory.is_dir():
        raise LltmJitError(f"expected --against to be a directory, but got {directory}")
    macros = tuple(f"-D{define}" for define in defines)
    with_cuda = None if detect().cuda else False
    place = (str(directory.absolute()),)
    spec = Spec("opponent", place, cflags=macros, with_cuda=with_cuda, ours=True)
    return wrap(engine.load(spec).module, device)


def wrap(module: ModuleType, device: torch.device) -> Cell:
    """The module's functions as one differentiable function."""
    prefix = "cuda_" if device.type == "cuda" and hasattr(module, "cuda_forward") else ""
    try:
        compute = getattr(module, f"{prefix}forward")
        differentiate = getattr(module, f"{prefix}backward")
    except AttributeError as error:
        raise LltmJitError(f"{module.__file__} has no forward and backward") from error

    class Opponent(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, weights, bias, old_h, old_cell):  # type: ignore[no-untyped-def]
            outputs = compute(input, weights, bias, old_h, old_cell)
            new_h, new_cell = outputs[:2]
            ctx.save_for_backward(*outputs[1:], weights)
            return new_h, new_cell

        @staticmethod
        def backward(ctx, grad_h, grad_cell):  # type: ignore[no-untyped-def]
            grads = differentiate(grad_h.contiguous(), grad_cell.contiguous(), *ctx.saved_tensors)
            d_old_h, d_input, d_weights, d_bias, d_old_cell = grads
            return d_input, d_weights, d_bias.view(-1), d_old_h, d_old_cell

    def cell(*operands: Tensor) -> tuple[Tensor, Tensor]:
        return Opponent.apply(*operands)

    return cell
