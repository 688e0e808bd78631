"""Heads and directions: independent recurrences in one call, against one call for each."""

from __future__ import annotations

import pytest
import torch
from op_testing import DTYPES, assert_accurate, bits, needs_gpu
from sequence_testing import (
    Inputs,
    cell_of,
    controls,
    in_turn,
    inputs_of,
    results_and_gradients,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.functional import recurrent_sequence

# directions, heads
COUNTS = [(1, 1), (1, 3), (2, 1), (2, 2)]


def inputs_of_all(
    cell: str, counts: tuple[int, int], *sizes: int, control: bool = False, **kwargs
) -> Inputs:
    """As :func:`inputs_of`, for so many recurrences; parts of one call's."""
    directions, heads = counts
    each = [inputs_of(cell, *sizes, **kwargs) for _ in range(directions * heads)]
    gates_of = cell_of(cell).gates

    def gates(name: str) -> Tensor | None:
        given = [getattr(one, name) for one in each]
        if given[0] is None:
            return None
        split = [one.unflatten(-1, (gates_of, 1, -1)) for one in given]
        ways = [split[i : i + heads] for i in range(0, len(split), heads)]
        return torch.cat([torch.cat(way, -2).flatten(-3) for way in ways], -1)

    def units(name: str) -> Tensor | None:
        given = [getattr(one, name) for one in each]
        return None if given[0] is None else torch.cat(given, -1)

    marks = None
    if control:
        ways = [controls(*sizes[:2]), controls(*sizes[:2]).flip(0)]
        marks = (torch.stack(ways) if directions == 2 else ways[0]).to(each[0].gates.device)
    weights = torch.stack([one.weight_hh for one in each])
    per_unit = [units(name) for name in ("parameters", "h_0", "c_0")]
    return Inputs(gates("gates"), weights, gates("bias_hh"), *per_unit, marks)


def together(cell: str, inputs: Inputs, directions: int, reverse: bool = False):
    return recurrent_sequence(cell, *inputs, reverse=reverse, bidirectional=directions == 2)


def with_gradients(function, cell: str, inputs: Inputs, directions: int, reverse=False):
    def run(cell: str, given: Inputs, reverse: bool) -> tuple[Tensor, ...]:
        return function(cell, given, directions, reverse)

    return results_and_gradients(cell, inputs, reverse, run)


def check(cell: str, inputs: Inputs, directions: int, reverse: bool = False) -> None:
    """Against the reference of each recurrence in float64, by that in the same dtype."""
    actual = with_gradients(together, cell, inputs, directions, reverse)
    exact = with_gradients(in_turn, cell, inputs.to(torch.double), directions, reverse)
    usual = with_gradients(in_turn, cell, inputs, directions, reverse)
    truncated = inputs.gates.is_cuda and inputs.gates.dtype == torch.float
    for ours, right, same_dtype in zip(actual, exact, usual, strict=True):
        assert_accurate(ours, right, same_dtype, ulps=8 if truncated else 4, sums=True, parts=16)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(5, 3, 16), (4, 9, 7)], ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_values_and_gradients(cell, counts, size, dtype, device):
    check(cell, inputs_of_all(cell, counts, *size, dtype=dtype, device=device), counts[0])


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.double], ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_resets_and_lengths(cell, counts, reverse, dtype, device):
    """Each direction has control bytes of its own."""
    inputs = inputs_of_all(cell, counts, 8, 6, 16, control=True, dtype=dtype, device=device)
    if reverse:  # what is held then comes first in memory
        inputs = inputs._replace(control=inputs.control.flip(-2))
    check(cell, inputs, counts[0], reverse)


@pytest.mark.parametrize("counts", [(1, 2), (2, 2)], ids=str)
def test_gradcheck(cell, counts, device):
    """Along random directions; test_every_operator.py takes each element, of one recurrence."""
    inputs = inputs_of_all(cell, counts, 2, 2, 2, control=True, device=device).requires_grad()

    def function(*leaves):
        rest = iter(leaves)
        given = Inputs(*(t if t is None else next(rest) for t in inputs[:6]), inputs.control)
        return together(cell, given, counts[0])[: 1 + cell_of(cell).states]

    leaves = inputs.leaves()
    batched = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(function, leaves, fast_mode=True, **batched)
    assert gradgradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("counts", [(1, 3), (2, 2)], ids=str)
def test_a_recurrence_is_not_touched_by_others(counts, dtype, device):
    """Not a bit of it, whatever the rows and units of others are."""
    inputs = inputs_of_all("lstm", counts, 6, 5, 16, dtype=dtype, device=device)
    first = with_gradients(together, "lstm", inputs, counts[0])
    again = with_gradients(together, "lstm", inputs, counts[0])
    assert list(map(bits, first)) == list(map(bits, again))
    gates = inputs.gates.clone()
    by_head = gates.unflatten(-1, (counts[0], 4, counts[1], 16))
    by_head[:, 2, -1, :, -1] = float("nan")  # one row of the last recurrence
    spoilt = with_gradients(together, "lstm", inputs._replace(gates=gates), counts[0])
    assert spoilt[0].isnan().any()
    others = [i for i in range(5) if i != 2]
    for i in (0, 1, 2):  # output and states
        assert bits(spoilt[i][..., :-16]) == bits(first[i][..., :-16])
        assert bits(spoilt[i][..., others, :]) == bits(first[i][..., others, :])
    assert bits(spoilt[4][:-1]) == bits(first[4][:-1])  # weights of the others


@pytest.mark.parametrize("part", [lambda h: h[:, ::2], lambda h: h[0, 0].expand(5, 24)])
def test_the_first_output_may_have_any_strides(part, device):
    inputs = inputs_of_all("lstm", (1, 3), 6, 5, 8, dtype=torch.double, device=device)
    h_0 = part(torch.randn(5, 48, dtype=torch.double, device=device))
    weights = inputs.weight_hh.requires_grad_()

    def gradient(h_0: Tensor) -> Tensor:
        return torch.autograd.grad(together("lstm", inputs._replace(h_0=h_0), 1)[0].sum(), weights)[
            0
        ]

    assert bits(gradient(h_0)) == bits(gradient(h_0.contiguous()))


@needs_gpu
@pytest.mark.parametrize("size", [12, 16])
def test_no_head_is_multiplied_with_another(size):
    """For the gradient of the weights, which is one product over all steps of a head.

    A kernel of our own takes heads of 16 units, whose operations nobody counts. So nothing must be
    left for the library.
    """
    steps, rows, heads, gates = 5, 3, 6, 4
    sizes = (steps, rows, size)
    inputs = inputs_of_all("lstm", (1, heads), *sizes, dtype=torch.bfloat16, device="cuda")
    inputs = inputs.requires_grad()
    output, _, _ = together("lstm", inputs, 1)
    with torch.profiler.profile(with_flops=True) as profile:
        torch.autograd.grad(output.sum(), inputs.weight_hh)
    multiplied = [each.flops for each in profile.events() if each.name in ("aten::mm", "aten::bmm")]
    products = 2 * steps * rows * gates * heads * size**2
    least = 0 if size == 16 else products
    # And as many for the gradients of states, where steps are computed one by one.
    assert least <= sum(multiplied) <= least + products


WRONG = {
    "one set of weights": (
        {"weight_hh": torch.zeros(28, 7), "bidirectional": True},
        r"3 dimensions .* for two directions, but got shape \[28, 7\]",
    ),
    "an odd number": (
        {"weight_hh": torch.zeros(3, 28, 7), "bidirectional": True},
        r"two directions or more, the same heads in each direction, but got shape \[3, 28, 7\]",
    ),
    "none": ({"weight_hh": torch.zeros(0, 28, 7)}, "one head or more, .* shape \\[0, 28, 7\\]"),
    "gates": (
        {"gates": torch.zeros(5, 3, 28)},
        r"gates\*hidden_size\] = \[5, 3, 56\], but got \[5, 3, 28\]",
    ),
    "a state": ({"h_0": torch.zeros(3, 7)}, r"h_0 .* = \[3, 14\], but got \[3, 7\]"),
    "control": (
        {"control": torch.zeros(5, 3, dtype=torch.uint8), "bidirectional": True},
        r"\[directions, steps, batch_size\] = \[2, 5, 3\], but got \[5, 3\]",
    ),
}


@pytest.mark.parametrize("way", WRONG)
def test_errors(way):
    changed, message = WRONG[way]
    right = {"cell": "lstm", "gates": torch.zeros(5, 3, 56), "weight_hh": torch.zeros(2, 28, 7)}
    with pytest.raises(RuntimeError, match=message):
        recurrent_sequence(**right | changed)
