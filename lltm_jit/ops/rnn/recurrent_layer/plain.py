"""A short path for ordinary calls, because Python takes longer than a small layer on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.inputs import refuse_misfits
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.recurrent_layer.types import State
from lltm_jit.ops.rnn.sequence import needs_padding, uses_tf32


def plainly(layer: TorchLayer, input: Tensor, hx: State | None) -> tuple[Tensor, State] | None:
    """Run a call for which :func:`runs_as_called` is true, if it is an ordinary one; else None.

    Wrong states are left to the other path, which says what is wrong.
    """
    if input.dim() != 3:
        return None
    x = input.transpose(0, 1) if layer.batch_first else input
    given: Sequence[Tensor] = () if hx is None else hx if type(hx) is tuple else (hx,)
    whole = (layer.num_layers * layer._directions, x.size(1), layer.hidden_size)
    if hx is not None and len(given) != layer.cell.states:
        return None
    if any(type(t) is not Tensor or t.shape != whole for t in given):
        return None
    found = in_one_call(layer, x, given)
    if found is None:
        return None
    output, last = found
    output = layer._returned(output.transpose(0, 1) if layer.batch_first else output)
    return output, last[0] if len(last) == 1 else tuple(last)


def in_one_call(
    layer: TorchLayer, x: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]] | None:
    """Run all layers over a sequence (L, B, I) in one call of C++, if they are ordinary; else None.

    Each of the states, which may be none, is (num_layers * D, B, H), as are the last ones.
    """
    cell = layer.cell
    if layer.proj_size or not cell.ordinary or (layer.checkpoint and torch.is_grad_enabled()):
        return None
    if x.size(2) != layer.input_size or not x.size(0) or (layer.dropout and layer.training):
        return None
    names, counts = layer._flat_weights_names, (layer.num_layers, layer._directions)
    pads = x.is_cuda and layer.num_heads == 1 and needs_padding(layer.hidden_size, x.dtype)
    try:
        own = layer._parameters | vars(layer)  # getattr would take ten times as long
        weights = [own[name] if name in own else getattr(layer, name) for name in names]
        if has_torch_function(weights) or has_torch_function(states):
            return None
        how = (cell.name, pads, uses_tf32(x), None)
        output, *last = native.rnn.recurrent_layers(x, weights, *counts, states, *how)
    except (RuntimeError, TypeError, AttributeError):
        # The message may name tensors that a caller of the layer never sees.
        suffixes = [suffix for k in range(layer.num_layers) for suffix in layer._suffixes(k)]
        given = {"input": x, **dict(zip(("h_0", "c_0"), states, strict=False))}
        refuse_misfits(layer, given, suffixes)
        raise
    return output, last
