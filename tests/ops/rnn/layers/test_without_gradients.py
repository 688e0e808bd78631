"""A layer without gradients, which on a CPU multiplies its input a few steps at a time."""

import resource
import sys

import pytest
import torch
from layer_testing import LAYERS, as_list, tensors
from op_testing import needs_gpu
from subclasses import Logged
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import lltm_jit

# Features, hidden units, rows, steps: the last chunk of steps is shorter, or a step has several
# blocks of rows; a product has one block of depth, or several.
SIZES = [(1, 1, 1, 1), (8, 33, 1, 70), (300, 20, 13, 12), (513, 600, 5, 3), (8, 64, 130, 2)]


@pytest.mark.thinned
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_results_are_those_with_gradients(kind, size, dtype):
    """To the last bit; in 16 bits, where the gates are then rounded, nearly."""
    features, hidden, rows, steps = size
    layer = LAYERS[kind](features, hidden, bidirectional=True, batch_first=True).to(dtype)
    x, wide = torch.randn(rows, steps, features), torch.zeros(rows, steps, features + 3)
    wide[..., :-3] = x
    lengths = torch.randint(0, steps + 1, (rows,))
    reset = torch.rand(rows, steps) < 0.3
    for given in (x.to(dtype), wide.to(dtype)[..., :-3]):
        expected = tensors(layer(given, lengths=lengths, reset=reset))
        with torch.no_grad():
            found = tensors(layer(given, lengths=lengths, reset=reset))
        error = 16 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 0
        torch.testing.assert_close(found, expected, rtol=0, atol=error)


@pytest.mark.parametrize("first", [False, True], ids=["steps", "batch"])
@pytest.mark.parametrize("count", [1, 2])
def test_one_step(kind, count, first):
    layer = LAYERS[kind](3, 5, count, batch_first=first)
    x, state = torch.randn((2, 1, 3) if first else (1, 2, 3)), None
    for _ in range(2):
        (expected, _), with_gradients = and_calls(layer, x, state)
        with torch.no_grad():
            (output, state), calls = and_calls(layer, x, state)
        torch.testing.assert_close(output, expected)
        for tensor in as_list(state):
            tensor.detach_()
        assert kind == "SLSTM" or max(calls, with_gradients) <= 15 + 10 * count


def and_calls(function, *args):
    """What it gives the second time, and how many functions of Python that calls."""
    calls: list[str] = []
    function(*args)
    sys.setprofile(lambda _, event, __: calls.append(event))
    result = function(*args)
    sys.setprofile(None)
    return result, calls.count("call")


# Clusters, padded ones, many rows, step by step.
@pytest.mark.parametrize(
    ("device", "hidden", "rows"),
    [
        ("cpu", 20, 3),
        *(
            pytest.param("cuda", *size, marks=needs_gpu)
            for size in ((64, 3), (30, 3), (1072, 70), (2200, 3))
        ),
    ],
)
def test_last_cells_are_rounded_once(device, hidden, rows):
    layer = lltm_jit.LSTM(8, hidden, device=device, dtype=torch.half)
    x = torch.randn(2, rows, 8, device=device, dtype=torch.half)
    zero = torch.zeros(1, rows, hidden, device=device, dtype=torch.half)
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            _, (h, c) = layer(x)
            _, (same_h, exact) = layer(x, (zero, zero.float()))
        assert exact.dtype == torch.float
        assert torch.equal(c, exact.half())
        assert torch.equal(h, same_h)


def test_states_of_several_dtypes_are_those_with_gradients():
    layer = lltm_jit.SLSTM(8, 20, dtype=torch.half)
    x, h = torch.randn(2, 3, 8, dtype=torch.half), torch.zeros(1, 3, 20, dtype=torch.half)
    state = (h, h.float(), h, h)
    with torch.no_grad():
        found = tensors(layer(x, state))
    assert [t.dtype for t in found] == [t.dtype for t in tensors(layer(x, state))]


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names = [*getattr(self, "names", []), str(function)]
        return function(*args, **kwargs or {})


@torch.no_grad()
def test_what_looks_at_operators_sees_them():
    layer, x = lltm_jit.LSTM(3, 4), torch.randn(5, 2, 3)
    with Seen() as mode:
        layer(x)
    traced = make_fx(lambda x: layer(x)[0])(x).code

    def run(x: Tensor) -> Tensor:
        return layer(x)[0]

    mapped = torch.vmap(run)(torch.stack([x, 2 * x]))
    torch.testing.assert_close(mapped, torch.stack([run(x), run(2 * x)]))
    assert "lltm_jit.input_gates.default" in mode.names
    assert "lltm_jit.recurrent_sequence.default" in mode.names
    assert "lltm_jit.recurrent_sequence.default" in traced
    Logged.calls.clear()
    layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.as_subclass(Logged))
    layer(x)
    assert any("recurrent_sequence" in name for name in Logged.calls)


def test_a_call_of_one_step_takes_no_new_pages():
    """The weights are packed where those of the call before were."""
    layer, x = lltm_jit.LSTM(256, 256), torch.randn(1, 1, 256)
    faults = []
    with torch.no_grad():
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            layer(x)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    pages = 2 * layer.weight_hh_l0.nbytes / resource.getpagesize()
    assert min(faults) < pages / 8
