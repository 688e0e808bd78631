"""Layers whose gates and weights are padded on a GPU."""

import pytest
import torch
from layer_testing import LAYERS, as_list, derivatives, pair, tensors, with_gradients
from op_testing import needs_gpu
from sequence_testing import assert_within, names_of_launched
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map

import lltm_jit
from lltm_jit.ops.rnn.sequence import needs_padding


def with_checkpoints(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    layer.checkpoint = 2
    return with_gradients(layer, x)


def under_autocast(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        return with_gradients(layer, x)


def compiled(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    torch._dynamo.reset()
    one = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    return with_gradients(one, x)


def forward_mode(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    given = dict(layer.named_parameters())
    run = torch.func.functional_call
    results, tangents = torch.func.jvp(lambda p: run(layer, p, (x,))[0], (given,), (given,))
    return [results, tangents]


WAYS = {
    "called": with_gradients,
    "one sequence": lambda layer, x: with_gradients(layer, x[:, 0]),
    "lengths": lambda layer, x: with_gradients(layer, x, lengths=[4, 1, 3]),
    "packed": lambda layer, x: with_gradients(layer, pack_padded_sequence(x, [4, 4, 1])),
    "checkpoints": with_checkpoints,
    "autocast": under_autocast,
    "compiled": compiled,
    "exported": lambda layer, x: with_gradients(torch.export.export(layer, (x,)).module(), x),
    "vmap": lambda layer, x: [torch.vmap(lambda x: layer(x)[0])(torch.stack([x, 2 * x]))],
    "forward mode": forward_mode,
    "twice": lambda layer, x: derivatives([layer(x)[0]], [*layer.parameters()], orders=2),
}


# One adds its gates, the other does not.
CALLS = [("LSTM", True, way) for way in WAYS]
CALLS += [("GRU", bias, way) for bias in (True, False) for way in ("called", "packed", "twice")]


@pytest.mark.parametrize(("kind", "bias", "way"), CALLS)
def test_calls_that_pad_on_a_cpu_too(way, kind, bias, monkeypatch):
    """By the operators that other calls than the plainest have on a GPU."""
    layer = LAYERS[kind](5, 7, bidirectional=True, bias=bias)
    x = torch.randn(4, 3, 5)
    expected = WAYS[way](layer, x)
    monkeypatch.setattr("lltm_jit.ops.rnn.recurrent_layer.plain.plainly", lambda *_: None)
    monkeypatch.setattr("lltm_jit.ops.rnn.recurrent_layer.directions.pads_gates", lambda _: True)
    with torch.profiler.profile() as profile:
        found = WAYS[way](layer, x)
    assert "lltm_jit::pad_gates" in {event.key for event in profile.key_averages()}
    error = 2e-2 if way == "autocast" else 1e-5
    torch.testing.assert_close(found, expected, rtol=error, atol=error)


def layer_results(layer: torch.nn.Module, x: Tensor, lengths: list[int]) -> list[Tensor]:
    x = x.detach().requires_grad_()
    if isinstance(layer, torch.nn.LSTM):
        packed, states = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
        output, _ = pad_packed_sequence(packed)
    else:
        output, states = layer(x, lengths=lengths)
    loss = output.square().sum() + sum(state.sum() for state in as_list(states))
    return [output, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("sizes", [(3, 7), (8, 33), (5, 130)], ids=str)
def test_layers(kind, sizes, dtype):
    """Two of them in both directions, against float64 on the CPU; their results are dense."""
    layer = LAYERS[kind](*sizes, num_layers=2, bidirectional=True)
    x = torch.randn(5, 4, sizes[0])
    lengths = [5, 2, 1, 4]
    ours = layer.to("cuda", dtype)
    found = layer_results(ours, x.to("cuda", dtype)[..., :], lengths)
    expected = layer_results(layer.to("cpu", torch.double), x.to(dtype).double(), lengths)
    assert all(result.is_contiguous() for result in found)
    assert_within(found, expected, 100 * torch.finfo(dtype).eps)


def assert_as_near_as_torchs(found, usual, exact) -> None:
    for result, plain, right in zip(found, usual, exact, strict=True):
        error, allowed = ((each.cpu().double() - right).norm() for each in (result, plain))
        assert error <= 2 * allowed + torch.finfo(result.dtype).eps * right.norm()


def test_which_layers_are_padded():
    """Where kernels need it, and where the library's products gain more than it costs."""
    sizes = (36, 650, 652, 656)
    assert [needs_padding(size, torch.float) for size in sizes] == [False, True, False, False]
    assert [needs_padding(size, torch.half) for size in sizes] == [False, True, True, False]
    assert not any(needs_padding(size, torch.double) for size in sizes)


@needs_gpu
@pytest.mark.parametrize("sizes", [(300, 300), (12, 100), (9, 652), (20, 1500)], ids=str)
def test_layers_of_one_direction(sizes, tmp_path):
    """Beside torch's layer, which rounds as much."""
    layer = lltm_jit.LSTM(*sizes, num_layers=2)
    x = torch.randn(5, 4, sizes[0]).half()
    ours = layer.to("cuda", torch.half)
    found = layer_results(ours, x.cuda(), [5, 2, 1, 4])
    names = names_of_launched(lambda: layer_results(ours, x.cuda(), [5] * 4), tmp_path)
    assert sum("copy_rows" in name for name in names) >= 4
    theirs = torch.nn.LSTM(*sizes, num_layers=2, device="cuda", dtype=torch.half)
    theirs.load_state_dict(ours.state_dict())
    usual = layer_results(theirs, x.cuda(), [5, 2, 1, 4])
    expected = layer_results(layer.to("cpu", torch.double), x.double(), [5, 2, 1, 4])
    assert all(result.is_contiguous() for result in found)
    assert_as_near_as_torchs(found, usual, expected)


def trained(layer: torch.nn.Module, x: Tensor, state: object) -> list[Tensor]:
    output, *last = tensors(layer(x, state))
    loss = output.square().sum() + sum(each.sum() for each in last)
    return [output, *last, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@needs_gpu
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_single_step_reads_weights_where_they_are(kind, dtype, given, tmp_path):
    ours, theirs = pair(kind, 7, 601, 2, bidirectional=True, device="cuda", dtype=dtype)
    x = torch.randn(1, 5, 7, device="cuda", dtype=dtype, requires_grad=True)
    h = torch.randn(4, 5, 601, device="cuda", dtype=dtype)
    state = None if not given else (h, h.tanh()) if kind == "LSTM" else h
    names = {*names_of_launched(lambda: trained(ours, x, state), tmp_path)}
    assert names >= {"sequence_forward_step", "sequence_backward_step"}
    assert not any("copy_rows" in name for name in names)
    found, usual = trained(ours, x, state), trained(theirs, x, state)
    exact = trained(
        ours.to("cpu", torch.double),
        x.detach().cpu().double().requires_grad_(),
        tree_map(lambda tensor: tensor.cpu().double(), state) if given else None,
    )
    assert_as_near_as_torchs(found, usual, exact)


@needs_gpu
def test_directions_share_a_call_where_they_share_a_launch():
    """Else each has its own, without a tensor of both's weights."""
    for (hidden_size, rows, steps), together in {
        (128, 16, 16): True,
        (1024, 16, 1): False,  # step by step
        (1152, 100, 16): False,  # by kernels of many rows
    }.items():
        layer = lltm_jit.LSTM(8, hidden_size, bidirectional=True, device="cuda", dtype=torch.half)
        assert layer._together([torch.zeros(steps, rows, 8).to(layer.weight_hh_l0)]) is together


@needs_gpu
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("hidden_size", "steps"), [(7, 6), (16, 6), (7, 1)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_both_directions(kind, hidden_size, steps, given, monkeypatch, tmp_path):
    """One sequence a layer; without gradients a copy of the operands, and a product, beside it."""
    layer = LAYERS[kind](5, hidden_size, 2, bidirectional=True, device="cuda")
    x = torch.randn(steps, 3, 5, device="cuda", requires_grad=True)
    h = torch.randn(4, 3, hidden_size, device="cuda")
    state = None if not given else (h, h.tanh()) if kind == "LSTM" else h
    with torch.no_grad():
        found = tensors(layer(x, state))
        names = names_of_launched(lambda: layer(x, state), tmp_path)
    assert sum("copy_rows" in name for name in names) == 2
    assert sum("sequence_forward" in name for name in names) == 2
    assert not any("Cat" in name for name in names)
    for result in found:
        assert result.is_contiguous()
        result.detach_()
    together = trained(layer, x, state)
    names = names_of_launched(lambda: trained(layer, x, state), tmp_path)
    assert sum("sequence_backward" in name for name in names) == 2
    assert sum("copy_rows" in name for name in names) == (2 if hidden_size == 16 else 6)
    monkeypatch.setattr("lltm_jit.ops.rnn.recurrent_layer.plain.plainly", lambda *_: None)
    monkeypatch.setattr(layer, "_together", lambda _: False)
    apart = trained(layer, x, state)
    assert_within(found + together, apart[: len(found)] + apart, 2e-3)  # TF32


@needs_gpu
@pytest.mark.parametrize("hidden_size", [130, 650])
def test_no_layer_runs_step_by_step(hidden_size, tmp_path):
    layer = lltm_jit.LSTM(10, hidden_size, device="cuda", dtype=torch.half)
    x = torch.randn(12, 4, 10, device="cuda", dtype=torch.half)

    names = {*names_of_launched(lambda: layer(x)[0].sum().backward(), tmp_path)}
    assert names >= {"sequence_forward", "sequence_backward"}
    assert not {name for name in names if "step" in name}
