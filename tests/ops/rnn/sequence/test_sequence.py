"""Whole sequences against a loop in float64: values, gradients and what they keep, control."""

import weakref
from itertools import product

import pytest
import torch
from layer_testing import derivatives
from op_testing import ACTIVATIONS, assert_threads_change_no_bit, needs_gpu
from sequence_testing import (
    CELLS,
    Inputs,
    assert_near,
    assert_same_bits_again,
    cell_of,
    check_derivatives,
    inputs_of,
    ours,
    results_and_gradients,
)
from torch import Tensor

from lltm_jit import ToolchainError
from lltm_jit.functional import recurrent_sequence
from lltm_jit.jit.variants import load_declared

# steps, batch_size, hidden_size
SIZES = [(1, 1, 1), (2, 3, 7), (5, 4, 16), (9, 17, 33), (3, 70, 24), (6, 2, 130)]


def check(cell: str, inputs: Inputs, reverse: bool = False, depth: int = 0) -> None:
    """The roundings of sums of some depth are as a random walk of so many steps."""
    # The sums of products are over rows, of steps and of the batch, or over hidden units.
    steps, rows = inputs.gates.shape[:2]
    parts = ACTIVATIONS * (1 + max(steps * rows, inputs.weight_hh.shape[1]) ** 0.5 / 2)
    # Tensor cores, which multiply floats in parts, truncate their sums.
    truncated = inputs.gates.is_cuda and inputs.gates.dtype == torch.float
    ulps = (8 if truncated else 4) + depth**0.5 / 2
    assert_near(cell, inputs, reverse, ulps=ulps, parts=parts)


@pytest.mark.thinned
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients(cell, size, dtype, path):
    check(cell, inputs_of(cell, *size, dtype, path))


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
def test_resets_and_lengths(cell, reverse, dtype, path):
    inputs = inputs_of(cell, 8, 6, 16, dtype, path, control=True, reverse=reverse)
    check(cell, inputs, reverse)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.double], ids=str)
def test_steps_skipped_before_a_row_begins(cell, reverse, dtype, device):
    """A row's first step then finds h_0, unless it is reset; one row has no step at all."""
    inputs = inputs_of(cell, 6, 5, 16, dtype, device)
    control = torch.zeros(6, 5, dtype=torch.uint8, device=device)
    control[:2, 0], control[:1, 1], control[:5, 2], control[:, 3] = 2, 2, 3, 2
    control[1, 1] = control[3, 0] = 1
    check(cell, inputs._replace(control=control.flip(0) if reverse else control), reverse)


# A cluster. More than one holds: the whole grid of an H100 or H200, in phases where there are many
# rows, and with streamed weights where floats fill the chip; or step by step, where few rows of
# floats have a product of their own.
LARGE_SIZES = [
    *[(20, 24, 64), (6, 3, 776), (7, 16, 1000), (1, 16, 1024), (5, 70, 520), (4, 64, 1024)],
    *[(3, 20, 2048), (3, 5, 2056), (2, 3, 2120)],
]
LARGE = list(product(CELLS, LARGE_SIZES, (torch.half, torch.bfloat16, torch.float)))
# Sets of 24 rows, and of 48 in two phases.
LARGE += [
    *[("lstm", (4, 70, 640), torch.bfloat16), ("slstm", (4, 70, 640), torch.half)],
    *[("gru", (4, 70, 640), torch.float), ("lstm", (3, 24, 1504), torch.half)],
    *[("lstm", (4, 90, 1000), torch.half), ("gru", (4, 90, 1000), torch.half)],
    *[("gru", (4, 190, 496), torch.float), ("lltm", (4, 190, 496), torch.float)],
]


@needs_gpu
@pytest.mark.parametrize(("cell", "size", "dtype"), LARGE, ids=str)
def test_large_hidden_sizes(cell, size, dtype):
    inputs = inputs_of(cell, *size, dtype, "cuda", control=True)
    check(cell, inputs)
    assert_same_bits_again(cell, inputs, times=5)
    check(cell, inputs._replace(h_0=None, c_0=None), reverse=True)


def test_without_a_state(cell, device):
    check(cell, inputs_of(cell, device=device, state=False))


def test_a_bias_of_the_hidden_part(cell, device):
    check(cell, inputs_of(cell, 4, 3, 16, torch.float, device, bias=True))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gate_that_is_always_open_or_shut(sign, device):
    """By an infinite bias; its second derivatives, too, are those of a large one."""
    inputs, found = inputs_of("lstm", 3, 2, 3, device=device), []
    for large in (1e3, torch.inf):
        bias_hh = torch.zeros(4, 3, dtype=torch.double, device=device)
        bias_hh[1] = sign * large
        given = inputs._replace(bias_hh=bias_hh.flatten()).requires_grad()
        loss = recurrent_sequence("lstm", *given)[0].pow(3).sum()
        first = torch.autograd.grad(loss, given.leaves(), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), given.leaves())
        found.append([*first, *second])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("with_c_0", [False, True])
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_a_long_sum_keeps_its_bits(dtype, with_c_0, device):
    """The LLTM's cell grows with every step; kept in 16 bits it would stop to."""
    steps, hidden_size = 2000, 16
    gates = torch.full((steps, 2, 3, hidden_size), 3.0, dtype=dtype, device=device)
    gates[:, :, 2] = 0.1
    weight_hh = torch.zeros(3 * hidden_size, hidden_size, dtype=dtype, device=device)
    c_0 = torch.zeros(1, 2, hidden_size, device=device) if with_c_0 else None
    _, _, c_n = recurrent_sequence("lltm", gates.flatten(2), weight_hh, c_0=c_0)
    assert c_n.dtype == (torch.float if with_c_0 else dtype)
    step = torch.tensor(3.0).sigmoid() * gates[0, 0, 2, 0].cpu().float()
    expected = torch.full((1, 2, hidden_size), steps * step.item())
    rtol = max(1e-4, torch.finfo(c_n.dtype).eps / 2)
    torch.testing.assert_close(c_n.cpu().float(), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("shape", [(4, 0, 8), (4, 3, 0)], ids=str)
def test_nothing_to_compute(cell, shape, path):
    results = results_and_gradients(cell, inputs_of(cell, *shape, device=path))
    assert results[0].shape == shape
    assert all((gradient == 0).all() for gradient in results[3:])


@pytest.mark.parametrize("size", [(6, 3, 96), (6, 40, 33)], ids=str)
def test_the_number_of_threads_changes_no_bit(cell, size):
    inputs = inputs_of(cell, *size, torch.float)

    def run():
        given = inputs.requires_grad()
        output, h_n, c_n = recurrent_sequence(cell, *given)
        # Not the weights' gradients, whose products are the library's.
        return [output, h_n, c_n, *torch.autograd.grad(output.sum(), given.gates)]

    assert_threads_change_no_bit(run)


def test_a_hundred_thousand_steps(cell):
    inputs = inputs_of(cell, 100_000, 1, 2, torch.float)
    output, h_n, _ = recurrent_sequence(cell, *inputs)
    assert torch.equal(output[-1], h_n)
    assert output.isfinite().all()


# Calls of one recurrence, of two heads, and of both directions.
ONE = {"cell": "lstm", "gates": torch.zeros(5, 3, 28), "weight_hh": torch.zeros(28, 7)}
HEADS = ONE | {"gates": torch.zeros(5, 3, 56), "weight_hh": torch.zeros(2, 28, 7)}
CALLS = {"one": ONE, "heads": HEADS, "both": HEADS | {"bidirectional": True}}
# An argument, what it is, or its shape, and what the error says.
WRONG = [
    ("one", "cell", "lsmt", "the name of a cell, but got 'lsmt'"),
    ("one", "gates", 1.0, "expected gates to be a tensor, but got float"),
    (
        "one",
        "gates",
        (3, 28),
        r"3 dimensions \[steps, batch_size, gates.hidden_size\], .* \[3, 28\]",
    ),
    ("one", "gates", (0, 3, 28), "at least one step"),
    ("one", "gates", (5, 3, 27), r"gates\*hidden_size\] = \[5, 3, 28\], but got \[5, 3, 27\]"),
    ("one", "weight_hh", (27, 7), r"\[5, 3, 28\]|\[28, 7\], but got \[27, 7\]"),
    ("one", "bias_hh", (27,), r"bias_hh .* = \[28\], but got \[27\]"),
    ("one", "parameters", (1, 7), "no parameters for lstm"),
    ("one", "h_0", (2, 7), r"h_0 .* = \[3, 7\], but got \[2, 7\]"),
    ("one", "h_0", torch.zeros(3, 7).double(), "dtype of gates"),
    ("one", "c_0", (3, 7), r"c_0 .* = \[1, 3, 7\], but got \[3, 7\]"),
    ("one", "control", (5, 3), "control to have dtype Byte"),
    ("one", "weight_hh", torch.zeros(28, 7, device="meta"), "device of gates"),
    ("heads", "weight_hh", (0, 28, 7), r"one head or more, .* shape \[0, 28, 7\]"),
    ("heads", "gates", (5, 3, 28), r"gates\*hidden_size\] = \[5, 3, 56\], but got \[5, 3, 28\]"),
    ("heads", "h_0", (3, 7), r"h_0 .* = \[3, 14\], but got \[3, 7\]"),
    ("both", "weight_hh", (28, 7), r"3 dimensions .* two directions, but got shape \[28, 7\]"),
    ("both", "weight_hh", (3, 28, 7), r"two directions or more, the same heads .* \[3, 28, 7\]"),
    ("both", "control", torch.zeros(5, 3).byte(), r"= \[2, 5, 3\], but got \[5, 3\]"),
]


@pytest.mark.parametrize(
    ("call", "name", "wrong", "message"), WRONG, ids=[f"{row[0]}-{row[1]}" for row in WRONG]
)
def test_errors(call, name, wrong, message):
    wrong = torch.zeros(wrong) if isinstance(wrong, tuple) else wrong
    error = {float: TypeError, str: ValueError}.get(type(wrong), RuntimeError)
    with pytest.raises(error, match=message):
        recurrent_sequence(**CALLS[call] | {name: wrong})


def test_a_state_that_the_cell_does_not_have():
    gates, weight_hh, c_0 = torch.zeros(2, 3, 21), torch.zeros(21, 7), torch.zeros(1, 3, 7)
    with pytest.raises(RuntimeError, match="c_0 to be None, as gru has one state"):
        recurrent_sequence("gru", gates, weight_hh, c_0=c_0)


def test_sums_of_gates_that_the_cell_does_not_add():
    """Those of a cell that another one of its name has replaced since the forward pass."""
    inputs, ops = inputs_of("gru"), torch.ops.lltm_jit
    output, _, _, *saved = ops.recurrent_sequence_forward(*inputs, False, "gru")
    mask = [True] + [False] * 5
    args = (output, None, None, *inputs, False, "gru", False, False, output, *saved, mask)
    with pytest.raises(RuntimeError, match="gates_are_sums to be false for gru, which does not"):
        ops.recurrent_sequence_backward(*args, gates_are_sums=True)


def test_steps_are_not_optional(monkeypatch):
    """On a GPU without a compiler no other kernel runs in their place, so the reason is raised."""
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    asked = ("rnn.sequence_steps", "sequence_forward_step", [], "a cell")
    with pytest.raises(ToolchainError, match=r"^rnn.sequence_steps "):
        load_declared(asked)


@pytest.mark.parametrize("control", [False, True])
def test_in_reverse(cell, control, device):
    inputs = inputs_of(cell, 3, 2, 3, device=device, control=control, reverse=True)
    check_derivatives(cell, inputs, reverse=True)


def test_what_is_kept(cell):
    """Where a cell adds its gates, the sums are, and the input's part is not, until the end."""
    inputs = inputs_of(cell, 3, 2, 3).requires_grad()
    gates = inputs.gates * 1
    kept = weakref.ref(gates)
    results = ours(cell, inputs._replace(gates=gates))
    del gates
    assert (kept() is None) == cell_of(cell).adds_gates
    assert all(t.isfinite().all() for t in derivatives(results, [inputs.gates], orders=2))
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        ours(cell, inputs)
    # The inputs, but gates whose sums are kept; the output, the gates and the cell states.
    assert len(saved) == len(inputs.leaves()) + 3 - cell_of(cell).adds_gates


def test_gradients_of_the_operator_have_the_dtypes_of_its_inputs(cell, device):
    """As its meta function says. Autograd would cast them."""
    inputs = inputs_of(cell, dtype=torch.half, device=device)
    given = (*inputs[:6], None, False, cell)
    output, _, _, *saved = torch.ops.lltm_jit.recurrent_sequence_forward(*given)
    mask = [tensor is not None for tensor in inputs[:6]]
    found = torch.ops.lltm_jit.recurrent_sequence_backward(
        output.cos(), None, None, *given, False, False, output, *saved, mask
    )
    wanted = [grad for grad, is_wanted in zip(found, mask, strict=True) if is_wanted]
    assert {grad.dtype for grad in wanted} == {torch.half}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_gates_outlive_the_next_backward_pass(cell):
    """A thread takes the memory of large ones again, but not while somebody has it."""
    inputs = inputs_of(cell, 8, 16, 512)._replace(h_0=None).requires_grad()
    assert inputs.gates.nbytes >= 1 << 20
    grads, kept = [], []
    for factor in 1, 2, 4:
        results = ours(cell, inputs)
        (grad,) = torch.autograd.grad(factor * results[0].sum(), inputs.gates)
        grads.append(grad)
        kept.append(grad.clone())
    for factor, grad, copied in zip((1, 2, 4), grads, kept, strict=True):
        assert torch.equal(grad, copied)
        assert torch.equal(grad, factor * grads[0])  # powers of two, which round nothing
    places = {grad.untyped_storage().data_ptr() for grad in grads}
    assert len(places) == len(grads)
