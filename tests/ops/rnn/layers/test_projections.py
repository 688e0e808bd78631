"""LSTMs with a proj_size, in one call and by steps, against torch's and each other."""

import copy

import pytest
import torch
from layer_testing import assert_alike, pair, tensors, with_gradients
from op_testing import needs_gpu, refusal
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import lltm_jit
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer, projection

F, H, P, L, B = 5, 8, 3, 6, 4  # features, hidden units, projections, steps, batch size
LENGTHS = [3, L, 1, 2]
WAYS = ["at once", "at once, both directions", "by steps"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Both directions run in one call on a GPU, but they may on a CPU."""
    by_steps = request.param == "by steps"
    monkeypatch.setattr(projection, "_better_by_steps", lambda *args: by_steps)
    if request.param.endswith("directions"):
        monkeypatch.setattr(
            RecurrentLayer, "_together", lambda self, xs: len(xs) == 1 and not self.checkpoint
        )


def states(layers: int, device: str = "cpu", dtype: torch.dtype = torch.double):
    sizes = [(layers, B, size) for size in (P, H)]
    return tuple(torch.randn(size, device=device, dtype=dtype) for size in sizes)


def called(layer: nn.Module, x, hx, form="batch", **named) -> list[torch.Tensor]:
    """Results, and the first and second derivatives of all that there is."""
    leaves = [t.clone().requires_grad_() for t in (x, *(hx or ()))]
    args = FORMS[form](leaves[0]), tuple(leaves[1:]) or None
    return with_gradients(layer, *args, leaves=leaves, orders=2, **named)


FORMS = {
    "batch": lambda x: x,
    "batch first": lambda x: x.transpose(0, 1),
    "packed": lambda x: pack_padded_sequence(x, LENGTHS, enforce_sorted=False),
}
ON = [*((each, "cpu") for each in WAYS), pytest.param("at once", "cuda", marks=needs_gpu)]


@pytest.mark.thinned
@pytest.mark.parametrize(("way", "device"), ON, indirect=["way"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_torchs_own_gives_the_same(form, bidirectional, full, way, device):
    """A full layer has biases and is given a state. By steps is a CPU's way alone."""
    options = {
        "bias": full,
        "bidirectional": bidirectional,
        "batch_first": form == "batch first",
        "proj_size": P,
        "dtype": torch.double,
        "device": device,
    }
    layers = pair("LSTM", F, H, 2, **options)
    x = torch.randn(L, B, F, dtype=torch.double, device=device)
    hx = states(2 * (1 + bidirectional), device) if full else None
    with torch.backends.cudnn.flags(enabled=False):  # its LSTM has no second derivatives
        torch.testing.assert_close(*(called(layer, x, hx, form) for layer in layers))


@pytest.mark.parametrize("by_steps", [False, True])
def test_many_rows_in_both_directions(by_steps, monkeypatch):
    """Of which a CPU computes other layers' in one call."""
    monkeypatch.setattr(projection, "_better_by_steps", lambda *args: by_steps)
    assert_alike(pair("LSTM", F, H, bidirectional=True, proj_size=P), torch.randn(3, 100, F))


@pytest.mark.thinned
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("checkpoint", [0, 2])
@pytest.mark.parametrize("state", [False, True])
def test_lengths_resets_and_checkpoints_are_those_of_an_lstm(state, checkpoint, reset):
    """Whose projection is the identity, but for a unit that reaches no other and no output."""
    layer = lltm_jit.LSTM(
        F, H, bidirectional=True, proj_size=H - 1, checkpoint=checkpoint, dtype=torch.double
    )
    plain = lltm_jit.LSTM(F, H - 1, bidirectional=True, dtype=torch.double)
    with torch.no_grad():
        for suffix in ("l0", "l0_reverse"):
            getattr(layer, f"weight_hr_{suffix}").copy_(torch.eye(H - 1, H))
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                weight = getattr(layer, f"{name}_{suffix}").unflatten(0, (4, H))[:, :-1]
                getattr(plain, f"{name}_{suffix}").copy_(weight.flatten(0, 1))
    x = torch.randn(L, B, F, dtype=torch.double)
    hx = tuple(torch.randn(2, B, size, dtype=torch.double) for size in (H - 1, H))
    named = {"lengths": [3, L, 0, 2], "reset": torch.rand(L, B) < 0.5 if reset else None}
    output, (h_n, c_n) = layer(x, hx if state else None, **named)
    expected = plain(x, (hx[0], hx[1][..., :-1]) if state else None, **named)
    torch.testing.assert_close([output, h_n, c_n[..., :-1]], tensors(expected))


def test_derivatives_with_lengths_are_the_same_both_ways(monkeypatch):
    layer = lltm_jit.LSTM(F, H, 2, bidirectional=True, proj_size=P, dtype=torch.double)
    x, hx, found = torch.randn(L, B, F, dtype=torch.double), states(4), []
    for by_steps in (False, True):
        monkeypatch.setattr(projection, "_better_by_steps", lambda *_, each=by_steps: each)
        found.append(called(layer, x, hx, lengths=[3, L, 0, 2]))
    torch.testing.assert_close(*found)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_16_bits_are_as_near_to_the_exact_result_as_torchs(dtype):
    ours, theirs = pair("LSTM", 16, 32, proj_size=12, dtype=dtype)
    exact = copy.deepcopy(theirs).double()
    x = torch.randn(20, B, 16).to(dtype)
    expected = tensors(exact(x.double()))
    errors = [
        max((a.double() - b).abs().max() for a, b in zip(found, expected, strict=True))
        for found in (tensors(ours(x)), tensors(theirs(x)))
    ]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("state", [None, torch.float, torch.bfloat16], ids=str)
def test_autocast_gives_the_dtypes_of_torchs(state):
    hx = None if state is None else states(1, dtype=state)
    x, layers = torch.randn(L, B, F), pair("LSTM", F, H, proj_size=P)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = ([t.dtype for t in tensors(layer(x, hx))] for layer in layers)
    assert ours == theirs


def test_a_stream_does_not_multiply_weights_and_a_graph_has_no_steps(monkeypatch):
    """What is quicker on a CPU; a graph would have as many steps as it was made with."""
    calls = []
    by_steps = projection._by_steps
    monkeypatch.setattr(
        projection, "_by_steps", lambda *args: calls.append(len(args[0])) or by_steps(*args)
    )
    streamed = lltm_jit.LSTM(64, 256, proj_size=64)
    small = lltm_jit.LSTM(F, 16, proj_size=8)
    with torch.no_grad():
        streamed(torch.zeros(1, 1, 64))
        streamed(torch.zeros(100, 1, 64))
        small(torch.zeros(50, B, F))
        assert calls == [1]
        torch.compile(streamed, backend="eager", fullgraph=True)(torch.zeros(1, 1, 64))
        torch.jit.trace(streamed, torch.zeros(1, 1, 64), check_trace=False)
    assert calls == [1]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("batch", [0, B])
def test_copies_empty_batches_and_the_meta_device(batch):
    layer = lltm_jit.LSTM(F, H, 2, bidirectional=True, proj_size=P, dtype=torch.double)
    x, hx = torch.randn(L, batch, F, dtype=torch.double), [s[:, :batch] for s in states(4)]
    expected = tensors(layer(x, hx))
    torch.testing.assert_close(tensors(copy.deepcopy(layer)(x, hx)), expected)
    found = tensors(layer.to("meta")(x.to("meta"), [s.to("meta") for s in hx]))
    assert [t.shape for t in found] == [t.shape for t in expected]


def test_vmap_over_states_and_per_sample_gradients():
    layer = lltm_jit.LSTM(F, H, proj_size=P, dtype=torch.double)
    x, (h, c) = torch.randn(L, B, F, dtype=torch.double), states(1)

    def final(h):
        return layer(x, (h, c))[1][0]

    many = torch.stack([h, 2 * h])
    torch.testing.assert_close(torch.func.vmap(final)(many), torch.stack([*map(final, many)]))
    parameters = dict(layer.named_parameters())

    def loss(parameters, row):
        return torch.func.functional_call(layer, parameters, (row,))[0].square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 1))(parameters, x)
    total = torch.func.grad(loss)(parameters, x)
    torch.testing.assert_close({name: t.sum(0) for name, t in found.items()}, total)


def test_exported_programs_take_other_batch_sizes():
    layer = lltm_jit.LSTM(F, H, bidirectional=True, proj_size=P, dtype=torch.double)
    batch = {1: torch.export.Dim("batch")}
    x, hx = torch.randn(L, B, F, dtype=torch.double), states(2)
    shapes = {"input": batch, "hx": (batch, batch)}
    program = torch.export.export(layer, (x, hx), dynamic_shapes=shapes)
    plain = program.run_decompositions(lltm_jit.decompositions())
    assert "lltm_jit" not in str(plain.graph)
    args = (x[:, :3], tuple(s[:, :3] for s in hx))
    torch.testing.assert_close(tensors(plain.module()(*args)), tensors(layer(*args)))


def test_what_has_no_projection_refuses_one():
    for kind in (lltm_jit.GRU, lltm_jit.RNN, lltm_jit.LLTM):
        said = refusal(ValueError, kind, F, H, proj_size=P)
        expected = "(): expected proj_size to be 0, except for an LSTM, but got 3"
        assert said == kind.__name__ + expected


@pytest.mark.parametrize(("sizes", "steps"), [((H, P), L), ((256, 64), 1)])
def test_errors_name_a_state_of_the_wrong_size_or_dtype(sizes, steps):
    layer = lltm_jit.LSTM(F, sizes[0], proj_size=sizes[1])
    x, c, h = torch.zeros(steps, 1, F), *(torch.zeros(1, 1, size) for size in sizes)
    with pytest.raises(RuntimeError, match=r"^LSTM\(\): expected h_0 to have shape .* but got .*"):
        layer(x, (c, c))
    for name, hx in {"h_0": (h.double(), c), "c_0": (h, c.double())}.items():
        with pytest.raises(RuntimeError, match=rf"^LSTM\(\): expected {name} to have the dtype"):
            layer(x, hx)
