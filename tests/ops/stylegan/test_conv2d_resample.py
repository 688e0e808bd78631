"""conv2d_resample: its quicker orders against the plain definition."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from op_testing import assert_accurate, results_and_gradients
from torch import Tensor

from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.upfirdn2d import setup_filter, upfirdn2d

PADDINGS = [0, 1, [2, 1], [3, 0, -1, 2]]


def definition(
    x, w, f=None, up=1, down=1, padding=0, groups=1, flip_weight=True, flip_filter=False
) -> Tensor:
    """Enlarge, convolve, reduce; one after the other."""
    padding = [padding] * 4 if isinstance(padding, int) else padding
    sides = [padding[0], padding[0], padding[1], padding[1]] if len(padding) == 2 else [*padding]
    for axis in (0, 1):
        taps = 1 if f is None else f.shape[-1] if axis == 0 else f.shape[0]
        if up > 1:
            sides[2 * axis] += (taps + up - 1) // 2
            sides[2 * axis + 1] += (taps - up) // 2
        if down > 1:
            sides[2 * axis] += (taps - down + 1) // 2
            sides[2 * axis + 1] += (taps - down) // 2
    x = upfirdn2d(x, f if up > 1 else None, up, 1, sides, flip_filter, up**2, impl="ref")
    x = F.conv2d(x, w if flip_weight else w.flip(2, 3), groups=groups)
    return upfirdn2d(x, f, 1, down, 0, flip_filter, impl="ref") if down > 1 else x


def arguments(kernel: tuple[int, int], groups: int, **options) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 6, 9, 8, **options), torch.randn(4, 6 // groups, *kernel, **options)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 1), (5, 4)])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (4, 1)])
def test_agrees_with_the_definition(up, down, kernel, device):
    """With its first two derivatives."""
    double = {"dtype": torch.double, "device": device}
    filters = {
        "1": setup_filter([1, 2, 3, 1], device),
        "2": setup_filter(range(1, 13), device),
        "3": torch.rand(3, 5, device=device),
        "4": None,
    }
    for (name, padding), flip in itertools.product(
        zip(filters, PADDINGS, strict=True), (False, True)
    ):
        groups = 2 if flip else 1
        leaves = [t.requires_grad_() for t in arguments(kernel, groups, **double)]
        options = (filters[name], up, down, padding, groups, flip, not flip)
        found = []
        for function in (conv2d_resample, definition):
            y = function(*leaves, *options)
            slopes = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
            penalty = sum(slope.square().sum() for slope in slopes)
            found.append([y, *slopes, *torch.autograd.grad(penalty, leaves)])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_accuracy(up, down, dtype, device):
    f = setup_filter([1, 3, 3, 1], device)
    for kernel in ((1, 1), (3, 3)):
        x, w = (t.to(dtype) for t in arguments(kernel, 1, device=device))
        options = (f, up, down, kernel[0] // 2)
        exact = definition(x.double(), w.double(), *options)
        actual, baseline = conv2d_resample(x, w, *options), definition(x, w, *options)
        assert_accurate(actual, exact, baseline, ulps=4, sums=True)


def test_compile():
    x, w = (t.requires_grad_() for t in arguments((3, 3), 1))
    f = setup_filter([1, 3, 3, 1])

    def function(x, w):
        return conv2d_resample(conv2d_resample(x, w, f, up=2, padding=1), w[:, :4], f, down=2)

    compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=True)
    actual, expected = (results_and_gradients(run, (x, w)) for run in (compiled, function))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
