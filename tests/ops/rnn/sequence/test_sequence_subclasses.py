"""Whole sequences on meta and fake tensors, subclasses and modes."""

from __future__ import annotations

import pytest
import torch
from sequence_testing import Inputs, inputs_of
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


@pytest.mark.parametrize("subclass", [lambda t: t.as_subclass(Logged), Wrapped])
def test_a_subclass_as_the_control(subclass):
    """test_every_tool.py has those of the other arguments."""
    given = inputs_of("lstm", control=True)
    results = recurrent_sequence("lstm", *given[:6], subclass(given.control))
    assert {type(result) for result in results} <= {Logged, Wrapped}
    found = tree_map_only(Wrapped, lambda t: t.inner, list(results))
    found = [tensor.as_subclass(Tensor) for tensor in found]
    torch.testing.assert_close(found, [*recurrent_sequence("lstm", *given)], rtol=0, atol=0)


def test_mode_that_overrides_functions(device):
    layer = lltm_jit.LSTM(5, 7, 2, device=device)
    x = torch.randn(4, 3, 5, device=device)
    with Recorder() as recorder:
        output, _ = layer(x)
    calls = [call for call in recorder.calls if "recurrent" in call]
    assert calls == ["lltm_jit.recurrent_sequence"] * 2
    error = 0 if device == "cpu" else 1e-6  # a GPU's products of padded rows may differ
    torch.testing.assert_close(output, layer(x)[0], rtol=0, atol=error)
