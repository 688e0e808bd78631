"""grid_sample: every dtype, points anywhere, and derivatives of each sample."""

import pytest
import torch
from op_testing import assert_accurate, captured_in_graph, needs_gpu
from torch.func import grad, vmap
from torch.nn import functional

from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.grid_sample_gradfix import grid_sample as grid_sample_of_that_name

SHAPES = [
    ((1, 1, 1, 1), (1, 1)),
    ((2, 3, 4, 5), (3, 2)),
    ((0, 3, 4, 5), (3, 2)),
    ((2, 3, 33, 31), (0, 5)),
]
SHAPES += [((2, 5, 31, 129), (33, 17))]


def draw(shape, points, dtype=torch.double, device="cpu", requires_grad=True):
    """Images, and points in them and around them."""
    images = torch.randn(shape).to(device, dtype)
    grid = (2.8 * torch.rand(shape[0], *points, 2) - 1.4).to(device, dtype)
    return images.requires_grad_(requires_grad), grid.requires_grad_(requires_grad)


def plain(images, grid):
    return functional.grid_sample(images, grid, align_corners=False)


@pytest.mark.parametrize(("shape", "points"), SHAPES, ids=str)
def test_matches_float64(shape, points, dtype, device):
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
    images, grids = draw((8, 3, 4, 5), (3, 2), torch.float, device, requires_grad=False)
    images, grids = images.unflatten(0, (4, 2)), grids.unflatten(0, (4, 2))

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
