"""Recurrent layers in training: mixed precision, checkpoints, parametrisations, copies."""

import copy
import pickle
import warnings

import pytest
import torch
from layer_testing import LAYERS, THEIRS, as_state, derivatives, tensors, with_gradients
from op_testing import ACTIVATIONS, bits
from sequence_testing import all_accurate, cell_of, inputs_of, reference, saved_and_loaded
from torch import nn
from torch.nn.utils import clip_grad_norm_, parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from lltm_jit.functional import recurrent_sequence


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_autocast_of_the_operator(cell, dtype, device):
    """As with casts written out; a float c_0 stays so."""
    inputs = inputs_of(cell, dtype=torch.float, device=device, control=True)
    given, cast = inputs.requires_grad(), inputs.to(dtype)
    if cell_of(cell).states > 1:
        cast = cast._replace(c_0=inputs.c_0)
    with torch.autocast(device, dtype):
        results = recurrent_sequence(cell, *given)
        again = recurrent_sequence(cell, *given._replace(h_0=results[1]))
    count = 1 + cell_of(cell).states
    assert [r.dtype for r in results[:count]] == [dtype, dtype, torch.float][:count]
    assert bits(results) == bits(recurrent_sequence(cell, *cast))
    loss = sum(r.float().sum() for r in again)
    found = torch.autograd.grad(loss, given.leaves())
    assert {g.dtype for g in found} == {torch.float}

    def expected(dtype):
        given = inputs.to(dtype).requires_grad()
        h = reference(cell, given)[1]
        results = reference(cell, given._replace(h_0=h))
        return torch.autograd.grad(sum(r.float().sum() for r in results), given.leaves())

    found = [grad.to(dtype) for grad in found]
    exact, usual = expected(torch.double), expected(dtype)
    all_accurate(found, exact, usual, ulps=4, sums=True, parts=ACTIVATIONS)


def autocast_dtype(kind: str, dtype: torch.dtype, device: str) -> torch.dtype:
    """That of results, for an input in float: on a CPU torch's autocast casts no GRU."""
    return torch.float if (kind, device) == ("GRU", "cpu") else dtype


@pytest.mark.parametrize("checkpointed", [0, 2])
def test_autocast_of_layers(kind, checkpointed, device):
    dtype = torch.bfloat16 if device == "cpu" else torch.half
    x = torch.randn(6, 3, 5, device=device)
    layer = LAYERS[kind](5, 7, 2, bidirectional=True, checkpoint=checkpointed, device=device)
    with torch.autocast(device, dtype):
        found = with_gradients(layer, x)
        results = layer(x)
        again = layer(x, results[1])  # the state goes round
        if kind in THEIRS and device == "cuda":  # on some CPUs torch's refuse, or stay in float
            theirs = THEIRS[kind](5, 7, 2, bidirectional=True, device=device)
            assert [t.dtype for t in tensors(results)] == [t.dtype for t in tensors(theirs(x))]
    count, of_results = len(tensors(results)), autocast_dtype(kind, dtype, device)
    assert {t.dtype for t in found[:count]} == {of_results}
    assert {t.dtype for t in tensors(again)} == {of_results}
    assert {t.dtype for t in found[count:]} == {torch.float}
    exact, cast = (
        with_gradients(copy.deepcopy(layer).to(each), x.to(each)) for each in (torch.double, dtype)
    )
    all_accurate([t.to(dtype) for t in found], exact, cast, sums=True, parts=ACTIVATIONS)


def test_autocast_takes_what_torchs_layers_take(kind, device):
    layer, dtype = LAYERS[kind](5, 7, device=device), torch.bfloat16
    x, h = torch.randn(6, 3, 5, device=device), torch.randn(1, 3, 7, device=device)
    state = as_state([h] * layer.cell.states)
    with torch.autocast(device, dtype):
        packed, packed_state = layer(pack_padded_sequence(x, [6, 4, 3]), state)
        output, last = layer(x, state, lengths=[6, 4, 3])
        in_parts, end_of_parts = layer(pack_padded_sequence(x, [6, 4, 1]), state)
        _, end = layer(x, state, lengths=[6, 4, 1])
    of_results = autocast_dtype(kind, dtype, device)
    assert packed.data.dtype == output.dtype == in_parts.data.dtype == of_results
    assert {tensor.dtype for tensor in tensors((output, last))} == {of_results}
    ends = [tensors((output, state))[1:] for state in (end_of_parts, end)]
    for ours, right in zip(*ends, strict=True):
        assert ours.dtype == right.dtype
        torch.testing.assert_close(ours, right, rtol=2**-7, atol=2**-9)  # h is rounded in between
    torch.testing.assert_close(packed_state, last, rtol=0, atol=0)


def test_training_with_a_scaler(kind, device):
    """Scaled gradients, clipped, of half layers under autocast bring the loss down."""
    layer = LAYERS[kind](5, 16, device=device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10)
    x, target = torch.randn(4, 3, 5, device=device), torch.rand(4, 3, 16, device=device) - 0.5
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast(device, torch.half):
            losses.append(nn.functional.mse_loss(layer(x)[0].float(), target))
        scaler.scale(losses[-1]).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(layer.parameters(), 0.5)
        assert norm.isfinite()
        scaler.step(optimizer)
        scaler.update()
    assert losses[-1] < 0.6 * losses[0]
    assert scaler.get_scale() == 2.0**10


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_around_a_layer(use_reentrant, kind, device):
    """With dropout, whose mask must be the same again; also around a layer with its own."""
    layer = LAYERS[kind](5, 7, 2, dropout=0.5, checkpoint=0 if use_reentrant else 3, device=device)
    x = torch.randn(8, 3, 5, device=device, requires_grad=True)

    def run(x):
        return tuple(tensors(layer(x)))

    def gradients(function):
        torch.manual_seed(0)
        layer.zero_grad()
        x.grad = None
        sum(result.square().sum() for result in function(x)).backward()
        return [leaf.grad for leaf in (x, *layer.parameters())]

    actual = gradients(lambda x: checkpoint(run, x, use_reentrant=use_reentrant))
    assert bits(actual) == bits(gradients(run))


# Calls whose backward pass computes steps again where there is checkpoint=.
RUNS = {
    "LSTM": ("LSTM", {"num_layers": 2}),
    "GRU, both directions": ("GRU", {"bidirectional": True}),
    "RNN without a bias": ("RNN_TANH", {"bias": False}),
    "SLSTM": ("SLSTM", {}),
    "projected": ("LSTM", {"proj_size": 3, "bidirectional": True}),
    "heads": ("LLTM", {"num_heads": 7}),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_backward_has_the_weights_of_its_forward(run, packed, device):
    """Of both orders: functional_call has given the module its own weights back by then."""
    kind, options = RUNS[run]
    x = torch.randn(6, 3, 5, dtype=torch.double, device=device)
    given = pack_padded_sequence(x, [6, 2, 1]) if packed else x
    found = []
    for steps in (0, 2):
        torch.manual_seed(0)
        layer = LAYERS[kind](5, 7, checkpoint=steps, dtype=torch.double, device=device, **options)
        weights = {n: (2 * p.detach()).requires_grad_() for n, p in layer.named_parameters()}
        results = tensors(torch.func.functional_call(layer, weights, (given,)))
        found.append(derivatives(results, [*weights.values()], orders=2))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("run", RUNS)
def test_backward_notices_weights_that_were_changed(run, steps, device):
    """Or has kept those of its forward, which a GPU pads to a copy where a layer has few units."""
    kind, options = RUNS[run]
    layer = LAYERS[kind](5, 7, checkpoint=steps, device=device, **options)
    loss, weights = layer(torch.randn(6, 3, 5, device=device))[0].sum(), [*layer.parameters()]
    expected = torch.autograd.grad(loss, weights, retain_graph=True)
    with torch.no_grad():
        for parameter in weights:
            parameter.mul_(2)
    if device == "cuda" and not steps and run not in ("projected", "heads"):
        torch.testing.assert_close(torch.autograd.grad(loss, weights), expected)
        return
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, weights)


def test_calls_with_other_weights_before_one_backward_pass(kind, device):
    """As weight drop has it: code that puts a tensor in place of a parameter before each call."""
    found, x = [], torch.randn(6, 3, 5, dtype=torch.double, device=device)
    for steps in (0, 2):
        torch.manual_seed(0)
        layer = LAYERS[kind](5, 7, checkpoint=steps, dtype=torch.double, device=device)
        raw = nn.Parameter(layer.weight_hh_l0.detach().clone())
        del layer._parameters["weight_hh_l0"]
        loss = 0
        for scale in (0.5, 2):
            layer.weight_hh_l0 = raw * scale
            loss = loss + layer(x)[0].square().sum()
        loss.backward()
        found.append(raw.grad)
        normed = weight_norm(LAYERS[kind](5, 7, checkpoint=steps, device=device), "weight_hh_l0")
        with parametrize.cached():
            output = normed(x.float())[0]
        output.sum().backward()
    torch.testing.assert_close(*found)


def test_parametrisation_and_weight_norm(kind, device):
    plain, x = LAYERS[kind](5, 7, device=device), torch.randn(4, 3, 5, device=device)
    normed = weight_norm(copy.deepcopy(plain), "weight_hh_l0")
    torch.testing.assert_close(tensors(normed(x)), tensors(plain(x)))
    size, direction = normed.parametrizations.weight_hh_l0.parameters()
    composed = size * direction / direction.norm(dim=1, keepdim=True)
    named = {**dict(plain.named_parameters()), "weight_hh_l0": composed}
    calls = normed(x), torch.func.functional_call(plain, named, (x,))
    found = [derivatives(tensors(results), [size, direction]) for results in calls]
    torch.testing.assert_close(*found)
    parametrize.remove_parametrizations(normed, "weight_hh_l0")
    assert set(normed.state_dict()) == set(plain.state_dict())
    torch.testing.assert_close(tensors(normed(x)), tensors(plain(x)))


def test_copies_and_files(kind, device):
    options = {"batch_first": True, "bias": False, "bidirectional": True, "device": device}
    layer, x = LAYERS[kind](5, 7, **options), torch.randn(3, 4, 5, device=device)
    copies = [
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        saved_and_loaded(torch, layer),
        LAYERS[kind](5, 7, **options),
    ]
    copies[-1].load_state_dict(saved_and_loaded(torch, layer.state_dict()))
    for other in copies:
        assert bits(tensors(other(x))) == bits(tensors(layer(x)))
        with torch.no_grad():
            other.weight_hh_l0.zero_()
        assert layer.weight_hh_l0.abs().sum() > 0


def test_hooks_of_the_node(device):
    given = inputs_of("lstm", device=device).requires_grad()
    output, h_n, c_n = recurrent_sequence("lstm", *given)
    node = output.grad_fn
    assert node is h_n.grad_fn is c_n.grad_fn
    assert node.name() == "RecurrentSequenceBackward"
    outer, inner = [], []
    node.register_prehook(outer.extend)
    node.register_hook(lambda grads, _: inner.extend(g for g in grads if g is not None))
    grads = torch.autograd.grad(output.sum() + h_n.sum() + c_n.sum(), given.leaves())
    torch.testing.assert_close(outer, [torch.ones_like(t) for t in (output, h_n, c_n)])
    assert bits(inner) == bits(grads)


def test_anomaly_mode_names_the_line_of_the_forward(device):
    gates, *others = inputs_of("gru", device=device).requires_grad()
    with warnings.catch_warnings(record=True) as caught, torch.autograd.detect_anomaly():
        output, *_ = recurrent_sequence("gru", gates * torch.nan, *others)
        with pytest.raises(RuntimeError, match="'RecurrentSequenceBackward' returned nan values"):
            output.sum().backward()
    assert any('recurrent_sequence("gru", gates * torch.nan' in str(w.message) for w in caught)


def test_deterministic_mode(kind, device, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which torch demands for products
    layer = LAYERS[kind](5, 32, bidirectional=True, device=device)
    x = torch.randn(6, 9, 5, device=device)
    lengths = torch.randint(1, 7, (9,))
    expected = bits(with_gradients(layer, x, lengths=lengths))
    torch.use_deterministic_algorithms(True)
    try:
        assert bits(with_gradients(layer, x, lengths=lengths)) == expected
    finally:
        torch.use_deterministic_algorithms(False)
