"""LayerNormLSTM, LayerNormGRU, and norms in cells of one's own, against loops in PyTorch."""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from layer_testing import as_list, as_state, check_layer, layer_reference, states_of, tensors
from op_testing import DTYPES, for_each, needs_gpu
from sequence_testing import assert_within
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


def plain(layer: RecurrentLayer, x: Tensor, states=(), **named) -> list[Tensor]:
    """Output and last states of the layer as a loop."""
    gru = isinstance(layer, lltm_jit.LayerNormGRU)

    def gates_of(x: Tensor, own) -> Tensor:
        product = x @ own("weight_ih").T
        if gru:
            return product
        gates = own("norm_ih") * norm(product, 1e-5)
        return gates + own("bias_ih") if layer.bias else gates

    def step(x: Tensor, y: Tensor, p: Tensor, old: list[Tensor]) -> list[Tensor]:
        if gru:
            r, n, z = (p[:3].flatten() * norm(x + y, 1e-3) + p[3:].flatten()).chunk(3, 1)
            return [torch.lerp(old[0], torch.tanh(r.sigmoid() * n), (z - 1).sigmoid())]
        i, f, g, o = (x + p[:4].flatten() * norm(y, 1e-5)).chunk(4, 1)
        c = f.sigmoid() * old[1] + i.sigmoid() * g.tanh()
        normalised = p[4] * norm(c, 1e-5) + p[5]
        return [o.sigmoid() * normalised.tanh(), normalised if layer.carried else c]

    return tensors(layer_reference(layer, x, states, step=step, gates_of=gates_of, **named))


def gradients(results: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sum((r.double() * r.double().sin()).sum() for r in results), inputs)


SIZES = [(1, 1, 3), (3, 2, 8)]
# A block of one warp and of several, of aligned units and others.
OF_BLOCKS = [(4, 3, 31), (3, 2, 36), (3, 2, 260), (2, 2, 1023), (2, 1, 640), (2, 1, 2052)]
PLACES = [("cpu", size) for size in SIZES] + [
    pytest.param("cuda", size, marks=needs_gpu) for size in OF_BLOCKS
]


kind = for_each("kind", LAYERS)


def assert_as_plain(layer: RecurrentLayer, x: Tensor, states=(), **named) -> None:
    """Results, and the gradients of all that there is."""
    both = [
        tensors(layer(x, as_state(states) if states else None, **named)),
        plain(layer, x, states, **named),
    ]
    torch.testing.assert_close(*both)
    inputs = [x, *layer.parameters(), *states]
    torch.testing.assert_close(*(gradients(results, inputs) for results in both))


@pytest.mark.parametrize(("device", "size"), PLACES, ids=str)
@pytest.mark.parametrize("given", [False, True])
def test_values_and_gradients(kind, given, size, device):
    steps, rows, units = size
    layer, options = made(kind, 5, units, device=device), {"device": device, "requires_grad": True}
    x = torch.randn(steps, rows, 5, dtype=torch.double, **options)
    assert_as_plain(layer, x, as_list(states_of(layer, rows, **options)) if given else ())


def test_lengths_resets_and_directions(kind, device):
    layer = made(kind, 5, 12, 2, device=device, bidirectional=True, bias=False)
    x = torch.randn(6, 3, 5, dtype=torch.double, device=device, requires_grad=True)
    reset = torch.rand(6, 3, device=device) < 0.3
    assert_as_plain(layer, x, lengths=[6, 1, 4], reset=reset)


@needs_gpu
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
    expected = plain(wide, x.double(), reset=reset)
    with planned(plan):
        with torch.no_grad():
            alone = layer(x, reset=reset)[0]
        actual = tensors(layer(x, reset=reset))
        found = gradients(actual, [*layer.parameters()])
    right = gradients(expected, [*wide.parameters()])
    torch.testing.assert_close(alone, actual[0], rtol=1e-2, atol=1e-2)
    error = 32 * torch.finfo(dtype).eps if dtype != torch.float else 1e-2  # a GPU may take TF32
    assert {tensor.dtype for tensor in (*actual, *found)} == {dtype}
    assert_within([*actual, *found], [*expected, *right], error, rtol=error)


RESETS = [
    pytest.param(kind, resets, marks=[] if quick else [pytest.mark.slow])
    for kind in LAYERS
    for resets in ("lengths", "zeros", "given")
    for quick in [kind == "LSTM" or (kind == "GRU" and resets != "given")]
]


@needs_gpu
@pytest.mark.parametrize(("kind", "resets"), RESETS)
def test_clusters_compute_what_steps_do(kind, resets, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee")
    layer = made(kind, 8, 72, dtype=torch.float, device="cuda", bidirectional=True)
    x = torch.randn(7, 3, 8, device="cuda", requires_grad=True)
    options = {"dtype": torch.float, "device": "cuda", "requires_grad": True}
    hx, to = (states_of(layer, 3, **options) for _ in range(2))
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
            results = [output, *as_list(last), *as_list(all_states)]
            loss = sum((r * r.sin()).sum() for r in results)
            inputs = [x, *layer.parameters(), *as_list(hx), *as_list(to)]
            grads = torch.autograd.grad(loss, inputs, allow_unused=True)
        return [*results, *(g for g in grads if g is not None)]

    assert_within(found(ANY), found(BY_STEPS), 1e-4, rtol=1e-4)


PLANS = [("cpu", None)] + [
    pytest.param("cuda", plan, marks=needs_gpu) for plan in (BY_STEPS, ONE_LAUNCH)
]


@pytest.mark.parametrize(("device", "plan"), PLANS)
def test_numbers_far_from_zero_are_normalised(kind, device, plan, monkeypatch):
    """Their variance is not a difference of large numbers."""
    monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee")
    layer = made(kind, 5, 64, dtype=torch.float, device=device)
    wide = copy.deepcopy(layer).double()
    x = torch.randn(3, 2, 5, device=device)
    with torch.no_grad():
        for each in (layer, wide):
            each.weight_hh_l0[:, 0] += 300.0
    given = [torch.rand(1, 2, 64, device=device), torch.randn(1, 2, 64, device=device)]
    given = given[: layer.cell.states]
    with planned(plan), torch.no_grad():
        output, _ = layer(x[:1], as_state(given))
    expected, *_ = plain(wide, x[:1].double(), [t.double() for t in given])
    # One launch multiplies floats as two halves each, Note [Floats in two halves].
    error = 2e-3 if plan == ONE_LAUNCH else 2e-4
    torch.testing.assert_close(output.double(), expected, rtol=error, atol=error)


def test_higher_derivatives(kind):
    check_layer(made(kind, 2, 3), "parameters_l0")


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
    header = tmp_path_factory.mktemp("cells") / "own.h"  # kept, because others reload all cells
    header.write_text(OWN)
    cell = lltm_jit.recurrent_cell(header, "OwnCell")
    layer = cell(3, 20, dtype=torch.double, device=device)
    x = torch.randn(5, 2, 3, dtype=torch.double, device=device, requires_grad=True)

    def step(x: Tensor, y: Tensor, p: None, old: list[Tensor]) -> list[Tensor]:
        c = 0.5 * (old[1] + x + y)
        return [norm(x + y + old[1], 1e-5).tanh() + 0.1 * c, c]

    output, expected = layer(x)[0], layer_reference(layer, x, step=step)[0]
    torch.testing.assert_close(output, expected)
    inputs = [x, *layer.parameters()]
    torch.testing.assert_close(gradients([output], inputs), gradients([expected], inputs))
    cell.check()
