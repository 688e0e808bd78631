"""LLTM: the long long-term memory cell of the PyTorch extension tutorial.

:func:`lltm_cell` has its equations, and their source. Sizes: B is the batch size, I the input size,
H the hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit._library import (
    define,
    refuse,
    refuse_non_tensor,
    refuse_wrong_size,
    refuse_wrong_types,
)

_CELL = "Tensor input, Tensor weights, Tensor? bias, Tensor old_h, Tensor old_cell"

define(
    "rnn",
    f"lltm_cell({_CELL}) -> (Tensor new_h, Tensor new_cell)",
    # The cell composed of ATen ops, on any device.
    f"lltm_cell_aten({_CELL}) -> (Tensor new_h, Tensor new_cell)",
    # Refuses what lltm_cell refuses, in the same words, and computes nothing.
    f"lltm_cell_check({_CELL}) -> ()",
    # Also the tensor that autograd needs: gates are the activated gates, (B, 3H).
    f"lltm_cell_forward({_CELL}) -> (Tensor new_h, Tensor new_cell, Tensor gates)",
    # Gradients of the five inputs; none where output_mask is false. new_cell and gates must be
    # those of lltm_cell_forward on the same inputs.
    f"lltm_cell_backward(Tensor? grad_h, Tensor? grad_cell, {_CELL}, Tensor new_cell, Tensor gates,"
    " bool[5] output_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    # The tutorial's calls.
    f"lltm_forward({_CELL}) -> Tensor[]",
    "lltm_backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor input_gate,"
    " Tensor output_gate, Tensor candidate_cell, Tensor X, Tensor gate_weights, Tensor weights)"
    " -> Tensor[]",
)

IMPLEMENTATIONS = ("auto", "reference", "aten", "fused")


def lltm_cell_reference(
    input: Tensor, weights: Tensor, bias: Tensor | None, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    """``lltm_cell`` in plain PyTorch, as the tutorial writes it, without checks."""
    X = torch.cat([old_h, input], dim=1)
    input_gate, output_gate, candidate_cell = F.linear(X, weights, _flat(bias)).chunk(3, dim=1)
    new_cell = old_cell + torch.sigmoid(input_gate) * F.elu(candidate_cell)
    new_h = torch.sigmoid(output_gate) * torch.tanh(new_cell)
    return new_h.to(input.dtype), new_cell


def lltm_cell(
    input: Tensor,
    weights: Tensor | tuple[Tensor, Tensor],
    bias: Tensor | None,
    old_h: Tensor | None,
    old_cell: Tensor | None = None,
    impl: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Run one step of the LLTM cell of the PyTorch extension tutorial.

    With ``X = [old_h, input]`` and ``G = X W^T + b``, split into three parts of H columns::

        input_gate, output_gate, candidate_cell = sigmoid(G1), sigmoid(G2), elu(G3)
        new_cell = old_cell + input_gate * candidate_cell
        new_h = output_gate * tanh(new_cell)

    There is no forget gate, so the cell state is an unbounded running sum. Source of the maths:
    P. Goldsborough, "Custom C++ and CUDA Extensions", PyTorch tutorials. The state may also be
    passed as a pair: ``lltm_cell(input, (old_h, old_cell), weights, bias)``.

    Args:
        input: (B, I) in half, bfloat16, float or double. All tensors have its dtype and device.
        weights: (3H, H+I). The rows are those of the input gate, the output gate and the candidate
            cell; the columns are those of the hidden state, then of the input.
        bias: (3H,), (1, 3H) or ``None``.
        old_h: (B, H).
        old_cell: (B, H). With half and bfloat16 inputs it may be float, which keeps the running
            sum accurate; ``new_cell`` is then float too.
        impl: ``"auto"`` or ``"fused"`` for this package's CPU and CUDA kernels (ATen on devices
            without a kernel), ``"aten"`` for C++ composed of ATen operations, ``"reference"`` for
            plain PyTorch.

    Returns:
        ``(new_h, new_cell)``, each (B, H), differentiable any number of times in every input. Under
        ``torch.autocast`` tensors are cast as for ``torch.addmm``, except a float ``old_cell``:
        ``new_h`` has autocast's dtype, and ``new_cell`` stays float. On a GPU large products of
        floats are rounded to TF32 if ``torch.backends.cuda.matmul.fp32_precision`` is ``"tf32"``;
        the forward and the backward pass each read this setting.

    Raises:
        RuntimeError: if a shape, dtype or device does not match; the message gives both values.
        TypeError: if an argument is not a tensor.
        ValueError: if ``impl`` is not one of the four.

    Example:
        >>> input, old_h, old_cell = torch.ones(2, 3), torch.zeros(2, 4), torch.zeros(2, 4)
        >>> weights, bias = torch.zeros(12, 7), torch.zeros(12)
        >>> new_h, new_cell = lltm_cell(input, weights, bias, old_h, old_cell)
        >>> new_h.shape, new_cell.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """
    return _run_cell(impl, *operands_of("lltm_cell", input, weights, bias, old_h, old_cell))


def operands_of(
    function: str,
    input: Tensor,
    weights: Tensor | tuple[Tensor, Tensor],
    bias: Tensor | None,
    old_h: Tensor | None,
    old_cell: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The five operands of a call; its second argument may be the state as a pair."""
    if not isinstance(weights, (tuple, list)):
        return input, weights, bias, old_h, old_cell
    if old_cell is not None:
        raise TypeError(f"{function}(): got both old_cell and a state pair, which contains it")
    return input, bias, old_h, *state_pair(function, weights)


def state_pair(function: str, state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The two tensors of a state; a TypeError if it is no pair."""
    if not isinstance(state, (tuple, list)):
        refuse(function, "a state pair", type(state).__name__, TypeError)
    if len(state) != 2:
        refuse(function, "a state pair", f"a tuple of {len(state)}", TypeError)
    h, c = state
    return h, c


def _run_cell(impl: str, *args: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run the cell on ``input, weights, bias, old_h, old_cell`` by one of the implementations."""
    try:
        if impl == "auto" or impl == "fused":
            # Subclasses and modes with a __torch_function__ see the operator, not the extension.
            if is_compiling() or has_torch_function(args):
                return torch.ops.lltm_jit.lltm_cell(*args)
            return native.rnn.lltm_cell(*args)
        if impl == "aten":
            return torch.ops.lltm_jit.lltm_cell_aten(*args)
        if impl == "reference":
            torch.ops.lltm_jit.lltm_cell_check(*args)
            return lltm_cell_reference(*cast("tuple[Tensor, ...]", args))
    except (TypeError, RuntimeError):
        refuse_wrong_types("lltm_cell", args)
        raise
    refuse("lltm_cell", f"impl to be one of {IMPLEMENTATIONS}", repr(impl), ValueError)


class LLTMCell(nn.Module):
    """:func:`lltm_cell` as a module: ``new_h, new_cell = cell(input, (h, c))``.

    Args:
        input_size, hidden_size: I and H, the numbers of features of ``input`` and of the state.
        bias: whether the cell has a bias.
        device, dtype: those of the parameters; the dtype is half, bfloat16, float or double.
        impl: see :func:`lltm_cell`.

    Attributes:
        weights: parameter of shape (3H, H+I), initialised like ``bias`` uniformly in ±1/sqrt(H).
        bias: parameter of shape (3H,), or ``None``. A ``state_dict`` of the tutorial's module, with
            a bias of shape (1, 3H), loads as well. For the opposite direction use
            ``tutorial.load_state_dict({**cell.state_dict(), "bias": cell.bias[None]})``.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is negative, or ``impl`` is none of those of :func:`lltm_cell`.

    Example:
        >>> cell = LLTMCell(input_size=3, hidden_size=4)
        >>> h, c = cell(torch.randn(2, 3))
        >>> h, c = cell(torch.randn(2, 3), (h, c))
        >>> h.shape
        torch.Size([2, 4])
    """

    weights: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        if impl not in IMPLEMENTATIONS:
            refuse("LLTMCell", f"impl to be one of {IMPLEMENTATIONS}", repr(impl), ValueError)
        refuse_wrong_size("LLTMCell", "input_size", input_size)
        refuse_wrong_size("LLTMCell", "hidden_size", hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.impl = impl
        shape = (3 * hidden_size, hidden_size + input_size)
        self.weights = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(shape[:1], device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every parameter uniformly from ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run one step on an input (B, I), and return ``(new_h, new_cell)``, each (B, H).

        The state ``(old_h, old_cell)`` has these shapes, too; zeros are used when it is left out.

        Raises:
            RuntimeError: if a shape, dtype or device does not match; see :func:`lltm_cell`.
            TypeError: if the state is not a pair, or an argument is not a tensor.
        """
        if state is None:
            refuse_non_tensor("LLTMCell", "input", input)
            state = (input.new_zeros(*input.shape[:-1], self.hidden_size),) * 2
        args = (input, self.weights, self.bias, *state_pair("LLTMCell", state))
        try:
            return _run_cell(self.impl, *args)
        except RuntimeError:  # its message blames the weights
            if input.dim() == 2 and input.size(1) != self.input_size:
                refuse("LLTMCell", f"input to have {self.input_size} features", input.size(1))
            raise

    if TYPE_CHECKING:

        def __call__(
            self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, Tensor]: ...

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias is not None}"

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        flat = dict(state_dict)
        name = prefix + "bias"
        if name in flat:
            flat[name] = _flat(flat[name])
        super()._load_from_state_dict(flat, prefix, *args, **kwargs)


def _flat(bias: Tensor | None) -> Tensor | None:
    """The tutorial's (1, 3H) bias as (3H,)."""
    return bias.squeeze(0) if bias is not None and bias.dim() == 2 else bias
