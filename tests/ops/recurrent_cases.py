"""The rows of the table of operators that are recurrent; ``operator_cases.py`` has all."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from elementwise_cases import Calls, Case, normal
from lltm_testing import cell_inputs
from sequence_testing import CELLS, Inputs, cell_of, inputs_of
from sequence_testing import reference as sequence_reference
from torch import Tensor

from lltm_jit.functional import lltm_cell, lltm_forward, recurrent_sequence
from lltm_jit.ops.rnn.lltm import lltm_cell_reference
from lltm_jit.ops.rnn.sequence import input_gates

ops = torch.ops.lltm_jit


def lltm_calls(*tensors: Tensor) -> Calls:
    plain = [tensor.detach() for tensor in tensors]
    new_h, new_cell, gates = ops.lltm_cell_forward(*plain)
    whole = [(name, tensors) for name in ("lltm_cell", "lltm_cell_aten", "lltm_cell_check")]
    backward = [torch.randn_like(new_h), None, *plain, new_cell, gates]
    masks = ([True] * 5, [False, True, False, True, False])
    _, _, *saved = lltm_forward(*plain)
    return [
        *whole,
        ("lltm_cell_forward", plain),
        *(("lltm_cell_backward", [*backward, mask]) for mask in masks),
        ("lltm_forward", plain),
        ("lltm_backward", [new_h, new_cell, new_cell, *saved, plain[1]]),
    ]


def draw_sequence(cell: str, large: bool) -> list[Tensor]:
    return inputs_of(cell, *((6, 40, 33) if large else (3, 2, 3)), bias=True).leaves()


def sequence_inputs(cell: str, names: list[str], tensors: Sequence[Tensor]) -> Inputs:
    """A call's inputs, of those that a cell has; the first cell's is a call without a control."""
    inputs = Inputs(**dict.fromkeys(Inputs._fields) | dict(zip(names, tensors, strict=True)))
    return inputs if cell == CELLS[0] else inputs._replace(control=control_of(inputs.gates))


def control_of(gates: Tensor) -> Tensor | None:
    """A row is reset after the first step, and another has ended before the last."""
    if not isinstance(gates, Tensor) or gates.is_nested or gates.dim() != 3:
        return None
    steps, rows = (
        torch.arange(size, device=gates.device).unsqueeze(i)
        for size, i in zip(gates.shape[:2], (1, 0), strict=True)
    )
    resets, ended = (steps == 1) & (rows == 0), (steps == gates.size(0) - 1) & (rows == 1)
    return (resets + 2 * ended).to(torch.uint8)


def sequence_calls(cell: str, names: list[str], *tensors: Tensor) -> Calls:
    inputs, found = sequence_inputs(cell, names, tensors), []
    control = control_of(inputs.gates)
    for reverse, given in ((False, control), (True, None)):
        found.append(("recurrent_sequence", [*inputs[:6], given, reverse, cell]))
        held = None if given is None else control & 1  # nothing is saved of steps that hold
        plain = [t if t is None else t.detach() for t in (*inputs[:6], held)]
        found.append(("recurrent_sequence_forward", [*plain, reverse, cell]))
        output, h_n, _, *saved = ops.recurrent_sequence_forward(*plain, reverse, cell)
        grads = (output.cos(), None, None) if reverse else (None, h_n.cos(), None)
        if given is None:
            found.append(("recurrent_sequence_states", [*inputs[:6], None, reverse, cell]))
            states = ops.recurrent_sequence_states(*plain, reverse, cell)
            found.append(("stack_states", [states[0], *states[2:]]))
        of_cells = saved[1].cos() if given is None else None
        for mask in ([t is not None for t in plain[:6]], [False, True] + [False] * 4):
            args = [*grads, *plain, reverse, cell, False, False, output, *saved, mask]
            args += [False, of_cells]
            found.append(("recurrent_sequence_backward", args))
    return found


def sequence_case(cell: str) -> Case:
    given, states = inputs_of(cell, bias=True), cell_of(cell).states
    names = [name for name, tensor in given._asdict().items() if tensor is not None]
    return Case(
        f"recurrent_sequence {cell}",
        names,
        lambda *t: recurrent_sequence(cell, *sequence_inputs(cell, names, t))[: 1 + states],
        lambda *t: sequence_reference(cell, sequence_inputs(cell, names, t))[: 1 + states],
        partial(draw_sequence, cell),
        family="rnn",
        calls=partial(sequence_calls, cell, names),
        optional=("bias_hh", "parameters", "h_0", "c_0"),
        under_autocast=(torch.bfloat16, torch.bfloat16, torch.float)[: 1 + states],
        library_sums=True,
    )


def input_gates_calls(*tensors: Tensor) -> Calls:
    x, weight, bias = (tensor.detach() for tensor in tensors)
    grad = torch.randn_like(input_gates(x, weight, bias))
    masks = ([True] * 3, [False, True, False])
    backward = [("input_gates_backward", [grad, x, weight, mask]) for mask in masks]
    return [("input_gates", tensors), *backward, *pad_gates_calls(x)]


def pad_gates_calls(x: Tensor) -> Calls:
    """What a layer of 3 gates and 8 hidden units multiplies, some of it absent.

    test_padded_sizes.py has sizes that are padded: the kernel's rows are apart, the formula's not.
    """
    rows, units = 24, 8
    weights = [x.new_ones(rows, x.size(2)), x.new_ones(rows, units)]
    operands = [x, *weights, x.new_ones(rows), x.new_ones(rows)]
    whole = [t.detach().clone().requires_grad_() for t in operands]
    return [("pad_gates", (*whole, 3, True)), ("pad_gates", (None, *whole[1:4], None, 3, False))]


def no_calls(*tensors: Tensor) -> Calls:
    """Those of the same operators in another row."""
    return []


RECURRENT = [
    *(
        Case(
            name,
            ["input", "weights", "bias", "old_h", "old_cell"],
            function,
            lltm_cell_reference,
            lambda large: cell_inputs(*((65, 33, 129) if large else (2, 3, 2))),
            family="rnn",
            calls=calls,
            optional=("bias",),
            under_autocast=(torch.bfloat16, torch.float),
            sees=sees,
            library_sums=sees is not None,
            public=sees is None,
        )
        for name, function, calls, sees in (
            ("lltm_cell", lltm_cell, lltm_calls, None),
            ("lltm_cell aten", partial(lltm_cell, impl="aten"), no_calls, "lltm_cell_aten"),
        )
    ),
    *(sequence_case(cell) for cell in CELLS),
    Case(
        "input_gates",
        ["input", "weight_ih", "bias"],
        input_gates,
        F.linear,
        lambda large: normal(
            *[(40, 7, 33), (51, 33), (51,)] if large else [(2, 3, 4), (5, 4), (5,)]
        ),
        family="rnn",
        calls=input_gates_calls,
        under_autocast=(torch.bfloat16,),
        sees="linear",
        public=False,
    ),
]
