"""grid_sample: bilinear sampling of images at given points, differentiable any number of times.

Torch's own operator stops at the first derivative. Here the result and the first derivative are
torch's (``aten::grid_sampler_2d`` and its backward). The result S is linear in the image, so the
same two operators compute the derivatives of the gradient to the image. :mod:`torch.func` computes
the derivatives of the gradient to the points, from S composed of torch operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vjp

from lltm_jit._library import refuse, refuse_non_tensor
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
    for name, tensor in {"input": input, "grid": grid}.items():
        refuse_non_tensor("grid_sample", name, tensor)
        check_floats("grid_sample", name, tensor)
    if input.dim() != 4:
        refuse("grid_sample", "input to have shape [N, C, H, W]", [*input.shape])
    if grid.dim() != 4 or grid.size(0) != input.size(0) or grid.size(3) != 2:
        wanted = f"grid to have shape [N, H_out, W_out, 2] with N = {input.size(0)}"
        refuse("grid_sample", wanted, [*grid.shape])
    dtype = torch.promote_types(torch.promote_types(input.dtype, grid.dtype), torch.float)
    # torch's operator has no forward mode, so torch operations replace it there.
    sample = _composed if forward_ad._current_level >= 0 else _GridSample.apply
    return sample(input.to(dtype), grid.to(dtype)).to(input.dtype)


def _composed(input: Tensor, grid: Tensor) -> Tensor:
    """The sum of the four pixels around each point, by their weights."""
    N, C, H, W = input.shape
    x = ((grid[..., 0] + 1) * W - 1) / 2
    y = ((grid[..., 1] + 1) * H - 1) / 2
    left, top = x.detach().floor(), y.detach().floor()
    flat, result = input.reshape(N, C, H * W), input.new_zeros(())
    for row, of_row in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, of_column in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
            # Convert before multiplying: a float cannot hold every place beyond 2^24.
            inner_row, inner_column = (
                torch.where(inside, place, 0).long() for place in (row, column)
            )
            index = (inner_row * W + inner_column).reshape(N, 1, -1).expand(-1, C, -1)
            pixels = flat.gather(2, index).reshape(N, C, *inside.shape[1:])
            weights = (of_row * of_column).unsqueeze(1)
            result = result + torch.where(inside.unsqueeze(1), pixels, 0) * weights
    return result


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
        to_grad, _, to_grid = ctx.needs_input_grad[:3]
        found: list[Tensor | None] = [None, None, None]
        if d_input is not None:
            if to_grad:
                found[0] = _GridSample.apply(d_input, grid)
            if to_grid:
                found[2] = _GridSampleBackward.apply(grad, d_input, grid, False, True)[1]
        if d_grid is not None:

            def along(input: Tensor, grid: Tensor) -> Tensor:
                return jvp(lambda points: _composed(input, points), (grid,), (d_grid,))[1]

            derivative, pull = vjp(along, input, grid)
            for place, more in enumerate((derivative, *pull(grad))):
                if ctx.needs_input_grad[place]:
                    found[place] = more if (one := found[place]) is None else one + more
        return (*found, None, None)
