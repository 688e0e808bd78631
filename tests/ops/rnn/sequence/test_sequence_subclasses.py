"""Whole sequences on meta and fake tensors, subclasses and modes."""

from __future__ import annotations

import pytest
import torch
from op_testing import DEVICES
from sequence_testing import CELLS, Inputs, inputs_of
from subclasses import Logged, Recorder, Wrapped
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

import lltm_jit
from lltm_jit.functional import recurrent_sequence


def forward_and_backward(cell: str, inputs: Inputs, **kwargs) -> list[Tensor]:
    given = inputs.requires_grad()
    results = recurrent_sequence(cell, *given, **kwargs)
    loss = sum(result.sum() for result in results)
    return [*results, *torch.autograd.grad(loss, given.leaves())]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_meta_and_fake_tensors_agree_with_the_kernels(cell, reverse, device):
    """Also where a half call has a float cell, and where arguments are transposed."""
    inputs = inputs_of(cell, dtype=torch.half, device=device, control=True)
    turned = inputs.gates.transpose(0, 1).contiguous().transpose(0, 1)
    inputs = inputs._replace(gates=turned)
    if inputs.c_0 is not None:
        inputs = inputs._replace(c_0=inputs.c_0.float())
    real = forward_and_backward(cell, inputs, reverse=reverse)
    on_meta = Inputs(*(t if t is None else t.to("meta") for t in inputs))
    with FakeTensorMode() as mode:
        fake_inputs = Inputs(*(t if t is None else mode.from_tensor(t) for t in inputs))
        fakes = forward_and_backward(cell, fake_inputs, reverse=reverse)
    metas = forward_and_backward(cell, on_meta, reverse=reverse)
    for meta, fake, tensor in zip(metas, fakes, real, strict=True):
        for other in (meta, fake):
            assert (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
            assert other.stride() == tensor.stride()
        assert meta.device.type == "meta"
        assert isinstance(fake, FakeTensor)
        assert fake.device == tensor.device


def test_errors_of_fake_tensors():
    with FakeTensorMode():
        gates, weight_hh, *_ = inputs_of("lstm")
        with pytest.raises(RuntimeError, match=r"h_0 to have shape .* but got \[3, 8\]"):
            recurrent_sequence("lstm", gates, weight_hh, h_0=gates.new_empty(3, 8))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("position", range(7))
def test_subclasses(position, device):
    """Each sees the operators whole, in any argument."""
    cell = "gru" if position == 2 else "lstm"
    plain = inputs_of(cell, device=device, control=True)
    expected = forward_and_backward(cell, plain)
    if plain[position] is None:
        pytest.skip("no such argument")
    for subclass, names in (
        (lambda tensor: tensor.as_subclass(Logged), ["recurrent_sequence"]),
        (Wrapped, ["recurrent_sequence_forward", "recurrent_sequence_backward"]),
    ):
        given = list(plain.requires_grad())
        leaf = subclass(plain[position])
        given[position] = leaf.requires_grad_() if leaf.is_floating_point() else leaf
        Logged.calls.clear()
        Wrapped.calls.clear()
        results = recurrent_sequence(cell, *given)
        assert all(type(result) in (Logged, Wrapped) for result in results)
        leaves = [tensor for tensor in given[:6] if tensor is not None]
        gradients = torch.autograd.grad(sum(result.sum() for result in results), leaves)
        seen = [call for call in Logged.calls + Wrapped.calls if "recurrent" in call]
        assert len(seen) == len(names)
        assert all(name in call for name, call in zip(names, seen, strict=True))
        found = tree_map_only(Wrapped, lambda t: t.inner, [*results, *gradients])
        found = [tensor.as_subclass(Tensor) for tensor in found]
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_mode_that_overrides_functions(device):
    layer = lltm_jit.LSTM(5, 7, 2, device=device)
    x = torch.randn(4, 3, 5, device=device)
    with Recorder() as recorder:
        output, _ = layer(x)
    calls = [call for call in recorder.calls if "recurrent" in call]
    assert calls == ["lltm_jit.recurrent_sequence"] * 2
    error = 0 if device == "cpu" else 1e-6  # a GPU's products of padded rows may differ
    torch.testing.assert_close(output, layer(x)[0], rtol=0, atol=error)


def test_lazy_negation_and_zeros():
    """Views whose sign is a flag, and tensors of zeros without memory, are read as they are."""
    gates, *others = inputs_of("gru")
    negative = torch.complex(gates, gates).conj().imag
    assert negative.is_neg()
    zeros = torch._efficientzerotensor(gates.shape, dtype=torch.double)
    for lazy, plain in ((negative, -gates), (zeros, 0 * gates)):
        torch.testing.assert_close(
            recurrent_sequence("gru", lazy, *others), recurrent_sequence("gru", plain, *others)
        )
