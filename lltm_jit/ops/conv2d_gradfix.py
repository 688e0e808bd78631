"""Convolutions under the names of StyleGAN's ``torch_utils.ops.conv2d_gradfix``.

Values and derivatives, of any order, are those of :mod:`torch.nn.functional`. This module adds
:func:`no_weight_gradients`, which takes effect when a backward pass runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

__all__ = ["conv2d", "conv_transpose2d", "no_weight_gradients"]

enabled = False  # training scripts set it; both values give the same results


class _State(threading.local):
    disabled = False


_state = _State()


@contextmanager
def no_weight_gradients(disable: bool = True) -> Iterator[None]:
    """Leave out the gradients of convolutions' weights in the backward passes of a ``with`` block.

    This affects only the weights of :func:`conv2d`, :func:`conv_transpose2d` and
    :func:`~lltm_jit.ops.stylegan.conv2d_resample.conv2d_resample`, wherever these were called, and
    only backward passes that this thread starts. Inputs and biases get their usual gradients. A
    graph from ``create_graph=True`` can be differentiated later as usual, also with respect to
    weights. In the block, backward passes run in this thread alone
    (:class:`torch.autograd.set_multithreading_enabled`).

    ``torch.autograd.grad(loss, inputs)`` without the weights among the inputs saves the time of
    their gradients; ``backward()`` computes them and drops them. ``weight.grad`` stays as it was,
    except that a graph of ``torch.compile`` sets it to zeros. Under autocast a float weight is cast
    at each call, whereas :func:`torch.nn.functional.conv2d` keeps the cast weight.

    Args:
        disable: if false, the block changes nothing.

    Example:
        >>> from lltm_jit.ops import conv2d_gradfix
        >>> x = torch.ones(1, 1, 4, 4, requires_grad=True)
        >>> w = torch.ones(1, 1, 3, 3, requires_grad=True)
        >>> y = conv2d_gradfix.conv2d(x, w)
        >>> with conv2d_gradfix.no_weight_gradients():
        ...     y.sum().backward()
        >>> w.grad is None, x.grad.sum()
        (True, tensor(36.))
    """
    if not disable:
        yield
        return
    before, _state.disabled = _state.disabled, True
    try:
        with torch.autograd.set_multithreading_enabled(False):  # other threads miss the state
            yield
    finally:
        _state.disabled = before


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return :func:`torch.nn.functional.conv2d` of the arguments.

    Args:
        input, bias, stride, padding, dilation, groups: see there.
        weight: see there; it gets no gradient from a backward pass within
            :func:`no_weight_gradients`.
    """
    return F.conv2d(input, _gated(weight), bias, stride, padding, dilation, groups)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Return :func:`torch.nn.functional.conv_transpose2d` of the arguments.

    Args:
        input, bias, stride, padding, output_padding, groups, dilation: see there.
        weight: see there; it gets no gradient from a backward pass within
            :func:`no_weight_gradients`.
    """
    weight = _gated(weight)
    return F.conv_transpose2d(
        input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def _gated(weight: Tensor) -> Tensor:
    if not (isinstance(weight, Tensor) and weight.requires_grad):
        return weight
    return (_Weight if is_compiling() else _EagerWeight).apply(weight)


class _Weight(torch.autograd.Function):
    """The weight itself. Its gradient stops here while :func:`no_weight_gradients` is on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return weight.view_as(weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor | None:
        if is_compiling():  # one trace serves both states
            return _unless_disabled(grad)
        return None if _state.disabled else grad


class _EagerWeight(_Weight):
    """The same with forward-mode derivatives, which torch.compile refuses."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.view_as(tangent)


@torch.library.custom_op("lltm_jit::unless_no_weight_gradients", mutates_args=())
def _unless_disabled(grad: Tensor) -> Tensor:
    return torch.zeros_like(grad) if _state.disabled else grad.clone()


@_unless_disabled.register_fake
def _(grad: Tensor) -> Tensor:
    return torch.empty_like(grad)
