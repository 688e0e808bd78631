"""Stacks of small layers on a GPU in a wavefront: each layer is one part behind the one below.

Note [Layers side by side] in ``kernels/rnn/sequence/side_by_side/layers.h``. L is the number of
steps, B the batch size, N the number of layers, H the hidden size, G and S the gates and states of
the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer.parts import recomputes
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.sequence import needs_padding, run_layer, uses_tf32

_PLAIN = (Tensor, nn.Parameter)


class How(NamedTuple):
    """The arguments of :class:`_Layers` besides its tensors."""

    cell: str
    tf32: bool
    part: int  # steps
    training: bool


@lru_cache(maxsize=1024)
def planned_part(
    library: ModuleType,
    cell: str,
    dtype: str,
    sizes: tuple[int, int, int, int],
    training: bool,
    device: int,
) -> int:
    """The steps of a part, by a library's plan for a GPU. A reload brings another library."""
    with torch.cuda.device(device):
        gpu = library.sequence_gpu()
    return library.layers_part(cell, dtype, *sizes, training, gpu)


def _dtype_of(x: Tensor) -> str:
    """The name of a dtype in the plan."""
    return "tf32" if uses_tf32(x) else str(x.dtype).removeprefix("torch.")


def side_by_side(
    layer: TorchLayer, x: Tensor, states: Sequence[Tensor] | None
) -> tuple[Tensor, list[Tensor]] | None:
    """Run all layers over a sequence (L, B, ·), if that is quicker than one after the other.

    Returns:
        The output, and the last states, each (N, B, H); or None if nothing was computed.
    """
    if layer.num_layers == 1 or torch.compiler.is_compiling() or not _is_plain(layer, x):
        return None
    cell, tf32 = layer.cell, uses_tf32(x)
    sizes = (x.size(0), x.size(1), layer.hidden_size, layer.num_layers)
    asked = (cell.name, _dtype_of(x), sizes, torch.is_grad_enabled(), x.get_device())
    part = planned_part(native.rnn, *asked)  # steps; 0 if one after the other is quicker
    if not part:
        return None
    suffixes = [f"l{k}" for k in range(layer.num_layers)]
    shapes = layer._shapes(*suffixes)
    own = {name: getattr(layer, name) for name in shapes}
    given = [x, *own.values(), *(states or ())]
    like = all(type(t) in _PLAIN and t.dtype is x.dtype and t.device == x.device for t in given)
    if not like or any(own[name].shape != shape for name, shape in shapes.items()):
        return None
    training = torch.is_grad_enabled() and any(t.requires_grad for t in given)

    def of(kind: str) -> list[Tensor]:
        return [own[f"{kind}_{suffix}"] for suffix in suffixes]

    first, *others = of("weight_ih")
    weights = torch.stack(of("weight_hh") + others)
    bias = first_bias = None
    if layer.bias and cell.adds_gates:
        # Not a sum of stacks, whose gradients would be views of the same memory.
        bias = torch.stack([a + b for a, b in zip(of("bias_hh"), of("bias_ih"), strict=True)])
    elif layer.bias:
        first_bias, *others = of("bias_ih")
        bias = torch.stack(of("bias_hh") + others)
    h_0 = None if states is None else states[0]
    c_0 = None if states is None or len(states) == 1 else torch.stack([*states[1:]])
    how = How(cell.name, tf32, part, training)
    output, h_n, c_n = _Layers.apply(how, x, first, first_bias, weights, bias, h_0, c_0)
    if output is None:  # the GPU has refused
        return None
    # Copies, because detach_() refuses views.
    return output, [torch.stack(state.unbind(1)) for state in (h_n, *c_n)]


def _is_plain(layer: TorchLayer, x: Tensor) -> bool:
    """Whether the layers depend on nothing but the steps below, and nobody looks into the call."""
    usual = (
        layer.cell.ordinary
        and layer.num_heads == 1
        and not (
            layer.bidirectional
            or layer.proj_size
            or layer.cell.parameters
            or (layer.dropout and layer.training)
            or (layer.checkpoint and recomputes())
            or needs_padding(layer.hidden_size, x.dtype)
        )
    )
    return (
        usual
        and type(x) in _PLAIN
        and x.is_cuda
        and not torch.jit.is_tracing()
        and x.numel() > 0
        and not torch.is_autocast_enabled("cuda")
        and forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
    )


class _Layers(torch.autograd.Function):
    """Output (L, B, H), h_n (B, N, H) and c_n (S-1, B, N, H); each None if the GPU refuses.

    ``weights`` and ``bias`` are the hidden parts of all layers, then the input's parts of all
    layers but the first, (2N-1, GH, ·); bias is (N, GH) if the cell adds its gates.
    """

    @staticmethod
    def forward(
        ctx: Any, how: How, x: Tensor, weight_ih: Tensor, bias_ih: Tensor | None, *others: Any
    ) -> Any:
        gates = native.rnn.input_gates(x, weight_ih, bias_ih, how.tf32)
        output, h_n, c_n, *kept = native.rnn.layers_forward(gates, *others, *how)
        if output is not None and how.training:
            ctx.how = how
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, weight_ih, bias_ih, *others, *kept)
        return output, h_n, c_n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        how, wanted = ctx.how, ctx.needs_input_grad[1:]
        saved = ctx.saved_tensors
        args, kept = saved[:7], saved[7:]
        x, weight_ih, _, weights, *_ = args
        if not torch.is_grad_enabled():
            gates, *others = native.rnn.layers_backward(
                *grads, weights, *kept, *how[:3], *wanted[3:5]
            )
            if gates is not None:
                of_input = torch.ops.lltm_jit.input_gates_backward(
                    gates, x, weight_ih, wanted[:3], how.tf32
                )
                found = zip((*of_input, *others), wanted, strict=True)
                return None, *(grad if want else None for grad, want in found)
        return None, *_gradients_in_turn(how, args, wanted, grads)


def _gradients_in_turn(
    how: How, args: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients by the operators of single layers, differentiable any number of times."""
    with torch.enable_grad():
        results = _in_turn(how, *args)
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    inputs = [arg for arg, want in zip(args, wanted, strict=True) if want]
    outputs, of_outputs = zip(*pairs, strict=True)
    again = torch.is_grad_enabled()
    found = torch.autograd.grad(outputs, inputs, of_outputs, create_graph=again, allow_unused=True)
    rest = iter(found)
    return [next(rest) if want else None for want in wanted]


def _in_turn(
    how: How,
    x: Tensor,
    weight_ih: Tensor,
    bias_ih: Tensor | None,
    weights: Tensor,
    bias: Tensor | None,
    h_0: Tensor | None,
    c_0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    layers = (len(weights) + 1) // 2
    h_n, c_n = [], []
    for k in range(layers):
        if k:
            weight_ih = weights[layers + k - 1]
            bias_ih = None if bias_ih is None or bias is None else bias[layers + k - 1]
        of_h = None if bias is None else bias[k]
        args = (None, None if h_0 is None else h_0[k], None if c_0 is None else c_0[:, k], None)
        operands = (x, weight_ih, weights[k], bias_ih, of_h)
        x, h, c = run_layer(how.cell, operands, args, False, how.tf32)
        h_n.append(h)
        c_n.append(c)
    return x, torch.stack(h_n, 1), torch.stack(c_n, 2)
