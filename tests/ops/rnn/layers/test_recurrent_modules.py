"""Recurrent layers as modules: dropout, frozen and shared parameters, processes, defaults."""

from __future__ import annotations

import math

import pytest
import torch
from op_testing import bits, needs_gpu
from sequence_testing import ALL_LAYERS, ALL_THEIRS, LAYERS, THEIRS, tensors
from test_recurrent_layers import assert_same, states_of
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.utils.data import DataLoader, Dataset

import lltm_jit


@needs_gpu
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", THEIRS)
def test_dropout_has_the_statistics_of_torchs(kind, packed):
    """Of many rows that are equal but for their masks: of each step, and of the mean of all steps.

    A CPU draws torch's mask: see below. With 4000 rows a probability of 0.35 in place of 0.3 is ten
    standard errors off.
    """
    rows, sizes = 4000, {"num_layers": 2, "dropout": 0.3, "device": "cuda"}
    theirs, ours = THEIRS[kind](3, 8, **sizes), LAYERS[kind](3, 8, **sizes)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.mul_(2)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 1, 3, device="cuda").expand(-1, rows, -1)
    x = pack_padded_sequence(x, [5] * rows) if packed else x
    found = []
    for layer in (ours, theirs):
        output = tensors(layer(x))[0].detach().view(5, rows, 8)
        seen = torch.cat([output, output.mean(0, keepdim=True)])
        found.append((seen.mean(1), seen.std(1)))
    (mean, deviation), (right, usual) = found
    error = usual / math.sqrt(rows)
    assert ((mean - right).abs() < 8 * error).all()
    assert ((deviation / usual - 1).abs() < 8 / math.sqrt(2 * rows)).all()
    assert torch.equal(tensors(ours.eval()(x))[0], tensors(ours(x))[0])


# How sequences are given, by their lengths: packed ones run in one part or in several.
GIVEN = {"padded": None, "packed, in one part": [9, 8, 6, 6], "packed": [40, 3, 3, 1]}


@pytest.mark.thinned
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("kind", THEIRS)
def test_dropout_draws_torchs_mask(kind, given, batch_first, bidirectional):
    """With the same seed, on a CPU; cuDNN has a generator of its own."""
    sizes = {"dropout": 0.3, "bidirectional": bidirectional, "batch_first": batch_first}
    sizes |= {"proj_size": 4} if kind == "LSTM" and batch_first else {}
    theirs, ours = THEIRS[kind](3, 8, 3, **sizes), LAYERS[kind](3, 8, 3, **sizes)
    ours.load_state_dict(theirs.state_dict())
    lengths = GIVEN[given]
    x = (
        torch.randn(4, 6, 3)
        if lengths is None
        else pack_sequence([torch.randn(n, 3) for n in lengths])
    )
    found = []
    for layer in (ours, theirs):
        torch.manual_seed(0)
        output, *states = tensors(layer(x))
        loss = output.square().sum() + sum(state.sum() for state in states)
        found.append([output, *states, *torch.autograd.grad(loss, [*layer.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("kind", ALL_THEIRS)
def test_numbers_that_are_not_finite_are_where_torch_has_them(kind, value, device):
    """In results, and in the gradients of the inputs; some rows have none. torch's are on a CPU."""
    sizes = {"num_layers": 2, "bidirectional": True, "dtype": torch.double}
    theirs = ALL_THEIRS[kind](3, 7, **sizes)
    ours = ALL_LAYERS[kind](3, 7, **sizes, device=device)
    ours.load_state_dict(theirs.state_dict())
    for poisoned in ("input", "state"):
        x = torch.randn(6, 4, 3, dtype=torch.double)
        state = states_of(ours, 4)
        first = state if isinstance(state, Tensor) else state[0]
        if poisoned == "input":
            x[2, 1, 0] = value
        else:
            first[0, 3, 2] = value
        found = []
        for layer, place in ((ours, device), (theirs, "cpu")):
            given = x.clone().requires_grad_()
            moved = [t.to(place) for t in (state if isinstance(state, tuple) else [state])]
            results = tensors(layer(given.to(place), tuple(moved) if len(moved) > 1 else moved[0]))
            loss = sum(result.square().sum() for result in results)
            found.append([*(r.cpu() for r in results), *torch.autograd.grad(loss, given)])
        torch.testing.assert_close(*found, equal_nan=True)
        assert found[0][0][:, 0].isfinite().all()


@pytest.mark.parametrize("checkpoint", [0, 2])
def test_frozen_parameters_change_no_others_gradient(kind, checkpoint, device):
    layer = LAYERS[kind](5, 7, 2, bidirectional=True, checkpoint=checkpoint, device=device)
    x = torch.randn(4, 3, 5, device=device, requires_grad=True)

    def gradients() -> dict[str, list[bytes]]:
        leaves = {"input": x, **dict(layer.named_parameters())}
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        output = tensors(layer(x))[0]
        found = torch.autograd.grad(output.square().sum(), list(wanted.values()))
        return {name: bits([grad]) for name, grad in zip(wanted, found, strict=True)}

    everything = gradients()
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(False)
        found = gradients()
        assert found == {n: grad for n, grad in everything.items() if n != name}
        parameter.requires_grad_(True)
    layer.requires_grad_(False)
    assert gradients() == {"input": everything["input"]}
    assert not layer(x.detach())[0].requires_grad


# ------------------------------------------------------------------------------------- processes --


def _double(layer: nn.Module, x: Tensor, result: Tensor) -> None:
    """In another process: a result, and parameters twice as large."""
    with torch.no_grad():
        result.copy_(layer(x, lengths=[4, 2, 3])[0])
        for parameter in layer.parameters():
            parameter.mul_(2)


@pytest.mark.parametrize("kind", ["LSTM"])
def test_a_spawned_process_shares_parameters(kind):
    layer = LAYERS[kind](5, 7, bidirectional=True).share_memory()
    x, result = torch.randn(4, 3, 5), torch.zeros(4, 3, 14).share_memory_()
    expected, weight = layer(x, lengths=[4, 2, 3])[0], layer.weight_hh_l0.detach().clone()
    process = torch.multiprocessing.get_context("spawn").Process(
        target=_double, args=(layer, x, result)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert torch.equal(result, expected)
    assert torch.equal(layer.weight_hh_l0, 2 * weight)


class Encoded(Dataset):
    """What a layer makes of sequences, where they are loaded."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.sequences = torch.randn(4, 30, 5)

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.layer(self.sequences[index])[0]


def test_workers_that_load_data_run_a_layer():
    """Forked after this process has used all its threads."""
    data = Encoded(lltm_jit.GRU(5, 300))
    expected = torch.stack([data[i] for i in range(len(data))])
    loader = DataLoader(
        data, batch_size=2, num_workers=1, timeout=60, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat(list(loader)), expected)


# -------------------------------------------------------------------------------------- defaults --


def test_the_default_dtype_and_device_are_those_of_torch(kind):
    torch.set_default_dtype(torch.double)
    try:
        layer, cell = LAYERS[kind](5, 7), lltm_jit.LLTMCell(5, 7)
        assert {p.dtype for p in (*layer.parameters(), *cell.parameters())} == {torch.double}
        assert layer(torch.randn(4, 3, 5))[0].dtype == torch.double
        assert cell(torch.randn(3, 5))[0].dtype == torch.double
    finally:
        torch.set_default_dtype(torch.float)
    with torch.device("meta"):
        layer = LAYERS[kind](5, 7)
        assert layer(torch.randn(4, 3, 5))[0].is_meta


@pytest.mark.parametrize("checkpoint", [0, 2])
def test_another_default_device_changes_nothing(kind, checkpoint, device):
    layer = LAYERS[kind](
        5, 7, 2, bidirectional=True, checkpoint=checkpoint, dtype=torch.double, device=device
    )
    x = torch.randn(9, 4, 5, dtype=torch.double, device=device, requires_grad=True)
    reset = torch.rand(9, 4, device=device) < 0.3
    packed = pack_padded_sequence(x, [9, 2, 2, 1])
    for args, named in (
        ((x,), {"lengths": [9, 2, 2, 1], "reset": reset}),
        ((packed,), {}),
        ((x[:, 0],), {}),
    ):
        expected = layer(*args, **named)
        with torch.device("meta"):
            found = layer(*args, **named)
            assert_same(found, expected, layer, layer, x)
