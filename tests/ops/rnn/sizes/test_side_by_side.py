"""Stacks of layers side by side: as one after the other, for any number of steps and parts."""

import pytest
import torch
from layer_testing import LAYERS, as_list, states_of, tensors
from op_testing import bits, needs_gpu

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.warm import GPUS


@pytest.fixture
def in_parts(monkeypatch):
    """Has stacks run side by side, in parts of so many steps, if their cell can; 0 for none."""
    run = native.rnn.recurrent_layers

    def of(steps: int) -> None:
        monkeypatch.setattr(native.rnn, "recurrent_layers", lambda *args: run(*args[:-1], steps))

    return of


def stack(kind: str, layers: int, dtype: torch.dtype, device: str, **named) -> torch.nn.Module:
    return LAYERS[kind](12, 16, layers, dtype=dtype, device=device, **named)


def overlaps(output: torch.Tensor) -> bool:
    return output.grad_fn.name() == "LayersSideBySideBackward"


def results(layer, x, state, create_graph=False) -> list[torch.Tensor]:
    """Outputs and the gradients of all that there is, of outputs and last states alike."""
    found = tensors(layer(x, state))
    loss = sum((t * torch.arange(t.size(-1), device=t.device)).square().mean() for t in found)
    inputs = [x, *layer.parameters(), *as_list(state)]
    return [*found, *torch.autograd.grad(loss, inputs, create_graph=create_graph)]


def inputs_of(layer, steps: int, rows: int, with_state: bool):
    like = layer.weight_ih_l0
    options = {"dtype": like.dtype, "device": like.device, "requires_grad": True}
    state = states_of(layer, rows, **options) if with_state else None
    if layer.cell.name == "slstm" and with_state:
        state = tuple(s.detach().abs().requires_grad_() for s in state)
    return torch.randn(steps, rows, 12, **options), state


@pytest.mark.parametrize(
    ("steps", "part", "layers", "with_state"),
    [(32, 8, 3, True), (13, 4, 2, False), (5, 8, 3, False), (9, 1, 4, True)],
)
def test_as_one_after_the_other(kind, steps, part, layers, with_state, device, in_parts):
    dtype = torch.double if device == "cpu" else torch.float
    layer = stack(kind, layers, dtype, device, bias=with_state)
    x, state = inputs_of(layer, steps, 3, with_state)
    in_parts(part)
    found = results(layer, x, state)
    again = results(layer, x, state)
    in_parts(0)
    expected = results(layer, x, state)
    assert bits(found) == bits(again)
    tolerance = 1e-12 if device == "cpu" else 1e-3
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_second_gradients(kind, device, in_parts):
    """By the formula of single layers: as without parts."""
    layer = stack(kind, 2, torch.double if device == "cpu" else torch.float, device)
    x, state = inputs_of(layer, 5, 2, with_state=True)
    inputs = [x, *layer.parameters(), *as_list(state)]
    found = []
    for part in (2, 0):
        in_parts(part)
        _, *others = results(layer, x, state, create_graph=True)
        loss = sum(grad.square().sum() for grad in others[layer.cell.states :])
        found.append(torch.autograd.grad(loss, inputs))
    error = 1e-12 if device == "cpu" else 1e-3
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= error * other.norm()


def test_inputs_that_depend_on_each_other(device, in_parts):
    """A state that is given twice, one of an earlier call, tied weights, and a hook."""
    layer = stack("LSTM", 2, torch.double if device == "cpu" else torch.float, device)
    layer.weight_hh_l1 = layer.weight_hh_l0
    layer.weight_ih_l0.register_hook(lambda grad: 0.5 * grad)
    x, (z, _) = inputs_of(layer, 5, 2, with_state=True)
    inputs = [x, z, *layer.parameters()]
    found = []
    for part, create_graph in ((0, False), (2, False), (2, True)):
        in_parts(part)
        _, state = layer(x, (z, z))
        loss = layer(x, state)[0].square().sum()
        found.append(torch.autograd.grad(loss, inputs, create_graph=create_graph))
    near = {"rtol": 1e-12, "atol": 1e-12} if device == "cpu" else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(found[1], found[0], **near)
    torch.testing.assert_close(found[2], found[0], **near)


def test_several_gradients_at_once(device, in_parts):
    layer = stack("GRU", 2, torch.double if device == "cpu" else torch.float, device)
    x, _ = inputs_of(layer, 5, 2, with_state=False)
    weights, found = torch.randn(3, 5, 2, 16, dtype=x.dtype, device=device), []
    for part in (2, 0):
        in_parts(part)
        found.append(torch.autograd.grad(layer(x)[0], x, weights, is_grads_batched=True))
    near = {"rtol": 1e-12, "atol": 1e-12} if device == "cpu" else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(*found, **near)


def test_only_what_is_asked_for(device, in_parts):
    layer = stack("LSTM", 3, torch.float, device)
    layer.weight_hh_l1.requires_grad_(False)
    x, state = inputs_of(layer, 7, 2, with_state=True)
    inputs = [p for p in layer.parameters() if p.requires_grad]
    for of in (lambda output, h, c: output[-1], lambda output, h, c: h[0], lambda output, h, c: c):
        found = []
        for part in (3, 0):
            in_parts(part)
            output, (h, c) = layer(x.detach(), tuple(t.detach() for t in state))
            unused = {"allow_unused": True, "materialize_grads": True}
            found.append(torch.autograd.grad(of(output, h, c).sum(), inputs, **unused))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


def test_states_are_no_views(in_parts):
    """So that a loop over pieces of a sequence may detach them in place."""
    layer = stack("LSTM", 2, torch.float, "cpu")
    in_parts(2)
    output, (h, c) = layer(torch.randn(4, 1, 12))
    assert overlaps(output)
    for result in (output, h, c):
        assert result.is_contiguous()
        assert not result._is_view()
        result.detach_()


@needs_gpu
def test_a_call_decides_how_it_runs():
    layer = LAYERS["LSTM"](256, 256, 4, dtype=torch.half, device="cuda")
    for steps, expected in ((512, True), (8, False)):
        x = torch.randn(steps, 16, 256, dtype=torch.half, device="cuda")
        assert overlaps(layer(x)[0]) is expected


@pytest.mark.parametrize("training", [False, True])
def test_which_stacks_run_so(training):
    """Small layers with many steps: the others fill the chip, or have too few steps for parts."""

    def part(steps, rows, hidden, layers, dtype="float16"):
        sizes = (steps, rows, hidden, layers)
        return native.rnn.layers_part("lstm", dtype, *sizes, training, GPUS["H200"])

    assert part(512, 16, 256, 4) > 0
    assert part(512, 1, 512, 2) > 0
    assert part(8, 16, 256, 4) == 0
    assert part(128, 1, 512, 2) == 0
    assert part(512, 128, 512, 4) == 0
    assert part(512, 16, 2048, 2) == 0
    assert part(512, 16, 256, 4, "float64") == 0
