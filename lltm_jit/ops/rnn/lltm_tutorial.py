"""The low-level calls of the extension tutorial's LLTM, in ATen operations.

Sizes: B is the batch size, I the input size, H the hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit._library import refuse_wrong_types
from lltm_jit.ops.rnn.lltm import operands_of


def lltm_forward(
    input: Tensor,
    weights: Tensor | tuple[Tensor, Tensor],
    bias: Tensor | None,
    old_h: Tensor | None,
    old_cell: Tensor | None = None,
) -> list[Tensor]:
    """Run the tutorial's low-level forward call, in ATen operations on any device.

    The state may also be passed as a pair: ``lltm_forward(input, (old_h, old_cell), weights,
    bias)``. Dtypes and the source of the maths are those of :func:`lltm_jit.lltm_cell`. Autocast
    does not cast anything here.

    Args:
        input: (B, I).
        weights: (3H, H+I).
        bias: (3H,), (1, 3H) or ``None``.
        old_h, old_cell: (B, H).

    Returns:
        ``[new_h, new_cell, input_gate, output_gate, candidate_cell, X, gate_weights]``: states and
        activated gates (B, H), ``X = [old_h, input]`` (B, H+I), pre-activations (B, 3H).

    Raises:
        RuntimeError: if a shape, dtype or device does not match; the message gives both values.
        TypeError: if an argument is not a tensor.

    Example:
        >>> state = torch.zeros(2, 4), torch.zeros(2, 4)
        >>> outputs = lltm_forward(torch.ones(2, 3), state, torch.zeros(12, 7), None)
        >>> [list(output.shape) for output in outputs[-2:]]
        [[2, 7], [2, 12]]
    """
    args = operands_of("lltm_forward", input, weights, bias, old_h, old_cell)
    return _call("lltm_forward", args)


def lltm_backward(
    grad_h: Tensor,
    grad_cell: Tensor,
    new_cell: Tensor,
    input_gate: Tensor,
    output_gate: Tensor,
    candidate_cell: Tensor,
    X: Tensor,
    gate_weights: Tensor,
    weights: Tensor,
) -> list[Tensor]:
    """Run the tutorial's low-level backward call, in ATen operations on any device.

    Dtypes and the source of the maths are those of :func:`lltm_jit.lltm_cell`. A gradient has the
    dtype of its tensor. Autocast does not cast anything here.

    Args:
        grad_h, grad_cell: (B, H), the gradients of ``new_h`` and ``new_cell``.
        new_cell, input_gate, output_gate, candidate_cell: (B, H), from :func:`lltm_forward`.
        X, gate_weights: (B, H+I) and (B, 3H), also from :func:`lltm_forward`.
        weights: (3H, H+I).

    Returns:
        ``[d_old_h, d_input, d_weights, d_bias, d_old_cell]``; ``d_bias`` has shape (1, 3H).

    Raises:
        RuntimeError: if a shape, dtype or device does not match; the message gives both values.
        TypeError: if an argument is not a tensor.

    Example:
        >>> weights, state = torch.zeros(12, 7), (torch.zeros(2, 4), torch.zeros(2, 4))
        >>> new_h, *saved = lltm_forward(torch.ones(2, 3), state, weights, None)
        >>> gradients = lltm_backward(torch.ones(2, 4), torch.ones(2, 4), *saved, weights)
        >>> [list(gradient.shape) for gradient in gradients]
        [[2, 4], [2, 3], [12, 7], [1, 12], [2, 4]]
    """
    gates = (input_gate, output_gate, candidate_cell)
    args = (grad_h, grad_cell, new_cell, *gates, X, gate_weights, weights)
    return _call("lltm_backward", args)


def _call(name: str, args: tuple[Tensor | None, ...]) -> list[Tensor]:
    try:
        if torch.compiler.is_compiling() or has_torch_function(args):
            return getattr(torch.ops.lltm_jit, name)(*args)
        return getattr(native.rnn, name)(*args)
    except (TypeError, RuntimeError):
        refuse_wrong_types(name, args)
        raise
