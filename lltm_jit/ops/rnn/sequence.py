"""Whole sequences of a recurrent cell, in one call. ``kernels/rnn/cells`` has the cells' maths.

Sizes: L is the number of steps, B the batch size, H the hidden size, P the cell's parameters per
hidden unit.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import jit, native
from lltm_jit._library import autocasts, define, refuse_wrong_types

if TYPE_CHECKING:
    from lltm_jit.jit.variants import Variant

_INPUTS = (
    "Tensor gates, Tensor weight_hh, Tensor? bias_hh, Tensor? parameters, Tensor? h_0, "
    "Tensor? c_0, Tensor? control, bool reverse, str cell"
)
_OPTIONS = "bool tf32=False, bool bidirectional=False"

define(
    "rnn",
    f"recurrent_sequence({_INPUTS}, {_OPTIONS}) -> (Tensor output, Tensor h_n, Tensor c_n)",
    # Also the cell states before each step, (L, S-1, B, H), after a reset; undefined for steps that
    # are skipped.
    f"recurrent_sequence_states({_INPUTS}, {_OPTIONS}) -> "
    "(Tensor output, Tensor h_n, Tensor c_n, Tensor saved_cells)",
    # The states after each step, (L, S, B, H), from these; not for a reversed sequence.
    "stack_states(Tensor output, Tensor c_n, Tensor saved_cells) -> Tensor",
    # Also the tensors that autograd needs: the gates' sums, or their hidden part alone if the cell
    # does not add them, (L, B, GH), and these cell states.
    f"recurrent_sequence_forward({_INPUTS}, {_OPTIONS}) -> "
    "(Tensor output, Tensor h_n, Tensor c_n, Tensor saved_gates, Tensor saved_cells)",
    # Gradients of the first six inputs; none where output_mask is false.
    # With gates_are_sums, `gates` are saved_gates, which have the hidden part in them.
    "recurrent_sequence_backward(Tensor? grad_output, Tensor? grad_h_n, Tensor? grad_c_n, "
    f"{_INPUTS}, bool tf32, bool bidirectional, "
    "Tensor output, Tensor saved_gates, Tensor saved_cells, "
    "bool[6] output_mask, bool gates_are_sums=False, Tensor? grad_saved_cells=None) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    # A layer's operands, with room for more units per gate, and more features, so that rows are
    # aligned: Note [Padded gates] in kernels/rnn/sequence/kernels.h. Absent ones are empty. With
    # add_biases, the biases' sum takes the place of bias_hh.
    "pad_gates(Tensor? input, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, "
    "Tensor? bias_hh, int gates, bool add_biases) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "input_gates(Tensor input, Tensor weight_ih, Tensor? bias, bool tf32=False) -> Tensor",
    "input_gates_backward(Tensor grad_gates, Tensor input, Tensor weight_ih, bool[3] output_mask, "
    "bool tf32=False) -> (Tensor, Tensor, Tensor)",
)

own_cells: dict[str, str] = {}  # the cells of recurrent_cell(), by the names of types and classes

# The bits of an element of `control`: see SequenceControl in kernels/rnn/sequence/kernels.h.
RESETS, HOLDS = 1, 2

_KERNELS = native.kernels_directory()
_OURS = "rnn.sequence"  # the declared name of the kernels of this package's cells


def declare_kernels(name: str, include_paths: tuple[Path, ...] = ()) -> None:
    """Let C++ ask for the CUDA kernels of a cell. Its header lies on the include paths.

    Variants of all cells share a name, and with it a build file. So only the first variant waits a
    second until torch has written that file.
    """
    whole = ("walk", "forward", "backward", "many_rows_forward", "many_rows_backward")
    for kind in ("steps", "normalised_steps", *whole):
        jit.kernels[f"{name}_{kind}"] = partial(_variant, kind, include_paths, name == _OURS)


def _variant(kind: str, include_paths: tuple[Path, ...], ours: bool) -> Variant:
    from lltm_jit.jit.variants import Variant

    return Variant(
        f"rnn.sequence_{kind}",
        _KERNELS / "rnn" / "sequence" / "variants" / f"{kind}.cu",
        (_KERNELS, *include_paths),
        prepare="the layer on tensors of these sizes and dtype, forward and backward,",
        # Steps run in place of the others.
        optional=kind not in ("steps", "normalised_steps", "walk"),
        device_code=True,
        nvrtc=ours,  # a user's header may include headers that NVRTC lacks
    )


declare_kernels(_OURS)


def uses_tf32(tensor: Tensor) -> bool:
    """Whether products of this tensor may be rounded to TF32, as those of torch.nn.LSTM are.

    ``torch.backends.cudnn.rnn.fp32_precision`` decides, as it does for those.
    """
    if tensor.is_cpu or tensor.dtype is not torch.float:
        return False
    return torch.backends.cudnn.rnn.fp32_precision == "tf32"


def input_gates(
    input: Tensor, weight_ih: Tensor, bias: Tensor | None = None, tf32: bool = False
) -> Tensor:
    """The input's part of the gates, (L, B, GH): ``F.linear`` of an input (L, B, I).

    ``kernels/rnn/sequence/all_steps/products.cpp`` chooses our GEMM or the library's (cuBLAS) for
    this product and those of its backward pass. F.linear would take the host longer.
    """
    args = (input, weight_ih, bias)
    device = input.device.type
    own = device in ("cpu", "cuda")
    if not own or has_torch_function(args) or torch.is_autocast_enabled(device):
        return F.linear(*args)
    if torch.compiler.is_compiling():
        return torch.ops.lltm_jit.input_gates(*args, tf32)
    return native.rnn.input_gates(*args, tf32)


# A layer's operands: input, weight_ih, weight_hh, bias_ih and bias_hh.
Operands: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]"
Args: TypeAlias = "tuple[Tensor | None, ...]"  # the operator's tensors, or the last of them

ALIGNED = 4  # rows of a multiple of so many elements are aligned for the kernels
_LINE = 8  # rows are padded to multiples of this: 16-bit GEMMs of cuBLAS are slow for others
_FEWEST_UNITS = 96  # with fewer, padding takes longer than it saves


def needs_padding(hidden_size: int, dtype: torch.dtype) -> bool:
    """Whether a layer of one recurrence on a GPU runs quicker with padded gates."""
    if hidden_size % ALIGNED:
        return dtype is not torch.double
    return dtype.itemsize == 2 and hidden_size % _LINE > 0 and hidden_size >= _FEWEST_UNITS


def pads_gates(operands: Operands) -> bool:
    """Whether :func:`pad_gates` makes a layer of these operands quicker."""
    input, _, weight_hh, *_ = operands
    return (
        input.is_cuda
        and weight_hh.dim() == 2
        and input.size(0) > 1  # a single step takes less than copies of the weights
        and needs_padding(weight_hh.size(1), weight_hh.dtype)
        and not has_torch_function(operands)
    )


def pad_gates(operands: Operands, gates: int, adds_gates: bool) -> Operands:
    """Copies with aligned rows, which :func:`input_gates` and :func:`recurrent_sequence` take.

    If the cell adds its gates, the biases are added, too, and replace ``bias_hh``.
    """
    input, *others, bias_hh = operands
    features, columns = input.size(2), others[0].size(1)
    if features != columns:  # torch.compile takes no message of torch._check() with values
        raise RuntimeError(f"expected weight_ih of {features} columns, but got {columns}")
    add_biases = adds_gates and others[-1] is not None and bias_hh is not None
    x = None if input.size(2) % _LINE == 0 else input
    module = torch.ops.lltm_jit if torch.compiler.is_compiling() else native.rnn
    copy, weight_ih, weight_hh, of_ih, of_hh = module.pad_gates(
        x, *others, bias_hh, gates, add_biases
    )
    return (
        input if x is None else copy,
        weight_ih,
        weight_hh,
        None if add_biases or others[-1] is None else of_ih,
        None if bias_hh is None else of_hh,
    )


def recurrent_sequence(
    cell: str,
    gates: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None = None,
    parameters: Tensor | None = None,
    h_0: Tensor | None = None,
    c_0: Tensor | None = None,
    control: Tensor | None = None,
    reverse: bool = False,
    bidirectional: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a cell over a sequence. Layers such as :class:`lltm_jit.LSTM` are built on this.

    A step computes, for a cell with G gates and S states, of which the first is the output ``h``::

        x, h_gates = gates[t], h W_hh^T + b_hh
        states = cell(x, h_gates, parameters, states)

    L is the number of steps, B the batch size, H the hidden size, and P the number of parameters
    that the cell has per hidden unit. The maths and its source are in the docstring of each layer.

    Recurrences that do not depend on each other run in one call: N heads of d units each, with a
    block of the recurrent weights for each head, and the two directions of a layer. Then
    ``weight_hh`` is (R, Gd, d) for R = N recurrences, or R = 2N if ``bidirectional``, with the
    heads of the first direction first. H = Rd counts the units of all recurrences, in this order.
    ``gates`` and ``bias_hh`` have, for each direction, one gate after the other, each with the
    units of all heads, as in :class:`torch.nn.LSTM`.

    Args:
        cell: a layer's name in lower case, such as ``"lstm"``; or, for a cell of your own, the name
            of its C++ type or of its class. The last cell made with that name counts.
        gates: (L, B, GH) in half, bfloat16, float or double: the input's part of the gates of all
            steps, including its bias. All tensors have its device, and its dtype unless noted.
        weight_hh: (GH, H), or (R, Gd, d) for R recurrences. For a cell of your own without a
            product it is (0, H), or (R, 0, d).
        bias_hh: (GH,) or ``None``; ``None`` without a product.
        parameters: (P, H), if the cell has any.
        h_0: (B, H), the output before the first step; zeros by default. Or (1 + K, B, H): this
            output, and then the values that a reset sets in place of zeros, K = 1 for all steps, or
            K = L.
        c_0: (S-1, B, H), the other states; zeros by default. May be float with 16-bit gates. Or
            (1 + K, S-1, B, H), likewise.
        control: (L, B) in uint8, or (2, L, B) if ``bidirectional``; or ``None``. A 1 resets the
            state of a row before the step. A 2 skips the step: the state stays as it is, and the
            output is zero. A row may only skip steps before its first computed step, or after its
            last.
        reverse: whether to start at the last step.
        bidirectional: whether the second half of the recurrences runs the other way.

    Returns:
        ``(output, h_n, c_n)`` of shapes (L, B, H), (B, H) and (S-1, B, H); ``c_n`` has the dtype of
        ``c_0``. They are differentiable any number of times in all tensors but ``control``. The
        precision is that of :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`. Under
        ``torch.autocast`` tensors are cast to its dtype, except a float ``c_0``.

    Raises:
        RuntimeError: if a shape, dtype or device does not match; the message gives both values.
        TypeError: if an argument is not a tensor.
        ValueError: if there is no such cell.

    Example:
        >>> gates, weight_hh = torch.randn(5, 2, 12), torch.randn(12, 4)
        >>> output, h_n, c_n = recurrent_sequence("lltm", gates, weight_hh)
        >>> output.shape, h_n.shape, c_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 4]), torch.Size([1, 2, 4]))
    """
    args = (gates, weight_hh, bias_hh, parameters, h_0, c_0, control)
    try:
        name = own_cells.get(cell, cell)
        return run_sequence(name, args, reverse, uses_tf32(gates), bidirectional)
    except (AttributeError, TypeError, RuntimeError):  # gates may be no tensor
        refuse_wrong_types("recurrent_sequence", args)
        raise


def run_sequence(
    cell: str, args: Args, reverse: bool, tf32: bool, bidirectional: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`recurrent_sequence`; ``tf32`` decides the precision of float products."""
    if torch.compiler.is_compiling() or has_torch_function(args):
        return torch.ops.lltm_jit.recurrent_sequence(*args, reverse, cell, tf32, bidirectional)
    return native.rnn.recurrent_sequence(*args, reverse, cell, tf32, bidirectional)


def with_resets(first: Tensor | None, resets: Tensor | None) -> Tensor | None:
    """A state before the first step, and the states of resets, (K, ...), as one argument."""
    if resets is None:
        return first
    first = torch.zeros_like(resets[0]) if first is None else first
    return torch.cat([first.unsqueeze(0), resets])


def run_all_steps(
    cell: str, args: Args, reverse: bool, tf32: bool, bidirectional: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`run_sequence`, and the cell states before each step, (L, S-1, B, H)."""
    through_torch = torch.compiler.is_compiling() or has_torch_function(args)
    module = torch.ops.lltm_jit if through_torch else native.rnn
    return module.recurrent_sequence_states(*args, reverse, cell, tf32, bidirectional)


def runs_as_called(x: Tensor) -> bool:
    """Whether a call on ``x`` runs on a CPU or GPU, and is neither compiled, recorded nor cast."""
    # torch.jit.trace compares its graph with one that it traces without gradients.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return (x.is_cuda or x.is_cpu) and not autocasts(x)


def run_layer(
    cell: str,
    operands: Operands,
    args: Args,
    reverse: bool,
    tf32: bool,
    bidirectional: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`input_gates`, then :func:`run_sequence` with the other arguments.

    This is one call if possible. Without gradients on a CPU, it keeps only a few steps' gates.
    """
    x, weight_ih, weight_hh, bias_ih, bias_hh = operands
    others = (weight_hh, bias_hh, *args)
    every = (x, weight_ih, bias_ih, *others)
    if runs_as_called(x) and not has_torch_function(every):
        return native.rnn.recurrent_layer(*every, reverse, cell, tf32, bidirectional)
    gates = input_gates(x, weight_ih, bias_ih, tf32)
    return run_sequence(cell, (gates, *others), reverse, tf32, bidirectional)
