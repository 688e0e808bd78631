"""Calls that are like most, in little Python, which takes longer than a small layer on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.inputs import name_of, refuse_foreign
from lltm_jit.ops.rnn.recurrent_layer.stack import side_by_side
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.recurrent_layer.types import State
from lltm_jit.ops.rnn.sequence import needs_padding, uses_tf32

_LITTLE = 1 << 12  # elements


def plainly(
    layer: TorchLayer,
    run: Callable[..., tuple[Tensor, Tensor, Tensor]],
    input: Tensor,
    hx: State | None,
) -> tuple[Tensor, State] | None:
    """Run one, if it is like most calls that :func:`runs_as_called` is true of; None otherwise.

    Each of its layers is a call of ``run``. Wrong arguments are left to the other path, which says
    what is wrong.
    """
    states, size = layer.cell.states, layer.hidden_size
    if states > 2 or layer.bidirectional or layer.proj_size or input.dim() != 3:
        return None
    if layer.checkpoint and torch.is_grad_enabled():
        return None
    x = input.transpose(0, 1) if layer.batch_first else input
    steps, rows, features = x.shape
    if features != layer.input_size or not steps or (layer.dropout and layer.training):
        return None
    h_0 = c_0 = None
    if hx is not None:
        given = hx if type(hx) is tuple else (hx,)
        whole = (layer.num_layers, rows, size)
        if len(given) != states or any(type(t) is not Tensor or t.shape != whole for t in given):
            return None
        h_0, c_0 = given if states == 2 else (given[0], None)
    together = side_by_side(layer, x, None if hx is None else given)
    if together is not None:
        output, all_last = together
        output = output.transpose(0, 1) if layer.batch_first else output
        return output, all_last[0] if states == 1 else tuple(all_last)
    tf32 = uses_tf32(input)
    if not torch.is_grad_enabled():
        found = _at_once(layer, x, h_0, c_0, tf32)
        if found is not None:
            output, last, cells = found
            output = output.transpose(0, 1) if layer.batch_first else output
            return (output, last) if states == 1 else (output, (last, cells))
    h_n, c_n = [], []
    for k in range(layer.num_layers):
        h = None if h_0 is None else h_0[k]
        c = None if c_0 is None else c_0[k : k + 1]
        x, h, c = run([f"l{k}"], False, tf32, x, h, c, None)
        h_n.append(h)
        c_n.append(c)
    output, last = x.transpose(0, 1) if layer.batch_first else x, stacked(h_n)
    if states == 1:
        return output, last
    return output, (last, torch.cat(c_n) if len(c_n) > 1 else c_n[0])


def _at_once(
    layer: TorchLayer, x: Tensor, h_0: Tensor | None, c_0: Tensor | None, tf32: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Run all layers in one call of C++, if it takes them so."""
    if layer.cell.parameters or (x.is_cuda and needs_padding(layer.hidden_size, x.dtype)):
        return None
    names, count, cell = layer._flat_weights_names, layer.num_layers, layer.cell.name
    try:
        weights = [getattr(layer, name) for name in names]
        if has_torch_function(weights):
            return None
        found = native.rnn.recurrent_layers(x, weights, count, h_0, c_0, cell, tf32)
    except (RuntimeError, TypeError, AttributeError):
        # Its message may be about tensors that a caller of the layer never sees.
        shapes = {n: s for k in range(count) for n, s in layer._shapes(f"l{k}").items()}
        own = {name: getattr(layer, name, None) for name in names}
        refuse_foreign(name_of(layer), {"input": x, "h_0": h_0, "c_0": c_0}, own, shapes)
        raise
    return None if found[0] is None else found


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """torch.stack(), without a copy of a single one; it is no view that detach_() would refuse."""
    one, *others = tensors
    if others or not one.size(1):
        return torch.stack(tensors)
    # A copy of little takes less than the way to that operator.
    if one.is_cpu and not torch.compiler.is_compiling() and one.numel() <= _LITTLE:
        return torch.stack(tensors)
    # A traced layer takes other batch sizes.
    return torch.ops.aten._unsafe_view.default(one, [1, -1, one.size(1)])
