"""Resets to given states: of the operator, by a loop, and of layers, by layers of one step."""

import copy
from functools import partial

import pytest
import torch
from layer_testing import LAYERS, as_list, as_state, states_of
from op_testing import DTYPES, needs_gpu
from sequence_testing import (
    Inputs,
    assert_same_bits_again,
    cell_of,
    check_derivatives,
    inputs_of,
    ours,
)
from test_sequence import check
from torch import Tensor

import lltm_jit
from lltm_jit.ops.rnn.recurrent_layer import projection


def with_states(inputs: Inputs, one: bool) -> Inputs:
    """With states to reset to, one for all steps or one for each; those of the first come last."""
    steps = 1 if one else len(inputs.gates)
    for name in ("h_0", "c_0"):
        if (state := getattr(inputs, name)) is not None:
            rolled = [state.roll(i, -2).mul(0.9**i) for i in range(steps + 1)]
            inputs = inputs._replace(**{name: torch.stack(rolled)})
    return inputs


# One block, several, and a grid; and more rows than one of them has.
SIZES = [(8, 6, 16), (9, 5, 7), (6, 40, 72)]
LARGE_SIZES = [(5, 20, 256), (4, 70, 512), (4, 12, 776), (3, 300, 64), (3, 3, 2120)]


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("one", [False, True])
def test_values_and_gradients(cell, one, reverse, size, dtype, path):
    inputs = inputs_of(cell, *size, dtype, path, control=True, reverse=reverse)
    check(cell, with_states(inputs, one), reverse)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_large_sizes(cell, size, dtype):
    inputs = with_states(inputs_of(cell, *size, dtype, "cuda", control=True), one=False)
    check(cell, inputs)
    assert_same_bits_again(cell, inputs)


def test_cells_alone(cell, device):
    """h is then reset to zeros."""
    if cell_of(cell).states == 1:
        return
    inputs = inputs_of(cell, 5, 6, 16, torch.float, device, control=True)
    inputs = inputs._replace(c_0=with_states(inputs, one=True).c_0)
    check(cell, inputs)
    check(cell, inputs._replace(h_0=None))


@pytest.mark.parametrize("one", [False, True])
def test_derivatives(cell, one, device):
    check_derivatives(cell, with_states(inputs_of(cell, 3, 2, 3, device=device, control=True), one))


def test_errors_of_the_operator():
    inputs = with_states(inputs_of("lstm", 5, 3, 7), one=True)
    wrong = inputs._replace(c_0=inputs.c_0.repeat(2, 1, 1, 1))
    with pytest.raises(RuntimeError, match=r"c_0 .* = \[6, 1, 3, 7\], but got \[4, 1, 3, 7\]"):
        ours("lstm", wrong)


def run(layer, x, state, reset, to, lengths=None) -> list[Tensor]:
    """Output, last states, and the states after each step."""
    named = {"lengths": lengths, "reset": reset, "reset_to": as_state(to), "return_states": True}
    output, last, every = layer(x, as_state(state), **named)
    return [output, *as_list(last), *as_list(every)]


def loop(layer, x, state, reset, to, lengths=None, reverse=False) -> list[Tensor]:
    """The same by a call for each step. A mark is between two steps, in reverse too."""
    found, count = {}, len(x)
    lengths = torch.full_like(reset[0], count, dtype=torch.long) if lengths is None else lengths
    for t in reversed(range(count)) if reverse else range(count):
        old, edge, held = state, t + reverse, (lengths <= t).view(-1, 1)
        if edge < count:
            marked = (reset[edge] & (edge < lengths)).view(-1, 1)
            at_t = [s if s.dim() == 3 else s[edge] for s in to]
            old = [torch.where(marked, *pair) for pair in zip(at_t, state, strict=True)]
        output, last = layer(x[t : t + 1], as_state(old))
        state = [torch.where(held, *pair) for pair in zip(state, as_list(last), strict=True)]
        found[t] = [each.masked_fill(held, 0) for each in (output[0], *state)]
    outputs, *every = (
        torch.stack(steps) for steps in zip(*map(found.get, range(count)), strict=True)
    )
    return [outputs, *state, *every]


def case(layer, one, device="cpu", dtype=torch.double, lengths=True):
    """Input, states, resets, states to reset to, and lengths if there are any."""
    steps, rows, options = 7, 4, {"dtype": dtype, "device": device, "requires_grad": True}
    x = torch.rand(steps, rows, layer.input_size, **options)
    state = [torch.rand(s.shape, **options) for s in as_list(states_of(layer, rows))]
    to = [torch.rand(*([] if one else [steps]), *s.shape, **options) for s in state]
    reset = torch.rand(steps, rows, device=device) < 0.4
    return x, state, reset, to, torch.tensor([7, 3, 0, 5], device=device) if lengths else None


def gradients(results, leaves):
    weights = [torch.linspace(-1, 1, r.numel()).view(r.shape).to(r) for r in results]
    loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
    return torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)


def assert_same(layer, found, expected, x, state, to):
    torch.testing.assert_close(found, expected)
    leaves = [x, *state, *to, *layer.parameters()]
    torch.testing.assert_close(gradients(found, leaves), gradients(expected, leaves))


KINDS = {
    **LAYERS,
    "projected LSTM": partial(lltm_jit.LSTM, proj_size=3),
    "LN-LSTM": lltm_jit.LayerNormLSTM,
    "carried": partial(lltm_jit.LayerNormLSTM, carried=True),
    "LN-GRU": lltm_jit.LayerNormGRU,
}


def layer_of(kind, device="cpu", num_layers=2, **named):
    return KINDS[kind](5, 8, num_layers, dtype=torch.double, device=device, **named)


@pytest.mark.thinned
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("checkpoint", [0, 3])
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "projected LSTM by steps"])
def test_layers(kind, one, checkpoint, lengths, device, monkeypatch):
    if kind == "projected LSTM by steps":
        monkeypatch.setattr(projection, "_better_by_steps", lambda *_: True)
        kind = "projected LSTM"
    layer = layer_of(kind, device, checkpoint=checkpoint)
    x, state, _, to, _ = given = case(layer, one, device, lengths=lengths)
    assert_same(layer, run(layer, *given), loop(layer, *given), x, state, to)


@pytest.mark.thinned
@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, one, lengths, together, num_heads, device, monkeypatch):
    if kind not in LAYERS and num_heads > 1:
        return
    options = {"num_layers": 1, "num_heads": num_heads}
    layer = layer_of(kind, device, bidirectional=True, **options)
    x, state, reset, to, ends = case(layer, one, device, lengths=lengths)
    each = []
    for direction in (0, 1):
        single = layer_of(kind, device, **options)
        for name in [*single._parameters]:
            single._parameters[name] = getattr(layer, name + "_reverse" * direction)
        own, own_to = ([s[..., [direction], :, :] for s in states] for states in (state, to))
        each.append(loop(single, x, own, reset, own_to, ends, reverse=bool(direction)))
    (output, *states), (other, *others) = each
    pairs = zip(states, others, strict=True)
    expected = [torch.cat([output, other], 2), *(torch.cat(pair, -3) for pair in pairs)]
    if not together:
        monkeypatch.setattr(type(layer), "_together", lambda *_: False)
    assert_same(layer, run(layer, x, state, reset, to, ends), expected, x, state, to)


# On a GPU one block, a cluster, a grid, and steps; with padded gates.
ON_GPU = [pytest.param("cuda", size, marks=needs_gpu) for size in (16, 70, 200, 600, 2120)]


@pytest.mark.parametrize(("device", "hidden_size"), [("cpu", 17), *ON_GPU])
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "SLSTM", "GRU"])
def test_states_of_kernels(kind, lengths, dtype, device, hidden_size):
    """Of results with gradients, and with those of the states; and of some without."""
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    layer = LAYERS[kind](5, hidden_size, dtype=dtype, device=device)
    x, state, reset, to, ends = given = case(layer, False, device, dtype, lengths)
    found = run(layer, *given)
    with torch.no_grad():
        again = run(layer, *given)
    torch.testing.assert_close(again, found, rtol=0.01, atol=0.01)
    found += gradients(smooth(kind, found), [x, *state, *to, *layer.parameters()])
    exact = copy.deepcopy(layer).double()
    x, *others = [t.detach().double().requires_grad_() for t in (x, *state, *to)]
    expected = loop(exact, x, others[: len(state)], reset, others[len(state) :], ends)
    expected += gradients(smooth(kind, expected), [x, *others, *exact.parameters()])
    most = 2e-5 if dtype is torch.float else 2e-2
    for result, right in zip(found, expected, strict=True):
        assert (result - right).norm() <= most * right.norm() + 1e-6


def smooth(kind, results):
    """Of an sLSTM without its m, whose derivative jumps, and what depends on it."""
    return [results[0], results[1], results[-4]] if kind == "SLSTM" else results


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_layouts_of_states(kind, one):
    layer = layer_of(kind)
    x, state, reset, to, _ = case(layer, one)
    right = run(layer, x, state, reset, to)
    layer.batch_first = True
    first, *others = run(layer, x.transpose(0, 1), state, reset.t(), to)
    torch.testing.assert_close([first.transpose(0, 1), *others], right)
    layer.batch_first = False
    of_row = [[s[..., 0, :] for s in states] for states in (state, to)]
    single = run(layer, x[:, 0], of_row[0], reset[:, 0], of_row[1])
    torch.testing.assert_close(single, [t[..., 0, :] for t in right])
    learned = [s[..., :1, :].detach().requires_grad_() for s in to]
    for_all = [s.expand(*s.shape[:-2], 4, -1) for s in learned]
    found, expected = (run(layer, x, state, reset, given)[0] for given in (learned, for_all))
    assert torch.equal(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), learned) for y in (found, expected)))


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("projected LSTM", "aot_eager"),
        pytest.param("GRU", "aot_eager", marks=pytest.mark.slow),
        pytest.param("LSTM", "inductor", marks=pytest.mark.slow),
    ],
)
def test_compiled(kind, backend, device):
    layer = layer_of(kind, device)
    x, state, *given = case(layer, False, device)
    function = torch.compile(layer.forward, backend=backend, fullgraph=True)
    found, expected = run(function, x, state, *given), loop(layer, x, state, *given)
    assert_same(layer, found, expected, x, state, given[1])


@pytest.mark.parametrize("one", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_exported_for_any_number_of_steps_and_rows(one):
    layer = lltm_jit.LSTM(5, 8)
    steps, rows = (torch.export.Dim(name, min=3, max=99) for name in ("steps", "rows"))
    both, to = {0: steps, 1: rows}, ({1: rows} if one else {0: steps, 2: rows},) * 2
    shapes = {"input": both, "reset": both, "reset_to": to, "return_states": None}

    def inputs(steps, rows):
        size = (1, rows, 8) if one else (steps, 1, rows, 8)
        to = torch.randn(size), torch.randn(size)
        named = {"reset": torch.rand(steps, rows) < 0.3, "reset_to": to, "return_states": True}
        return (torch.randn(steps, rows, 5),), named

    program = torch.export.export(layer, *inputs(6, 4), dynamic_shapes=shapes)
    x, named = inputs(9, 3)
    torch.testing.assert_close(program.module()(*x, **named), layer(*x, **named))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SLSTM"])
def test_autocast(kind, dtype, device):
    layer = LAYERS[kind](5, 8, device=device)
    x, state, reset, to, _ = case(layer, False, device, torch.float)
    named = {"reset": reset, "reset_to": as_state(to), "return_states": True}
    with torch.autocast(device, dtype):
        output, last, every = layer(x, as_state(state), **named)
        plain_output, plain_last = layer(x, as_state(state), reset=reset, reset_to=as_state(to))
    assert output.dtype == plain_output.dtype
    torch.testing.assert_close(last, plain_last)
    for one, of_steps in zip(as_list(last), as_list(every), strict=True):
        torch.testing.assert_close(of_steps[-1], one, rtol=0.02, atol=0.02)


X, RESET, H = torch.zeros(7, 4, 5), torch.zeros(7, 4, dtype=torch.bool), torch.zeros(2, 4, 8)
SINGLE = {"input": X[:, 0], "reset": RESET[:, 0]}  # a sequence without a batch
# What is given, to a GRU of two layers, and the error.
WRONG = {
    "no reset": ({"reset": None}, "expected reset with reset_to"),
    "a count": ({"reset_to": (H, H)}, "reset_to to be a tensor"),
    "a rank": ({"reset_to": torch.zeros(8)}, r"dimensions \[layers, batch, hidden\]"),
    "a size": (
        {"reset_to": torch.zeros(7, 2, 3, 8)},
        r"reset_to to have shape \[steps, layers, batch, hidden\] = \[7, 2, 4, 8\], but got "
        r"\[7, 2, 3, 8\]",
    ),
    "a dtype": ({"reset_to": H.double()}, "reset_to to have the dtype of the parameters"),
    "a dtype beside a state": (
        {"hx": H, "reset_to": H.half()},
        r"dtype of the same state in hx \(torch.float32\), but got torch.float16",
    ),
    "a device": ({"reset_to": H.to("meta")}, "reset_to to have the device of the parameters"),
    "steps of one sequence": (
        SINGLE | {"reset_to": torch.zeros(6, 2, 8)},
        r"\[steps, layers, hidden\] = \[7, 2, 8\], but got \[6, 2, 8\]",
    ),
    "a state of one sequence": (
        SINGLE | {"hx": torch.zeros(3, 8), "reset": None, "reset_to": None},
        r"\[layers, hidden\] = \[2, 8\], but got \[3, 8\]",
    ),
    "a mask of one sequence": (
        SINGLE | {"reset": RESET[:5, 0]},
        r"\[steps\] = \[7\], but got \[5\]",
    ),
}
# In the caller's order.
WRONG |= {
    f"a mask {shape}, batch first": (
        {"input": X.transpose(0, 1), "reset": torch.zeros(shape)},
        rf"\[batch, steps\] = \[4, 7\], but got \[{str([*shape])[1:-1]}\]",
    )
    for shape in ((7, 4), (4,), ())
}
ERRORS = {"no reset": ValueError, "a count": TypeError}


@pytest.mark.parametrize("way", WRONG)
def test_errors(way):
    named, message = WRONG[way]
    layer = lltm_jit.GRU(5, 8, 2, batch_first="batch first" in way)
    with pytest.raises(ERRORS.get(way, RuntimeError), match=rf"^GRU\(\): .*{message}"):
        layer(**{"input": X, "reset": RESET, "reset_to": H} | named)


@pytest.mark.parametrize("projections", [0, 3])
def test_a_batch_of_no_rows(projections):
    lstm = lltm_jit.LSTM(3, 4, proj_size=projections)
    output, _ = lstm(torch.randn(5, 0, 3), reset=torch.zeros(5, 0, dtype=torch.bool))
    assert output.shape == (5, 0, projections or 4)


def test_states_that_nobody_reads_spoil_no_gradient():
    """Those of steps without a mark, with a projection."""
    lstm = lltm_jit.LSTM(3, 4, proj_size=2)
    reset = torch.tensor([False, True, False]).view(3, 1).expand(3, 2)
    h, c = torch.randn(3, 1, 2, 2), torch.randn(3, 1, 2, 4)
    h[2] = c[2] = torch.nan
    output, _ = lstm(torch.randn(3, 2, 3), reset=reset, reset_to=(h, c))
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in lstm.parameters())
