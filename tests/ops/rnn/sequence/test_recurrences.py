"""Heads and directions: independent recurrences in one call, and the gradients of their weights."""

from functools import partial

import pytest
import torch
from op_testing import bits, needs_gpu
from sequence_testing import (
    Inputs,
    assert_near,
    assert_same_bits_again,
    cell_of,
    check_derivatives,
    controls,
    in_turn,
    inputs_of,
    ours,
    results_and_gradients,
)
from torch import Tensor

from lltm_jit.functional import recurrent_sequence

# directions, heads
COUNTS = [(1, 1), (1, 3), (2, 1), (2, 2)]


def inputs_of_all(
    cell: str, counts: tuple[int, int], *sizes: int, control=False, reverse=False, **kwargs
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
        ways = [controls(*sizes[:2], reverse != way) for way in (False, True)]
        marks = (torch.stack(ways) if directions == 2 else ways[0]).to(each[0].gates.device)
    weights = torch.stack([one.weight_hh for one in each])
    per_unit = [units(name) for name in ("parameters", "h_0", "c_0")]
    return Inputs(gates("gates"), weights, gates("bias_hh"), *per_unit, marks)


def check(cell: str, inputs: Inputs, directions: int, reverse: bool = False) -> None:
    """Against the reference of each recurrence."""
    functions = [partial(function, directions=directions) for function in (ours, in_turn)]
    truncated = inputs.gates.is_cuda and inputs.gates.dtype == torch.float
    assert_near(cell, inputs, reverse, functions, ulps=8 if truncated else 4, parts=16)


@pytest.mark.thinned
@pytest.mark.parametrize("size", [(5, 3, 16), (4, 9, 7)], ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_values_and_gradients(cell, counts, size, dtype, device):
    check(cell, inputs_of_all(cell, counts, *size, dtype=dtype, device=device), counts[0])


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.double], ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_resets_and_lengths(cell, counts, reverse, dtype, device):
    """Each direction has control bytes of its own."""
    of = {"control": True, "reverse": reverse, "dtype": dtype, "device": device}
    check(cell, inputs_of_all(cell, counts, 8, 6, 16, **of), counts[0], reverse)


@pytest.mark.parametrize("counts", [(1, 2), (2, 2)], ids=str)
def test_derivatives(cell, counts, device):
    inputs = inputs_of_all(cell, counts, 2, 2, 2, control=True, device=device)
    check_derivatives(cell, inputs, directions=counts[0])


@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("counts", [(1, 3), (2, 2)], ids=str)
def test_a_recurrence_is_not_touched_by_others(counts, dtype, device):
    """Not a bit of it, whatever the rows and units of others are."""
    inputs = inputs_of_all("lstm", counts, 6, 5, 16, dtype=dtype, device=device)
    assert_same_bits_again("lstm", inputs, directions=counts[0])
    gates = inputs.gates.clone()
    by_head = gates.unflatten(-1, (counts[0], 4, counts[1], 16))
    by_head[:, 2, -1, :, -1] = float("nan")  # one row of the last recurrence
    function = partial(ours, directions=counts[0])
    first, spoilt = (
        results_and_gradients("lstm", given, function=function)
        for given in (inputs, inputs._replace(gates=gates))
    )
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
        output, *_ = ours("lstm", inputs._replace(h_0=h_0))
        return torch.autograd.grad(output.sum(), weights)[0]

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
    output, _, _ = ours("lstm", inputs)
    with torch.profiler.profile(with_flops=True) as profile:
        torch.autograd.grad(output.sum(), inputs.weight_hh)
    multiplied = [each.flops for each in profile.events() if each.name.endswith("mm")]
    products = 2 * steps * rows * gates * heads * size**2
    least = 0 if size == 16 else products
    # And as many for the gradients of states, where steps are computed one by one.
    assert least <= sum(multiplied) <= least + products


def old_states(output: Tensor, h_0: Tensor | None, backwards: list[bool]) -> Tensor:
    """What each step began with."""
    first = torch.zeros_like(output[:1]) if h_0 is None else h_0[None]
    ahead, behind = torch.cat([first, output[:-1]]), torch.cat([output[1:], first])
    count = len(backwards)
    parts = [(behind if b else ahead).chunk(count, 2)[i] for i, b in enumerate(backwards)]
    return torch.cat(parts, 2)


def check_weights(sizes, backwards, state, dtype, device, bias=False) -> None:
    """The gradients of weights, against products in double of what they are made of.

    These are the outputs and the gates' gradients as they are: there is one rounding, and one of
    each part; with a bias, of small layers, those of the sums.
    """
    heads, units, steps, rows = sizes
    ways, count = len(backwards), len(backwards) * heads
    weights = torch.randn(count, 4 * units, units).div(units)
    given = [torch.randn(steps, rows, count * 4 * units), weights, torch.randn(count * 4 * units)]
    leaves = [leaf.to(device, dtype).requires_grad_() for leaf in given[: 2 + bias]]
    h_0 = torch.randn(rows, count * units).to(device, dtype) if state else None
    options = {"h_0": h_0, "reverse": backwards[0], "bidirectional": ways == 2}
    output, *_ = recurrent_sequence("lstm", *leaves, **options)
    grads, *found = torch.autograd.grad(output, leaves, torch.randn(output.shape).to(output))
    of_gates = grads.double().unflatten(2, (ways, 4, heads, units))
    old = old_states(output, h_0, backwards).double().unflatten(2, (ways, heads, units))
    product = torch.einsum("tbdghu,tbdhk->dhguk", of_gates, old).reshape(weights.shape)
    most = (1 + (state or bias)) * torch.finfo(dtype).eps
    most += bias * steps * rows * torch.finfo(torch.float).eps
    for gradient, right in zip(found, [product, grads.double().sum((0, 1))], strict=False):
        assert (gradient - right).abs().max() <= most * right.abs().max()


# Heads, units, steps and rows.
@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize(
    ("sizes", "directions"),
    [
        *[((48, 16, 9, 16), 1), ((5, 24, 7, 3), 2), ((3, 32, 300, 5), 1), ((3, 64, 1, 5), 2)],
        *[((2, 72, 5, 5), 1), ((2, 264, 3, 2), 1), ((9, 8, 5, 3), 2)],
    ],
    ids=str,
)
def test_weights_of_heads(sizes, directions, state, dtype, device):
    check_weights(sizes, [False, True][:directions], state, dtype, device)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("backwards", [[False], [True], [False, True]], ids=str)
@pytest.mark.parametrize("sizes", [(1, 4, 5, 3), (1, 20, 1, 6), (1, 24, 31, 33)], ids=str)
def test_weights_and_biases_of_small_layers(sizes, backwards, state, dtype, device):
    check_weights(sizes, backwards, state, dtype, device, bias=True)
