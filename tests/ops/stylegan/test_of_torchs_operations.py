"""fma, grid_sample and conv2d_resample, which consist of torch's operations, in every dtype."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from op_testing import assert_accurate, captured_in_graph, needs_gpu, refusal, results_and_gradients
from torch import Tensor
from torch.func import grad, vmap

from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.fma import fma
from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.grid_sample_gradfix import grid_sample as grid_sample_of_that_name
from lltm_jit.ops.upfirdn2d import setup_filter, upfirdn2d

FACTORS = [((), (), ()), ((0,), (1,), (0,)), ((33,), (33,), (33,)), ((127, 3), (3,), (127, 1))]
BROADCAST = [
    ((2, 3, 4, 5), (2, 3, 1, 1), (2, 1, 4, 5)),
    ((5,), (3, 1), (2, 1, 1)),
    ((1, 4), (), (3, 1)),
]


def factors(shapes, dtype=torch.double, device="cpu"):
    return [torch.randn(s).to(device, dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("shapes", [*FACTORS, *BROADCAST], ids=str)
def test_fma_matches_float64(shapes, dtype, device):
    inputs = factors(shapes, dtype, device)
    a, b, c = [tensor.detach().double().requires_grad_() for tensor in inputs]
    actual, exact = fma(*inputs), a * b + c
    baseline = inputs[0] * inputs[1] + inputs[2]
    sizes = [tensor.detach().abs().requires_grad_() for tensor in (a, b, c)]
    parts = sizes[0] * sizes[1] + sizes[2]
    assert_accurate(actual, exact.detach(), baseline.detach(), parts=parts.detach())
    weight = torch.randn_like(exact)
    gradients = torch.autograd.grad(actual, inputs, weight.to(dtype))
    exact_ones = torch.autograd.grad(exact, [a, b, c], weight.to(dtype).double())
    plain_ones = torch.autograd.grad(baseline, inputs, weight.to(dtype))
    of_parts = torch.autograd.grad(parts, sizes, weight.to(dtype).double().abs())
    # torch rounds each product to the type; assert_accurate() adds float's roundings for parts.
    roundings = torch.finfo(dtype).eps / torch.finfo(torch.promote_types(dtype, torch.float)).eps
    for *of_one, sizes_of_one in zip(gradients, exact_ones, plain_ones, of_parts, strict=True):
        assert_accurate(*of_one, parts=roundings * sizes_of_one)


def test_fma_rounds_16_bit_results_once(device):
    a = torch.tensor([1.0009765625], dtype=torch.half, device=device)  # its square is no half
    assert fma(a, a, -a).item() == (a.double() ** 2 - a.double()).half().item()


def test_fma_keeps_its_inputs_and_no_product():
    inputs = factors(BROADCAST[0])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        fma(*inputs)
    assert {tensor.data_ptr() for tensor in kept} == {tensor.data_ptr() for tensor in inputs[:2]}


def test_fma_of_nan_and_infinity(device):
    inf = torch.tensor(torch.inf, device=device)
    assert fma(inf, inf, inf).item() == torch.inf
    assert fma(inf, inf * 0, inf).isnan()


def test_shapes_that_do_not_broadcast():
    message = refusal(RuntimeError, fma, torch.zeros(3, 4), torch.zeros(4), torch.zeros(2, 1))
    assert "(2) must match the size of tensor b (3)" in message


SHAPES = [
    ((1, 1, 1, 1), (1, 1)),
    ((2, 3, 4, 5), (3, 2)),
    ((0, 3, 4, 5), (3, 2)),
    ((2, 3, 33, 31), (0, 5)),
    ((2, 5, 31, 129), (33, 17)),
]


def draw(shape, points, dtype, device):
    """Images, and points in them and around them."""
    images = torch.randn(shape).to(device, dtype)
    grid = (2.8 * torch.rand(shape[0], *points, 2) - 1.4).to(device, dtype)
    return images.requires_grad_(), grid.requires_grad_()


def plain(images, grid):
    return F.grid_sample(images, grid, align_corners=False)


@pytest.mark.parametrize(("shape", "points"), SHAPES, ids=str)
def test_samples_match_float64(shape, points, dtype, device):
    inputs = draw(shape, points, dtype, device)
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    actual, exact = grid_sample(*inputs), plain(*doubles)
    # In 16 bits torch computes even the points so; rounding the result of float is the floor.
    floats = [tensor.detach().to(torch.promote_types(dtype, torch.float)) for tensor in inputs]
    floats = [tensor.requires_grad_() for tensor in floats]
    baseline = plain(*floats)
    assert_accurate(actual, exact.detach(), baseline.detach().to(dtype))
    weight = torch.randn_like(exact).to(dtype)
    gradients = torch.autograd.grad(actual, inputs, weight)
    exact_ones = torch.autograd.grad(exact, doubles, weight.double())
    plain_ones = torch.autograd.grad(baseline, floats, weight.to(baseline.dtype))
    for gradient, right, float_one in zip(gradients, exact_ones, plain_ones, strict=True):
        assert_accurate(gradient, right, float_one.to(dtype), sums=True)


def test_points_may_be_of_another_dtype(device):
    images, grid = draw((2, 3, 4, 5), (3, 2), torch.float, device)
    result = grid_sample(images.half(), grid)
    assert result.dtype == torch.half
    torch.testing.assert_close(result, plain(images.half().float(), grid).half())
    to_grid = torch.autograd.grad(result.sum(), grid)[0]
    assert to_grid.dtype == torch.float


def test_a_penalty_of_each_sample(device):
    images, grids = draw((8, 3, 4, 5), (3, 2), torch.float, device)
    images, grids = (t.detach().unflatten(0, (4, 2)) for t in (images, grids))

    def loss(images, grid):
        return grid_sample(images, grid).square().sum()

    def penalty(images, grid):
        return sum(g.square().sum() for g in grad(loss, (0, 1))(images, grid))

    actual = vmap(grad(penalty, (0, 1)))(images, grids)
    rows = [grad(penalty, (0, 1))(*pair) for pair in zip(images, grids, strict=True)]
    torch.testing.assert_close(actual, tuple(map(torch.stack, zip(*rows, strict=True))))


def test_far_points_are_outside_and_nan_stays(device):
    images = torch.ones(1, 1, 2, 2, device=device, requires_grad=True)
    far = torch.tensor([1e30, -1e30, 1.5, -1.5], device=device).view(1, 2, 1, 2).requires_grad_()
    result = grid_sample(images, far)
    assert not result.any()
    first = torch.autograd.grad(result.sum(), (images, far), create_graph=True)
    (second,) = torch.autograd.grad(sum(t.sum() for t in first), images)
    assert not any(tensor.any() for tensor in (*first, second))
    nowhere = torch.full_like(far, torch.nan)  # torch's GPU kernel takes it for a point outside
    torch.testing.assert_close(grid_sample(images, nowhere), plain(images, nowhere), equal_nan=True)
    assert grid_sample(images * torch.nan, far * 0).isnan().all()


@needs_gpu
def test_cuda_graph_of_second_derivatives():
    inputs = draw((2, 3, 33, 31), (17, 5), torch.float, "cuda")

    def step():
        result = grid_sample(*inputs)
        first = torch.autograd.grad(result.square().sum(), inputs, create_graph=True)
        return result, *torch.autograd.grad(sum(t.square().sum() for t in first), inputs)

    torch.testing.assert_close(captured_in_graph(step), step())


def test_the_other_name_is_the_same_function():
    assert grid_sample_of_that_name is grid_sample


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
def test_a_convolution_agrees_with_its_definition(up, down, kernel, device):
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
def test_accuracy_of_convolutions(up, down, dtype, device):
    f = setup_filter([1, 3, 3, 1], device)
    for kernel in ((1, 1), (3, 3)):
        x, w = (t.to(dtype) for t in arguments(kernel, 1, device=device))
        options = (f, up, down, kernel[0] // 2)
        exact = definition(x.double(), w.double(), *options)
        actual, baseline = conv2d_resample(x, w, *options), definition(x, w, *options)
        assert_accurate(actual, exact, baseline, ulps=4, sums=True)


def test_convolutions_are_compiled():
    x, w = (t.requires_grad_() for t in arguments((3, 3), 1))
    f = setup_filter([1, 3, 3, 1])

    def function(x, w):
        return conv2d_resample(conv2d_resample(x, w, f, up=2, padding=1), w[:, :4], f, down=2)

    compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=True)
    actual, expected = (results_and_gradients(run, (x, w)) for run in (compiled, function))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
