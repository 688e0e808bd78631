"""Recurrent layers as modules: dropout, frozen and shared parameters, processes, defaults."""

import copy
import math
from functools import partial

import pytest
import torch
from layer_testing import (
    ALL_THEIRS,
    LAYERS,
    THEIRS,
    as_list,
    as_state,
    derivatives,
    pair,
    states_of,
    tensors,
    with_gradients,
)
from op_testing import bits, needs_gpu
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.utils.data import DataLoader

import lltm_jit


@needs_gpu
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", THEIRS)
def test_dropout_has_the_statistics_of_torchs(kind, packed):
    """Of many rows that are equal but for their masks: of each step, and of the mean of all steps.

    A CPU draws torch's mask: see below. With 4000 rows a probability of 0.35 in place of 0.3 is ten
    standard errors off.
    """
    rows, (ours, theirs) = 4000, pair(kind, 3, 8, 2, dropout=0.3, device="cuda")
    with torch.no_grad():
        for parameter in (*ours.parameters(), *theirs.parameters()):
            parameter.mul_(2)
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
    options = {"dropout": 0.3, "bidirectional": bidirectional, "batch_first": batch_first}
    options |= {"proj_size": 4} if kind == "LSTM" and batch_first else {}
    x, lengths = torch.randn(4, 6, 3), GIVEN[given]
    if lengths is not None:
        x = pack_sequence([torch.randn(n, 3) for n in lengths])
    found = []
    for layer in pair(kind, 3, 8, 3, **options):
        torch.manual_seed(0)
        found.append(with_gradients(layer, x))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("kind", ALL_THEIRS)
def test_numbers_that_are_not_finite_are_where_torch_has_them(kind, value, device):
    """In results, and in the gradients of the inputs; some rows have none. torch's are on a CPU."""
    ours, theirs = pair(kind, 3, 7, 2, bidirectional=True, dtype=torch.double)
    ours.to(device)
    for poisoned in ("input", "state"):
        x, state = torch.randn(6, 4, 3, dtype=torch.double), as_list(states_of(ours, 4))
        if poisoned == "input":
            x[2, 1, 0] = value
        else:
            state[0][0, 3, 2] = value
        found = []
        for layer, place in ((ours, device), (theirs, "cpu")):
            leaf = x.clone().requires_grad_()
            results = tensors(layer(leaf.to(place), as_state([t.to(place) for t in state])))
            found.append([*(r.cpu() for r in results), *derivatives(results, [leaf])])
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


def test_an_unpickled_layer_has_its_cell(monkeypatch):
    """It may be traced next, which cannot wait for the library that describes the cell."""
    layer, asked = lltm_jit.LSTM(3, 4), []
    monkeypatch.setattr(lltm_jit.LSTM, "cell", property(asked.append))
    copy.copy(layer)
    assert len(asked) == 1


@pytest.mark.parametrize("lengths", [None, [8] * 40])
def test_both_biases_have_gradients_of_their_own(lengths):
    """In memory, too: torch.nn.utils.clip_grad_norm_() changes them in place."""
    layer = lltm_jit.LSTM(3, 4, bidirectional=True)
    layer(torch.randn(8, 40, 3), lengths=lengths)[0].sum().backward()
    expected = layer.bias_hh_l0.grad.clone()
    layer.bias_ih_l0.grad.zero_()
    assert torch.equal(layer.bias_hh_l0.grad, expected)


def test_workers_that_load_data_run_a_layer():
    """Forked after this process has used all its threads."""
    layer, data = lltm_jit.GRU(5, 300), torch.randn(4, 30, 5)

    @torch.no_grad()
    def encoded(sequences: list[Tensor]) -> Tensor:
        return torch.stack([layer(sequence)[0] for sequence in sequences])

    named = {"num_workers": 1, "timeout": 60, "multiprocessing_context": "fork"}
    loader = DataLoader(data, batch_size=2, collate_fn=encoded, **named)
    assert torch.equal(torch.cat(list(loader)), encoded(list(data)))


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
    options = {"bidirectional": True, "dtype": torch.double, "device": device}
    layer = LAYERS[kind](5, 7, 2, checkpoint=checkpoint, **options)
    x = torch.randn(9, 4, 5, dtype=torch.double, device=device, requires_grad=True)
    named = {"lengths": [9, 2, 2, 1], "reset": torch.rand(9, 4, device=device) < 0.3}
    packed = pack_padded_sequence(x, named["lengths"])
    for run in (partial(layer, x, **named), partial(layer, packed), partial(layer, x[:, 0])):
        expected = tensors(run())
        with torch.device("meta"):
            found = tensors(run())
            torch.testing.assert_close(found, expected)
            leaves = [x, *layer.parameters()]
            gradients = [derivatives(r, leaves, retain_graph=True) for r in (found, expected)]
            torch.testing.assert_close(*gradients)
