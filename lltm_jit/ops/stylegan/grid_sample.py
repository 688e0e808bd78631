"""grid_sample: bilinear sampling of images at given points, differentiable any number of times.

Torch's own operator stops at the first derivative. Here the result and the first derivative are
torch's (``aten::grid_sampler_2d`` and its backward), and higher ones are composed of torch
operations. With the image I and the point (x, y) in pixels, ::

    S = sum over the four pixels around the point of  I[row, column] wy[row] wx[column]

is linear in I and, between two pixels, linear in x and in y; so dS/dx and dS/dy are differences of
pixels, the mixed derivative is the difference of those, and d2S/dx2 = d2S/dy2 = 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lltm_jit._library import refuse, refuse_non_tensors
from lltm_jit.ops.stylegan._arguments import check_floats

_MODES = (0, 0, False)  # aten's numbers: bilinear, zeros outside, corners not aligned


def grid_sample(input: Tensor, grid: Tensor) -> Tensor:
    """Sample images at given points: bilinear between pixels, zero outside.

    The maths is that of :func:`torch.nn.functional.grid_sample` with ``mode="bilinear"``,
    ``padding_mode="zeros"`` and ``align_corners=False``.

    Args:
        input: images, (N, C, H, W), in half, bfloat16, float or double.
        grid: points (x, y), (N, H_out, W_out, 2), in any floating-point dtype. -1 and 1 are the
            outer edges of the first and the last pixel. For a large 16-bit image use float, in
            which neighbouring points differ.

    Returns:
        Tensor (N, C, H_out, W_out) in the dtype of `input`. 16-bit types are computed in float, and
        rounded once. It is differentiable any number of times in `input` and `grid`. On a GPU the
        gradient of `input` is summed by atomics, as in torch, so that its last bits may vary.

    Raises:
        RuntimeError: if a shape or dtype does not match.
        TypeError: if an argument is not a tensor.

    Example:
        >>> image = torch.tensor([[[[1.0, 3.0]]]])
        >>> grid_sample(image, torch.zeros(1, 1, 1, 2))  # halfway between the two pixels
        tensor([[[[2.]]]])
    """
    refuse_non_tensors(grid_sample, (input, grid))
    _check(input, grid)
    dtype = torch.promote_types(torch.promote_types(input.dtype, grid.dtype), torch.float)
    # torch's operator has no forward mode, so torch operations replace it there.
    sample = _composed if forward_ad._current_level >= 0 else _GridSample.apply
    return sample(input.to(dtype), grid.to(dtype)).to(input.dtype)


def _composed(input: Tensor, grid: Tensor) -> Tensor:
    points = _Points.of(grid, input, torch.zeros_like(grid))
    return points.summed(input, points.weights())


def _check(input: Tensor, grid: Tensor) -> None:
    for name, tensor in (("input", input), ("grid", grid)):
        check_floats("grid_sample", name, tensor)
    if input.dim() != 4:
        refuse("grid_sample", "input to have shape [N, C, H, W]", [*input.shape])
    if grid.dim() != 4 or grid.size(0) != input.size(0) or grid.size(3) != 2:
        wanted = f"grid to have shape [N, H_out, W_out, 2] with N = {input.size(0)}"
        refuse("grid_sample", wanted, [*grid.shape])


class _GridSample(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, grid: Tensor) -> Tensor:
        return torch.ops.aten.grid_sampler_2d(input, grid, *_MODES)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _GridSampleBackward.apply(grad, *ctx.saved_tensors, *ctx.needs_input_grad)


class _GridSampleBackward(torch.autograd.Function):
    """The gradients to the images and to the points; None for a gradient that nobody needs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor, input: Tensor, grid: Tensor, to_input: bool, to_grid: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        # A gradient that aten leaves out on a GPU is an undefined tensor, which vmap refuses.
        grad_input, grad_grid = torch.ops.aten.grid_sampler_2d_backward(
            grad, input, grid, *_MODES, (True, True)
        )
        return grad_input if to_input else None, grad_grid if to_grid else None

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, d_input: Tensor | None, d_grid: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """From <d_input, gradient to input> = <grad, S(d_input)>, and <d_grid, gradient to grid> =
        <grad, dS>, the derivative of S in the direction d_grid."""
        grad, input, grid = ctx.saved_tensors
        to_grad, to_input, to_grid = ctx.needs_input_grad[:3]
        found: list[Tensor | None] = [None, None, None]
        if d_input is not None:
            if to_grad:
                found[0] = _GridSample.apply(d_input, grid)
            if to_grid:
                found[2] = _GridSampleBackward.apply(grad, d_input, grid, False, True)[1]
        if d_grid is not None:
            points = _Points.of(grid, input, d_grid)
            if to_grad:
                found[0] = _sum(found[0], points.along(input))
            if to_input:
                found[1] = points.along_transposed(grad, input)
            if to_grid:
                found[2] = _sum(found[2], points.mixed(grad, input))
        return (*found, None, None)


def _sum(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one + other


class _Points(NamedTuple):
    """The four pixels around each point, and a direction to move the points in, in pixels.

    All are (N, H_out, W_out); a list has the top left, top right, bottom left and bottom right one.
    """

    indices: list[Tensor]  # row * W + column; 0 outside the image
    inside: list[Tensor]
    x: Tensor  # the distance from the left pixel, 0 to 1
    y: Tensor
    dx: Tensor
    dy: Tensor
    scale: tuple[float, float]  # pixels in a unit of x and y of the grid

    @staticmethod
    def of(grid: Tensor, input: Tensor, d_grid: Tensor) -> _Points:
        H, W = input.shape[2:]
        x = ((grid[..., 0] + 1) * W - 1) / 2
        y = ((grid[..., 1] + 1) * H - 1) / 2
        left, top = x.detach().floor(), y.detach().floor()
        indices, inside = [], []
        for row in (top, top + 1):
            for column in (left, left + 1):
                is_inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
                # Convert before multiplying: a float cannot hold every place beyond 2^24.
                inner_row, inner_column = (
                    torch.where(is_inside, place, 0).long() for place in (row, column)
                )
                indices.append(inner_row * W + inner_column)
                inside.append(is_inside)
        scale = (W / 2, H / 2)
        dx, dy = d_grid[..., 0] * scale[0], d_grid[..., 1] * scale[1]
        return _Points(indices, inside, x - left, y - top, dx, dy, scale)

    def pixels(self, input: Tensor) -> list[Tensor]:
        """The pixels, (N, C, H_out, W_out), zero outside."""
        N, C, H, W = input.shape
        flat = input.reshape(N, C, H * W)
        found = []
        for index, inside in zip(self.indices, self.inside, strict=True):
            pixels = flat.gather(2, _places(index, C)).reshape(N, C, *index.shape[1:])
            found.append(torch.where(inside.unsqueeze(1), pixels, 0))
        return found

    def weights(self) -> list[Tensor]:
        """The factors of the pixels."""
        x, y = self.x, self.y
        return [(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y]

    def weights_along(self) -> list[Tensor]:
        """The derivatives of the pixels' weights in the direction."""
        x, y, dx, dy = self.x, self.y, self.dx, self.dy
        return [
            -dx * (1 - y) - dy * (1 - x),
            dx * (1 - y) - dy * x,
            dy * (1 - x) - dx * y,
            dx * y + dy * x,
        ]

    def along(self, input: Tensor) -> Tensor:
        """The derivative of the result in the direction."""
        return self.summed(input, self.weights_along())

    def summed(self, input: Tensor, weights: list[Tensor]) -> Tensor:
        terms = zip(self.pixels(input), weights, strict=True)
        return sum(pixel * weight.unsqueeze(1) for pixel, weight in terms)

    def along_transposed(self, grad: Tensor, input: Tensor) -> Tensor:
        """The gradient of <grad, along(input)> to `input`."""
        N, C, H, W = input.shape
        found = input.new_zeros(N, C, H * W)
        corners = zip(self.indices, self.inside, self.weights_along(), strict=True)
        for index, inside, weight in corners:
            part = torch.where(inside.unsqueeze(1), grad * weight.unsqueeze(1), 0)
            found = found.scatter_add(2, _places(index, C), part.reshape(N, C, -1))
        return found.reshape(N, C, H, W)

    def mixed(self, grad: Tensor, input: Tensor) -> Tensor:
        """The gradient of <grad, along(input)> to the grid."""
        a, b, c, d = self.pixels(input)
        twist = (grad * (a - b - c + d)).sum(1)
        return torch.stack([twist * self.dy * self.scale[0], twist * self.dx * self.scale[1]], -1)


def _places(index: Tensor, channels: int) -> Tensor:
    """Indices (N, H_out, W_out) for all channels, (N, C, H_out * W_out)."""
    return index.reshape(index.size(0), 1, -1).expand(-1, channels, -1)
