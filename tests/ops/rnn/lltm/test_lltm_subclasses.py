"""The LLTM cell on meta and fake tensors, subclasses and modes, and on what it refuses."""

from __future__ import annotations

import pytest
import torch
from lltm_testing import NAMES, cell_inputs
from op_testing import DEVICES, needs_gpu, refusal
from subclasses import Logged, Recorder, Wrapped
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

import lltm_jit
from lltm_jit import native
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward


@pytest.mark.parametrize("device", DEVICES)
def test_meta_device_agrees_with_the_kernels(device):
    def forward_and_backward(device):
        inputs = cell_inputs(dtype=torch.half, device=device, requires_grad=True)
        results = lltm_cell(*inputs)
        return [*results, *torch.autograd.grad(results[0].sum(), inputs)]

    for meta, real in zip(forward_and_backward("meta"), forward_and_backward(device), strict=True):
        assert (meta.shape, meta.stride(), meta.dtype) == (real.shape, real.stride(), real.dtype)
        assert meta.device.type == "meta"


WAYS = [lltm_cell, lambda *args: torch.ops.lltm_jit.lltm_cell(*args)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("way", WAYS)
def test_subclass_that_overrides_functions(way, position, device):
    inputs = list(cell_inputs(device=device, requires_grad=True))
    expected = lltm_cell(*inputs)
    inputs[position] = inputs[position].detach().as_subclass(Logged).requires_grad_()
    Logged.calls.clear()
    actual = way(*inputs)
    assert any("lltm_cell" in call for call in Logged.calls)
    assert all(type(t) is Logged for t in actual)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.as_subclass(Tensor), e, rtol=0, atol=0)
    grads = torch.autograd.grad(actual[0].sum(), inputs)
    assert all(g.abs().sum() > 0 for g in grads)


def test_subclass_that_overrides_functions_in_the_tutorial_calls():
    inputs = [t.as_subclass(Logged) for t in cell_inputs()]
    Logged.calls.clear()
    results = lltm_forward(*inputs)
    new_h, new_cell, *saved = results
    lltm_backward(new_h, new_cell, new_cell, *saved, inputs[1])
    assert all(type(t) is Logged for t in results)
    assert ["lltm_forward" in call for call in Logged.calls].count(True) == 1
    assert ["lltm_backward" in call for call in Logged.calls].count(True) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_mode_that_overrides_functions(device):
    inputs = cell_inputs(device=device)
    cell = lltm_jit.LLTMCell(5, 7, device=device, dtype=torch.double)
    with Recorder() as recorder:
        actual = lltm_cell(*inputs)
        cell(inputs[0])
    assert [call for call in recorder.calls if "lltm" in call] == ["lltm_jit.lltm_cell"] * 2
    torch.testing.assert_close(actual, lltm_cell(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("way", [*WAYS, lambda *args: native.rnn.lltm_cell(*args)])
def test_subclass_that_overrides_operators(way, position, device):
    """Every way reaches __torch_dispatch__, which sees the operators whole."""
    inputs = list(cell_inputs(device=device, requires_grad=True))
    expected = lltm_cell(*inputs)
    expected_grads = torch.autograd.grad(expected[0].sum() + expected[1].sum(), inputs)
    inputs[position] = Wrapped(inputs[position].detach()).requires_grad_()
    Wrapped.calls.clear()
    actual = way(*inputs)
    assert all(type(t) is Wrapped for t in actual)
    grads = torch.autograd.grad(actual[0].sum() + actual[1].sum(), inputs)
    ours = [call for call in Wrapped.calls if "lltm" in call]
    assert ours == ["lltm_jit.lltm_cell_forward.default", "lltm_jit.lltm_cell_backward.default"]
    unwrapped = tree_map_only(Wrapped, lambda t: t.inner, [*actual, *grads])
    torch.testing.assert_close(unwrapped, [*expected, *expected_grads], rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_fake_tensors(device):
    with FakeTensorMode():
        fake = cell_inputs(dtype=torch.half, device=device, requires_grad=True)
        results = lltm_cell(*fake)
        grads = torch.autograd.grad(results[0].sum() + results[1].sum(), fake)
        assert all(isinstance(t, FakeTensor) for t in (*results, *grads))
        assert [g.shape for g in grads] == [t.shape for t in fake]
        assert {(t.dtype, t.device.type) for t in (*results, *grads)} == {(torch.half, device)}
        with pytest.raises(RuntimeError, match=r"old_cell to have shape .* but got \[3, 8\]"):
            lltm_cell(*fake[:4], torch.empty(3, 8, dtype=torch.half, device=device))


def test_lazy_negation_and_zeros():
    """Views whose sign is a flag, and tensors of zeros without memory, are read as they are."""
    input, *others = cell_inputs()
    negative = torch.complex(input, input).conj().imag
    assert negative.is_neg()
    zeros = torch._efficientzerotensor(3, 5, dtype=torch.double)
    torch.testing.assert_close(lltm_cell(negative, *others), lltm_cell(-input, *others))
    torch.testing.assert_close(lltm_cell(zeros, *others), lltm_cell(0 * input, *others))


LAYOUTS_REFUSED = {
    "Sparse": Tensor.to_sparse,
    "SparseCsr": lambda t: t[None].to_sparse_csr() if t.dim() == 1 else t.to_sparse_csr(),
    "Mkldnn": lambda t: t.float().to_mkldnn(),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS_REFUSED)
def test_only_dense_tensors(layout, name, requires_grad):
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float), strict=True))
    inputs[name] = LAYOUTS_REFUSED[layout](inputs[name])
    for function in (
        lltm_cell,
        torch.ops.lltm_jit.lltm_cell_aten,
        torch.ops.lltm_jit.lltm_cell_check,
    ):
        given = {k: v.requires_grad_(requires_grad) for k, v in inputs.items()}
        expected = f"lltm_cell(): expected {name} to be a dense tensor, but got layout {layout}"
        assert refusal(RuntimeError, function, **given) == expected


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_only_dense_tensors_on_a_gpu(name):
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float, device="cuda"), strict=True))
    inputs[name] = inputs[name].to_sparse()
    with pytest.raises(RuntimeError, match=f"expected {name} to be a dense tensor, but got"):
        lltm_cell(**inputs)


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("name", NAMES)
def test_no_quantised_tensors(name):
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float), strict=True))
    inputs[name] = torch.quantize_per_tensor(inputs[name], 0.1, 0, torch.qint8)
    with pytest.raises(RuntimeError, match=rf"expected {name} to have .* got QInt8"):
        lltm_cell(**inputs)


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("name", NAMES)
def test_no_nested_tensors(name, layout, device):
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float, device=device), strict=True))
    rows = [torch.zeros(2, 5, device=device), torch.zeros(3, 5, device=device)]
    inputs[name] = torch.nested.nested_tensor(rows, layout=layout)
    with pytest.raises(NotImplementedError, match=r"lltm_jit(::|[.])lltm_cell"):  # torch's words
        lltm_cell(**inputs)
