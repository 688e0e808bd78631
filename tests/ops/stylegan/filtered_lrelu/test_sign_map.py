"""filtered_lrelu: the signs and clamps that its backward pass reads."""

import pytest
import torch
from flr_testing import make_inputs
from subclasses import Dispatched
from torch.func import vmap

from lltm_jit.ops.filtered_lrelu import filtered_lrelu


@pytest.mark.parametrize("padding", [0, [5, 4, 3, 6], [64, 0, 17, 0], [-3, -2, -1, -5]])
def test_signs(padding, device):
    """Without filters the gradient is the derivative of the activation at each sample."""
    x = torch.randn(2, 3, 37, 70, device=device, requires_grad=True)
    y = filtered_lrelu(x, padding=padding, gain=1, slope=0.25, clamp=0.5)
    (grad,) = torch.autograd.grad(y.sum(), x)
    left, right, top, bottom = [padding] * 4 if padding == 0 else padding
    v = torch.where(x < 0, 0.25 * x, x)
    expected = torch.where(v.abs() > 0.5, 0.0, torch.where(x < 0, 0.25, 1.0))
    for dim, first, last in ((2, top, bottom), (3, left, right)):  # what is cropped has no gradient
        index = torch.arange(x.shape[dim], device=device)
        inside = (index >= -first) & (index < x.shape[dim] + last)
        expected = expected * (inside[:, None] if dim == 2 else inside)
    assert torch.equal(grad, expected)


def sign_map(negative: torch.Tensor, clamped: torch.Tensor, phase: list[int]) -> torch.Tensor:
    """The map of Note [The sign map], in kernels/stylegan/filtered_lrelu/sign_map.h."""
    planes, height, width = negative.shape
    tile_rows, tile_columns = (
        -(-n // size) for n, size in ((height + phase[0], 16), (width + phase[1], 64))
    )
    words = torch.zeros(planes, 65 * tile_rows * tile_columns, dtype=torch.long)
    for plane, i, j in torch.cartesian_prod(*map(torch.arange, negative.shape)).tolist():
        row, column = i + phase[0], j + phase[1]
        tile = row // 16 * tile_columns + column // 64
        word = tile * 32 + row % 8 * 4 + column % 8 // 2
        bit = column % 2 * 16 + row // 8 % 2 * 8 + 7 - column // 8 % 8
        words[plane, word] |= int(negative[plane, i, j]) << bit
        if clamped[plane, i, j]:
            words[plane, word + 32 * tile_rows * tile_columns] |= 1 << bit
            words[plane, tile + 64 * tile_rows * tile_columns] = 1
    return words.to(torch.int)


@pytest.mark.parametrize("phase", [[0, 0], [5, 9], [15, 2]])
def test_the_sign_map_as_it_is_documented(phase, device):
    """A larger plane around the map reads zeros, at the offset; kernels and the formula do."""
    negative, clamped = torch.rand(2, 2, 19, 70) < 0.3
    signs = sign_map(negative, clamped, phase)[None].to(device)
    expected = torch.where(clamped, 0.0, torch.where(negative, 0.25, 1.0)).double()
    expected = torch.nn.functional.pad(expected, [2, 3, 4, 1])[None].to(device)
    around = ([0, 0, 0, 0], [19, 70], [-4, -2], phase, 1.0, 0.25, False, True)

    def read(x: torch.Tensor, signs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.lltm_jit.filtered_lrelu_linear(x, signs, None, None, 1, 1, *around)

    x = torch.ones_like(expected)
    for y, sums in (read(x, signs), [t[0] for t in vmap(read)(x[None], signs[None])]):
        assert torch.equal(y, expected)
        torch.testing.assert_close(sums, expected.sum((0, 2, 3)))


def test_no_signs_where_nobody_needs_gradients():
    x, b = make_inputs((1, 2, 8, 8))
    with Dispatched() as dispatched:
        filtered_lrelu(x, None, None, b)
        filtered_lrelu(x.requires_grad_(), None, None, b)
        with torch.no_grad():
            filtered_lrelu(x, None, None, b)
    plain, forward = "lltm_jit::filtered_lrelu", "lltm_jit::filtered_lrelu_forward"
    ours = [name for name in dispatched.names if name.startswith("lltm_jit")]
    assert ours == [plain, forward, plain]
