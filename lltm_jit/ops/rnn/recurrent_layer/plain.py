"""A short path for ordinary calls, because Python takes longer than a small layer on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.inputs import refuse_misfits
from lltm_jit.ops.rnn.recurrent_layer.stack import side_by_side
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.recurrent_layer.types import State
from lltm_jit.ops.rnn.sequence import needs_padding, uses_tf32


def plainly(layer: TorchLayer, input: Tensor, hx: State | None) -> tuple[Tensor, State] | None:
    """Run a call for which :func:`runs_as_called` is true, if it is an ordinary one; else None.

    All layers are one call of C++. Wrong states are left to the other path, which says what is
    wrong.
    """
    cell, size = layer.cell, layer.hidden_size
    states = cell.states
    if states > 2 or layer.proj_size or not cell.ordinary or input.dim() != 3:
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
        whole = (layer.num_layers * layer._directions, rows, size)
        if len(given) != states or any(type(t) is not Tensor or t.shape != whole for t in given):
            return None
        h_0, c_0 = given if states == 2 else (given[0], None)
    if x.is_cuda and (together := side_by_side(layer, x, None if hx is None else given)):
        output, all_last = together
        output = layer._returned(output.transpose(0, 1) if layer.batch_first else output)
        return output, all_last[0] if states == 1 else tuple(all_last)
    names, counts = layer._flat_weights_names, (layer.num_layers, layer._directions)
    pads = x.is_cuda and layer.num_heads == 1 and needs_padding(size, x.dtype)
    try:
        own = layer._parameters | vars(layer)  # getattr would take ten times as long
        weights = [own[name] if name in own else getattr(layer, name) for name in names]
        if has_torch_function(weights):
            return None
        output, last, cells = native.rnn.recurrent_layers(
            x, weights, *counts, h_0, c_0, cell.name, pads, uses_tf32(x)
        )
    except (RuntimeError, TypeError, AttributeError):
        # The message may name tensors that a caller of the layer never sees.
        suffixes = [suffix for k in range(layer.num_layers) for suffix in layer._suffixes(k)]
        refuse_misfits(layer, {"input": x, "h_0": h_0, "c_0": c_0}, suffixes)
        raise
    output = layer._returned(output.transpose(0, 1) if layer.batch_first else output)
    return (output, last) if states == 1 else (output, (last, cells))
