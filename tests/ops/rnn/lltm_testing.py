"""Inputs of the LLTM cell, and what tests of it compare."""

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]

NAMES = ("input", "weights", "bias", "old_h", "old_cell")
IMPLEMENTATIONS = ["reference", "aten", "fused", "auto"]


def cell_inputs(
    batch_size=3,
    input_size=5,
    hidden_size=7,
    dtype=torch.double,
    device="cpu",
    bias=True,
    requires_grad=False,
) -> Inputs:
    def make(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape) * scale).to(device, dtype).requires_grad_(requires_grad)

    width = hidden_size + input_size
    return (
        make(batch_size, input_size),
        make(3 * hidden_size, width, scale=max(width, 1) ** -0.5),
        make(3 * hidden_size) if bias else None,
        make(batch_size, hidden_size),
        make(batch_size, hidden_size),
    )


def to_double(inputs: Inputs) -> Inputs:
    return tuple(None if t is None else t.detach().double() for t in inputs)  # type: ignore[return-value]


def cell_gradients(function, inputs: Inputs, weight_h: Tensor, weight_c: Tensor) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs if t is not None]
    args = iter(leaves)
    new_h, new_cell = function(*(None if t is None else next(args) for t in inputs))
    loss = (new_h * weight_h.to(new_h)).sum() + (new_cell * weight_c.to(new_cell)).sum()
    return list(torch.autograd.grad(loss, leaves))
