"""Core's sums of channels on the CPU, which are the gradient of a bias."""

import pytest
import torch
from op_testing import assert_accurate, assert_threads_change_no_bit, bits, with_layout
from torch import Tensor

import lltm_jit.ops.stylegan  # noqa: F401  # its operators

# (shape, dim): inner and channels that are a multiple of a pack or not, of one part or of many.
SHAPES = [
    ((0, 3, 2, 2), 1),
    ((2, 0, 5, 5), 1),
    ((1,), 0),
    ((31,), 0),
    ((5, 33), 1),
    ((129, 1), 1),
    ((2, 8, 4, 4), 1),
    ((2, 16, 7, 3), 1),
    ((3, 5, 2, 127), 2),
    ((3, 64, 33, 9), 1),
    ((20000, 24), 1),
    ((2, 3, 181, 211), 1),
    ((2, 3, 4, 5, 6), 1),
]
FORMATS = [torch.contiguous_format, torch.channels_last]


def make(shape, dtype, memory_format=torch.contiguous_format):
    if memory_format == torch.channels_last and len(shape) == 5:
        memory_format = torch.channels_last_3d
    elif len(shape) != 4:
        memory_format = torch.contiguous_format
    return torch.randn(shape).to(dtype).contiguous(memory_format=memory_format)


def channel_sum(x: Tensor, dim: int) -> Tensor:
    """The gradient of the bias of a linear activation whose result has the gradient x."""
    linear, wanted = (1, 0.0, 1.0, None), [False, True]
    return torch.ops.lltm_jit.bias_act_backward(x, None, None, dim, *linear, wanted)[1]


def exact_sum(x: Tensor, dim: int) -> Tensor:
    others = [d for d in range(x.dim()) if d != dim]
    return x.double().sum(others) if others else x.double()


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_channel_sum(shape, dim, dtype, memory_format):
    x = make(shape, dtype, memory_format=memory_format)
    exact, parts = exact_sum(x, dim), exact_sum(x.abs(), dim)
    assert_accurate(channel_sum(x, dim), exact, exact.to(dtype), parts=parts)


def test_other_dimensions_and_layouts(dtype):
    x = make((4, 6, 10, 14), dtype, memory_format=torch.channels_last)
    for view in (x, x.transpose(1, 3), x[:, :, 1::2], x[1:], x[:1].expand(4, -1, -1, -1)):
        for dim in range(4):
            exact = exact_sum(view, dim)
            sums, parts = channel_sum(view, dim), exact_sum(view.abs(), dim)
            assert_accurate(sums, exact, exact.to(dtype), parts=parts)


@pytest.mark.parametrize("shape", [(3000, 40), (2, 3, 120, 128), (2, 3, 181, 211)])
def test_an_offset_tensor_has_the_same_bits(shape, dtype):
    x = make(shape, dtype)
    assert bits([channel_sum(x, 1)]) == bits([channel_sum(with_layout(x, "offset"), 1)])


@pytest.mark.parametrize("memory_format", FORMATS)
def test_number_of_threads_changes_no_bit(dtype, memory_format):
    x = make((7, 37, 61, 45), dtype, memory_format)
    assert_threads_change_no_bit(lambda: [channel_sum(x, 1)])


def test_sums_are_accumulated_in_float():
    x = torch.full((5000, 3), 1.0, dtype=torch.half)
    assert channel_sum(x, 1).tolist() == [5000] * 3  # in half 2048 + 1 is 2048
    x = torch.ones(1, 3, 40, 5000, dtype=torch.bfloat16)
    assert channel_sum(x, 1).tolist() == [torch.tensor(2e5).bfloat16().item()] * 3


def test_nan_and_infinity():
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 1.0]] * 33)
    torch.testing.assert_close(channel_sum(x, 1), x.sum(0), equal_nan=True)


@pytest.mark.large
@pytest.mark.parametrize("shape", [(2**31 // 64 + 1, 64), (2, 3, 2**29)])
def test_beyond_31_bits(shape):
    total = channel_sum(torch.full(shape, 2**-16, dtype=torch.half), 1).double().sum().item()
    assert total == pytest.approx(torch.Size(shape).numel() / 2**16, rel=1e-3)
