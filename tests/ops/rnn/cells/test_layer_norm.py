"""LayerNormLSTM, LayerNormGRU, and norms in cells of one's own, against loops in PyTorch."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from op_testing import DTYPES, needs_gpu
from sequence_testing import tensors
from torch import Tensor, nn
from torch.library import opcheck

import lltm_jit
from lltm_jit import native
from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer

LAYERS = {
    "LSTM": lltm_jit.LayerNormLSTM,
    "carried": lambda *args, **named: lltm_jit.LayerNormLSTM(*args, carried=True, **named),
    "GRU": lltm_jit.LayerNormGRU,
}


def made(kind: str, *sizes: int, dtype=torch.double, device="cpu", **named) -> RecurrentLayer:
    """A layer whose norms are not what they begin as."""
    layer = LAYERS[kind](*sizes, **named)
    for name, parameter in layer.named_parameters():
        if name.startswith(("norm", "parameters")):
            nn.init.normal_(parameter, 0.6, 0.3)
    return layer.to(device, dtype)


def norm(numbers: Tensor, epsilon: float) -> Tensor:
    return F.layer_norm(numbers, numbers.shape[-1:], eps=epsilon)


def step(layer: RecurrentLayer, suffix: str, x: Tensor, states: list[Tensor]) -> list[Tensor]:
    def own(kind: str) -> Tensor:
        return getattr(layer, f"{kind}_{suffix}")

    p, h = own("parameters"), states[0]
    of_x, of_h = x @ own("weight_ih").T, h @ own("weight_hh").T
    if isinstance(layer, lltm_jit.LayerNormGRU):
        r, n, z = (p[:3].flatten() * norm(of_x + of_h, 1e-3) + p[3:].flatten()).chunk(3, 1)
        return [torch.lerp(h, torch.tanh(r.sigmoid() * n), (z - 1).sigmoid())]
    gates = own("norm_ih") * norm(of_x, 1e-5) + p[:4].flatten() * norm(of_h, 1e-5)
    if layer.bias:
        gates = gates + own("bias_ih")
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    normalised = p[4] * norm(c, 1e-5) + p[5]
    return [o.sigmoid() * normalised.tanh(), normalised if layer.carried else c]


def plain(layer, x: Tensor, hx=None, lengths=None, reset=None) -> tuple[Tensor, list[Tensor]]:
    """The layer over (L, B, I) as a loop."""
    ends: list[list[Tensor]] = []
    steps, rows = x.shape[:2]
    for k in range(layer.num_layers):
        outputs = []
        for suffix in [f"l{k}", f"l{k}_reverse"][: 1 + layer.bidirectional]:
            zeros = x.new_zeros(rows, layer.hidden_size)
            states = [zeros] * layer.cell.states if hx is None else [t[len(ends)] for t in hx]
            reverse, found = suffix.endswith("_reverse"), []
            for t in reversed(range(steps)) if reverse else range(steps):
                inside = torch.ones(rows, 1, dtype=torch.bool, device=x.device)
                if lengths is not None:
                    inside = (torch.tensor(lengths, device=x.device) > t).unsqueeze(1)
                edge = t + 1 if reverse else t
                if reset is not None and edge < steps:
                    marks = reset[edge].unsqueeze(1) & inside
                    states = [s.masked_fill(marks, 0) for s in states]
                new = step(layer, suffix, x[t], states)
                states = [n.where(inside, s) for n, s in zip(new, states, strict=True)]
                found.append(new[0].masked_fill(~inside, 0))
            outputs.append(torch.stack(found[::-1] if reverse else found))
            ends.append(states)
        x = torch.cat(outputs, 2)
    return x, [torch.stack(each) for each in zip(*ends, strict=True)]


def gradients(results: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sum((r.double() * r.double().sin()).sum() for r in results), inputs)


SIZES = [(1, 1, 3), (3, 2, 8)]
# A block of one warp and of several, of aligned units and others.
OF_BLOCKS = [(4, 3, 31), (3, 2, 36), (3, 2, 260), (2, 2, 1023), (2, 1, 640), (2, 1, 2052)]
PLACES = [("cpu", size) for size in SIZES] + [
    pytest.param("cuda", size, marks=needs_gpu) for size in OF_BLOCKS
]


@pytest.mark.parametrize(("device", "size"), PLACES, ids=str)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_values_and_gradients(kind, given, size, device):
    steps, rows, units = size
    layer = made(kind, 5, units, device=device)
    x = torch.randn(steps, rows, 5, dtype=torch.double, device=device, requires_grad=True)
    hx = None
    if given:
        hx = [torch.randn_like(x[:1, :, :1].expand(1, rows, units)) for _ in "hc"]
        hx = [t.requires_grad_() for t in hx[: layer.cell.states]]
    state = hx if hx is None or len(hx) == 1 else tuple(hx)
    actual = tensors(layer(x, state[0] if isinstance(state, list) else state))
    expected = tensors(plain(layer, x, hx))
    inputs = [x, *layer.parameters(), *(hx or [])]
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


@pytest.mark.parametrize("kind", LAYERS)
def test_lengths_resets_and_directions(kind, device):
    layer = made(kind, 5, 12, 2, device=device, bidirectional=True, bias=False)
    x = torch.randn(6, 3, 5, dtype=torch.double, device=device, requires_grad=True)
    lengths, reset = [6, 1, 4], torch.rand(6, 3, device=device) < 0.3
    actual = tensors(layer(x, lengths=lengths, reset=reset))
    expected = tensors(plain(layer, x, lengths=lengths, reset=reset))
    inputs = [x, *layer.parameters()]
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


@needs_gpu
@pytest.mark.parametrize("kind", LAYERS)
def test_parameters_at_any_address(kind):
    """More units than a block has threads need several at once, which an odd address forbids."""
    layer = made(kind, 5, 1028, device="cuda").float()
    x = torch.randn(2, 2, 5, device="cuda")
    expected = layer(x)[0]
    for name, parameter in [*layer.named_parameters()]:
        if parameter.dim() < 3 and "weight" not in name:
            odd = parameter.new_empty(parameter.numel() + 1)[1:].view_as(parameter)
            setattr(layer, name, torch.nn.Parameter(odd.copy_(parameter.detach())))
    torch.testing.assert_close(layer(x)[0], expected)


ANY, BY_STEPS, ONE_LAUNCH = range(3)  # PlanKind in kernels/rnn/sequence/plan/plan.h


@contextmanager
def planned(plan: int | None) -> Iterator[None]:
    """Plans of this kind alone, on a GPU."""
    if plan is None:
        yield
        return
    native.rnn.plan_sequences(plan)
    try:
        yield
    finally:
        native.rnn.plan_sequences(ANY)


# On a GPU: step by step; and in clusters of few and many rows, where rows, and the last units of a
# group, may be missing. Each of these compiles three kernels, so one case is quick.
OF_STEPS = [(3, 64), (17, 201), (5, 512)]
OF_CLUSTERS = [(3, 64), (2, 20), (3, 200), (61, 512), (40, 136), (4, 260)]
QUICK = ("carried", torch.half, (61, 512))
KINDS = [*itertools.product(LAYERS, DTYPES[:3])]
CASES = [(*of, "cpu", (3, 64), None) for of in KINDS]
CASES += [
    pytest.param(*of, "cuda", size, BY_STEPS, marks=needs_gpu) for of in KINDS for size in OF_STEPS
]
CASES += [
    pytest.param(
        *(*of, "cuda", size, ANY),
        marks=[needs_gpu] if (*of, size) == QUICK else [needs_gpu, pytest.mark.slow],
    )
    for of in KINDS
    for size in OF_CLUSTERS
]


@pytest.mark.parametrize(("kind", "dtype", "device", "size", "plan"), CASES, ids=str)
def test_other_dtypes_and_plans(kind, dtype, device, size, plan):
    rows, units = size
    layer = made(kind, 16, units, dtype=dtype, device=device)
    x = torch.randn(5, rows, 16, device=device).to(dtype)
    reset = torch.rand(5, rows, device=device) < 0.2 if units % 3 else None
    wide = copy.deepcopy(layer).double()
    expected = tensors(plain(wide, x.double(), reset=reset))
    with planned(plan):
        with torch.no_grad():
            alone = layer(x, reset=reset)[0]
        actual = tensors(layer(x, reset=reset))
        found = gradients(actual, [*layer.parameters()])
    right = gradients(expected, [*wide.parameters()])
    torch.testing.assert_close(alone, actual[0], rtol=1e-2, atol=1e-2)
    error = 32 * torch.finfo(dtype).eps if dtype != torch.float else 1e-2  # a GPU may take TF32
    for ours, theirs in zip((*actual, *found), (*expected, *right), strict=True):
        assert ours.dtype == dtype
        most = theirs.abs().max().item()
        torch.testing.assert_close(ours.double(), theirs, rtol=error, atol=error * most)


RESETS = [
    pytest.param(kind, resets, marks=[] if quick else [pytest.mark.slow])
    for kind in LAYERS
    for resets in ("lengths", "zeros", "given")
    for quick in [kind == "LSTM" or (kind == "GRU" and resets != "given")]
]


@needs_gpu
@pytest.mark.parametrize(("kind", "resets"), RESETS)
def test_clusters_compute_what_steps_do(kind, resets, monkeypatch):
    """Directions, given states, states of all steps, and the gradients of each."""
    monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee")
    layer = made(kind, 8, 72, dtype=torch.float, device="cuda", bidirectional=True)
    x = torch.randn(7, 3, 8, device="cuda", requires_grad=True)
    states = [torch.randn(2, 3, 72, device="cuda", requires_grad=True) for _ in range(4)]
    hx, to = (tuple(s) if layer.cell.states > 1 else s[0] for s in (states[:2], states[2:]))
    named: dict[str, Any] = {"return_states": True}
    if resets == "lengths":
        named["lengths"] = [7, 1, 4]
    else:
        named["reset"] = torch.rand(7, 3, device="cuda") < 0.3
    if resets == "given":
        named["reset_to"] = to

    def found(plan: int) -> list[Tensor]:
        with planned(plan):
            output, last, all_states = layer(x, hx, **named)
            results = [output, *tensors((output, last))[1:], *tensors((output, all_states))[1:]]
            loss = sum((r * r.sin()).sum() for r in results)
            inputs = [x, *layer.parameters(), *states]
            grads = torch.autograd.grad(loss, inputs, allow_unused=True)
        return [*results, *(g for g in grads if g is not None)]

    for ours, theirs in zip(found(ANY), found(BY_STEPS), strict=True):
        most = theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * most)


PLANS = [("cpu", None)] + [
    pytest.param("cuda", plan, marks=needs_gpu) for plan in (BY_STEPS, ONE_LAUNCH)
]


@pytest.mark.parametrize(("device", "plan"), PLANS)
@pytest.mark.parametrize("kind", LAYERS)
def test_numbers_far_from_zero_are_normalised(kind, device, plan, monkeypatch):
    """Their variance is not a difference of large numbers."""
    monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee")
    layer = made(kind, 5, 64, dtype=torch.float, device=device)
    wide = copy.deepcopy(layer).double()
    x = torch.randn(3, 2, 5, device=device)
    with torch.no_grad():
        for each in (layer, wide):
            each.weight_hh_l0[:, 0] += 300.0
    h = torch.rand(1, 2, 64, device=device)
    state = h if kind == "GRU" else (h, torch.randn_like(h))
    given = [t.double() for t in ([h] if kind == "GRU" else state)]
    with planned(plan), torch.no_grad():
        output, _ = layer(x[:1], state)
    expected, _ = plain(wide, x[:1].double(), given)
    # One launch multiplies floats as two halves each, Note [Floats in two halves].
    error = 2e-3 if plan == ONE_LAUNCH else 2e-4
    torch.testing.assert_close(output.double(), expected, rtol=error, atol=error)


@pytest.mark.parametrize("kind", LAYERS)
def test_higher_derivatives(kind):
    layer = made(kind, 2, 3)
    x = torch.randn(3, 2, 2, dtype=torch.double, requires_grad=True)

    def function(x, learnt):
        named = {"parameters_l0": learnt}
        return tuple(tensors(torch.func.functional_call(layer, named, (x,))))

    inputs = (x, layer.parameters_l0)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("kind", LAYERS)
def test_it_is_a_layer_as_any_other(kind):
    layer = made(kind, 5, 8, dtype=torch.float, batch_first=True)
    x = torch.randn(3, 6, 5)
    output = layer(x)[0]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], output)
    again = copy.deepcopy(layer)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x)[0], output)
    with torch.autocast("cpu", torch.bfloat16):
        cast = layer(x)[0]
    torch.testing.assert_close(cast.float(), output, rtol=0.1, atol=0.1)
    layer.checkpoint = 2
    torch.testing.assert_close(layer(x)[0], output)
    assert ("carried=True" in str(layer)) == (kind == "carried")
    with pytest.raises(ValueError, match="expected num_heads to be 1, as norms are over all units"):
        LAYERS[kind](5, 8, num_heads=2)


@pytest.mark.parametrize("kind", LAYERS)
def test_norms_begin_as_torchs(kind):
    layer = LAYERS[kind](5, 8)
    p = layer.parameters_l0
    ones = 5 if kind != "GRU" else 3
    assert (p[:ones] == 1).all()
    assert (p[ones:] == 0).all()
    assert not hasattr(layer, "bias_hh_l0")
    assert hasattr(layer, "bias_ih_l0") == hasattr(layer, "norm_ih_l0") == (kind != "GRU")


def test_opcheck():
    cell = made("LSTM", 2, 3).cell.name
    double = {"dtype": torch.double, "requires_grad": True}
    gates, weight = torch.randn(4, 2, 12, **double), torch.randn(12, 3, **double)
    parameters, h = torch.randn(6, 3, **double), torch.randn(2, 3, **double)
    args = (gates, weight, None, parameters, h, None, None, False, cell)
    opcheck(torch.ops.lltm_jit.recurrent_sequence, args)
    with pytest.raises(RuntimeError, match=r"expected bias_hh to be None, as .* normalises its"):
        recurrent_sequence(cell, gates, weight, torch.randn(12, **double), parameters)


OWN = """
struct OwnCell {
  static constexpr int kGates = 1, kStates = 2;
  static constexpr bool kAddsGates = true;
  static constexpr int kNormalisedState = 0;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&h)[kGates],
                                        const T (&old)[kStates], T (&now)[kStates]) {
    now[0] = x[0] + h[0] + old[1];
    now[1] = T(0.5) * (old[1] + x[0] + h[0]);
  }
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void finish(const T& normalised, T (&now)[kStates]) {
    now[0] = tanh(normalised) + T(0.1) * now[1];
  }
};
"""


@pytest.mark.slow
def test_a_cell_of_ones_own(tmp_path_factory, device):
    """One that has a state normalised alone, and no parameters."""
    header = tmp_path_factory.mktemp("cells") / "own.h"  # kept, because others reload all cells
    header.write_text(OWN)
    cell = lltm_jit.recurrent_cell(header, "OwnCell")
    layer = cell(3, 20, dtype=torch.double, device=device)
    x = torch.randn(5, 2, 3, dtype=torch.double, device=device, requires_grad=True)
    h = c = x.new_zeros(2, 20)
    outputs = []
    for step_x in x:
        a = F.linear(step_x, layer.weight_ih_l0, layer.bias_ih_l0)
        a = a + F.linear(h, layer.weight_hh_l0, layer.bias_hh_l0)
        left, c = a + c, 0.5 * (c + a)
        h = norm(left, 1e-5).tanh() + 0.1 * c
        outputs.append(h)
    expected, output = torch.stack(outputs), layer(x)[0]
    torch.testing.assert_close(output, expected)
    inputs = [x, *layer.parameters()]
    torch.testing.assert_close(gradients([output], inputs), gradients([expected], inputs))
    cell.check()
