"""Layers, torch's own, and an independent reference for the tests of layers."""

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import pytest
import torch
from sequence_testing import CELLS, Inputs, reference
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import lltm_jit
from lltm_jit.ops.rnn import layers


def makers(module: ModuleType) -> dict[str, Callable[..., nn.Module]]:
    """What makes a layer of each cell, if a module has it, by the cell's name in capitals."""
    found: dict[str, Callable[..., nn.Module]] = {}
    for name, layer in layers.LAYERS.items():
        nonlinearity = name.partition("_")[2]
        made = getattr(module, layer.__name__, None)
        named = {"nonlinearity": nonlinearity} if nonlinearity else {}
        if made is not None:
            found[name.upper()] = partial(made, **named) if named else made
    return found


# Of the same names: the layers, and torch's own where it has one.
ALL_LAYERS, ALL_THEIRS = makers(lltm_jit), makers(nn)
LAYERS = {kind: ALL_LAYERS[kind] for kind in map(str.upper, CELLS)}
THEIRS = {kind: ALL_THEIRS[kind] for kind in LAYERS if kind in ALL_THEIRS}
# For what traces a layer, which takes seconds: the quick ones have one state and four.
TRACED = [
    pytest.param(kind, marks=[] if kind in ("GRU", "SLSTM") else [pytest.mark.slow])
    for kind in LAYERS
]


def tensors(results: tuple) -> list[Tensor]:
    """The tensors of what a layer returns."""
    output, state = results
    return [output if isinstance(output, Tensor) else output.data, *as_list(state)]


def pair(kind: str, *sizes: int, **options) -> tuple[nn.Module, nn.Module]:
    """Our layer and torch's, with the same parameters."""
    theirs, ours = (made[kind](*sizes, **options) for made in (ALL_THEIRS, ALL_LAYERS))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def like(layer: nn.Module, *sizes: int, **options) -> nn.Module:
    """A layer of the same class and parameters, with other options."""
    other = type(layer)(*sizes, **options)
    other.load_state_dict(layer.state_dict())
    return other


def derivatives(
    results: Sequence[Tensor], leaves: Sequence[Tensor], orders: int = 1, **options
) -> list[Tensor]:
    """Gradients of the squares of results, and of the gradients' own, to so many orders."""
    found: list[Tensor] = []
    for order in range(1, orders + 1):
        wide = [each.to(torch.promote_types(each.dtype, torch.float)) for each in results]
        loss = sum(each.square().sum() for each in wide)
        results = torch.autograd.grad(loss, leaves, create_graph=order < orders, **options)
        found += results
    return found


def with_gradients(layer: nn.Module, *args, leaves=(), orders: int = 1, **named) -> list[Tensor]:
    """Results, and the gradients of some leaves and of the parameters.

    What leads from the leaves to the arguments is kept for other layers.
    """
    results, wanted = tensors(layer(*args, **named)), [*leaves, *layer.parameters()]
    return [*results, *derivatives(results, wanted, orders, retain_graph=len(leaves) > 0)]


def assert_alike(layers: Sequence[nn.Module], *args, leaves=(), **named) -> None:
    """Results of two layers, and the gradients of leaves and parameters."""
    found = (with_gradients(layer, *args, leaves=leaves, **named) for layer in layers)
    torch.testing.assert_close(*found)


def check_layer(layer: nn.Module, *names: str) -> None:
    """The derivatives of two orders, in the input of two features and in these parameters."""
    x = torch.randn(3, 2, 2, dtype=torch.double, requires_grad=True)

    def function(x: Tensor, *learnt: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(names, learnt, strict=True))
        return tuple(tensors(torch.func.functional_call(layer, named, (x,))))

    inputs = (x, *(getattr(layer, name) for name in names))
    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)


def states_of(layer: nn.Module, batch_size: int, **options) -> Tensor | tuple[Tensor, ...]:
    """Any states to begin with, in double unless told otherwise."""
    size = (layer.num_layers * (1 + layer.bidirectional), batch_size)
    widths = [layer.proj_size or layer.hidden_size, *[layer.hidden_size] * 3]
    options = {"dtype": torch.double, **options}
    return as_state([torch.randn(*size, n, **options) for n in widths[: layer.cell.states]])


def as_state(states: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The states of a layer as it takes them."""
    return states[0] if len(states) == 1 else tuple(states)


def as_list(state: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    return [] if state is None else [state] if isinstance(state, Tensor) else [*state]


def linear(x: Tensor, own: Callable[[str], Tensor | None]) -> Tensor:
    return nn.functional.linear(x, own("weight_ih"), own("bias_ih"))


def control_of(
    x: Tensor, lengths: Sequence[int] | None, reset: Tensor | None, reverse: bool
) -> Tensor:
    """Of the operator, for a layer's lengths and marks, which are between two steps."""
    held = torch.zeros(x.shape[:2], dtype=torch.uint8, device=x.device)
    for row, end in enumerate(lengths or ()):
        held[end:, row] = 2
    if reset is None:
        return held
    marks = reset & (held == 0)
    if reverse:
        marks = torch.cat([marks[1:], torch.zeros_like(marks[:1])])
    return marks.to(torch.uint8) + held


def layer_reference(
    layer: nn.Module,
    x: Tensor,
    states: Sequence[Tensor] = (),
    lengths: Sequence[int] | None = None,
    reset: Tensor | None = None,
    step: Callable[..., list[Tensor]] | None = None,
    gates_of: Callable[..., Tensor] = linear,
) -> tuple[Tensor, list[Tensor]]:
    """A layer over (L, B, I) in plain PyTorch, and its last states.

    A layer that the library does not have tells its step, and how its input becomes gates.
    """
    ends: list[tuple[Tensor, ...]] = []
    zeros = x.new_zeros(layer.cell.states, x.size(1), layer.hidden_size)
    for k in range(layer.num_layers):
        outputs = []
        for suffix in (f"l{k}", f"l{k}_reverse")[: 1 + layer.bidirectional]:

            def own(name: str) -> Tensor | None:
                return getattr(layer, f"{name}_{suffix}", None)  # noqa: B023

            reverse = suffix.endswith("_reverse")
            h_0, *c_0 = [state[len(ends)] for state in states] or zeros
            cells = torch.stack(c_0) if c_0 else None
            weights = own("weight_hh"), own("bias_hh"), own("parameters")
            control = control_of(x, lengths, reset, reverse)
            given = Inputs(gates_of(x, own), *weights, h_0, cells, control)
            output, h_n, c_n = reference(layer.cell.name, given, reverse, step)
            outputs.append(output)
            ends.append((h_n, *c_n))
        x = torch.cat(outputs, 2)
    return x, [torch.stack(state) for state in zip(*ends, strict=True)]
