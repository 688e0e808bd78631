"""A short path for ordinary calls, because Python takes longer than a small layer on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.inputs import names_of_states, refuse_misfits
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.recurrent_layer.types import State
from lltm_jit.ops.rnn.sequence import needs_padding, uses_tf32


def plainly(layer: TorchLayer, x: Tensor, hx: State | None) -> list[Tensor] | None:
    """Run all layers over a sequence (L, B, I) in one call of C++, if they are ordinary; else None.

    This is for inputs for which :func:`runs_as_called` is true. Wrong states are left to the other
    path, which says what is wrong.

    Returns:
        The output, and then the last states, each (num_layers * D, B, H).
    """
    cell, size = layer.cell, layer.hidden_size
    if layer.proj_size or not cell.ordinary or (layer.checkpoint and torch.is_grad_enabled()):
        return None
    steps, rows, features = x.shape
    if features != layer.input_size or not steps or (layer.dropout and layer.training):
        return None
    states: Sequence[Tensor] = ()
    if hx is not None:
        states = hx if type(hx) is tuple else (hx,)
        whole = (layer.num_layers * layer._directions, rows, size)
        if len(states) != cell.states:
            return None
        if any(type(t) is not Tensor or t.shape != whole for t in states):
            return None
    names, counts = layer._flat_weights_names, (layer.num_layers, layer._directions)
    pads = x.is_cuda and layer.num_heads == 1 and needs_padding(size, x.dtype)
    try:
        own = layer._parameters | vars(layer)  # getattr would take ten times as long
        weights = [own[name] if name in own else getattr(layer, name) for name in names]
        if has_torch_function(weights):
            return None
        return native.rnn.recurrent_layers(
            x, weights, *counts, states, cell.name, pads, uses_tf32(x), None
        )
    except (RuntimeError, TypeError, AttributeError):
        # The message may name tensors that a caller of the layer never sees.
        suffixes = [suffix for k in range(layer.num_layers) for suffix in layer._suffixes(k)]
        given = dict(zip(names_of_states(len(states)), states, strict=True))
        refuse_misfits(layer, {"input": x, **given}, suffixes)
        raise
