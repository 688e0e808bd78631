"""The arguments of a recurrent layer's call: checks that name the layer, and conversions.

Sizes: L is the number of steps, B the batch size, I the input size, H the hidden size, D the number
of directions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from lltm_jit._library import (
    DTYPES,
    autocasts,
    refuse,
    refuse_non_bool,
    refuse_non_number,
    refuse_non_tensor,
    refuse_wrong_size,
)
from lltm_jit.ops.rnn.recurrent_layer.types import State


def name_of(layer: nn.Module) -> str:
    """The name of a layer's class before a parametrisation has changed it."""
    return parametrize.type_before_parametrizations(layer).__name__


def refuse_wrong_arguments(
    layer: str,
    sizes: Mapping[str, int],
    flags: Mapping[str, bool],
    num_layers: int,
    num_heads: int,
    dropout: float,
    projects: bool,
) -> None:
    """Refuse arguments that no layer can have, and warn of a dropout without effect."""
    hidden_size, proj_size = sizes["hidden_size"], sizes["proj_size"]
    for name, size in sizes.items():
        refuse_wrong_size(layer, name, size)
        if not size and name in ("input_size", "hidden_size"):
            refuse(layer, f"{name} to be at least 1", size, ValueError)
    for name, flag in flags.items():
        refuse_non_bool(layer, name, flag)  # a device, say, given in a position too early
    refuse_non_number(layer, "num_layers", num_layers, whole=True)
    if isinstance(num_layers, bool) or num_layers < 1:
        refuse(layer, "num_layers to be at least 1", repr(num_layers), ValueError)
    most = max(hidden_size - 1, 0) if projects else 0
    if proj_size > most:
        wanted = f"less than hidden_size = {most + 1}" if projects else "0, except for an LSTM"
        refuse(layer, f"proj_size to be {wanted}", proj_size, ValueError)
    refuse_non_number(layer, "dropout", dropout)
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        refuse(layer, "dropout to be from 0 to 1", dropout, ValueError)
    if dropout and num_layers == 1:
        warnings.warn(
            f"{layer}(): dropout is on the output of each layer except the last, so {dropout} does "
            "nothing with num_layers=1",
            stacklevel=3,
        )
    refuse_non_number(layer, "num_heads", num_heads, whole=True)
    if isinstance(num_heads, bool) or num_heads < 1 or hidden_size % num_heads:
        wanted = f"num_heads to divide hidden_size = {hidden_size}"
        refuse(layer, wanted, repr(num_heads), ValueError)
    if num_heads > 1 and proj_size:
        refuse(layer, "num_heads to be 1 with a proj_size", num_heads, ValueError)


def check_input(layer: str, x: Tensor, input_size: int) -> None:
    """Refuse an input (L, B, I) with other features, or without a step."""
    if x.size(2) != input_size:
        refuse(layer, f"input to have {input_size} features", x.size(2))
    if x.size(0) == 0:
        refuse(layer, "at least one step", "none")


def refuse_sparse(layer: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor that has no strides."""
    if tensor.layout != torch.strided:
        refuse(layer, f"{name} to be a dense tensor", f"layout {tensor.layout}")


def check_packed(layer: str, packed: PackedSequence, input_size: int) -> None:
    """Refuse packed sequences whose steps do not have the features."""
    if packed.data.dim() != 2:
        wanted = "the data of a packed input to have 2 dimensions"
        refuse(layer, wanted, f"shape {list(packed.data.shape)}")
    check_input(layer, packed.data.unsqueeze(0), input_size)


def refuse_misfits(
    module: nn.Module, given: Mapping[str, Tensor | None], suffixes: Sequence[str]
) -> None:
    """Refuse tensors of another device or dtype than a layer's first parameter, and wrong shapes.

    This is for calls that have failed. It checks what the caller gave, and the layer's parameters
    with these suffixes. Cell states may be float among 16-bit types; autocast takes any dtype.
    """
    layer, shapes = name_of(module), module._shapes(*suffixes)
    own = {name: getattr(module, name, None) for name in shapes}
    for name, tensor in {**own, **given}.items():
        refuse_non_tensor(layer, name, tensor, optional=not name.startswith("weight"))
        if tensor is not None:
            refuse_sparse(layer, name, tensor)
    (first, like), *_ = own.items()
    assert like is not None
    cast = autocasts(like)
    if not cast and like.dtype not in DTYPES:
        refuse(layer, "the parameters to be half, bfloat16, float or double", like.dtype)
    for what in ("device",) if cast else ("device", "dtype"):
        wanted = getattr(like, what)
        for name, tensor in {**own, **given}.items():
            found = wanted if tensor is None else getattr(tensor, what)
            others = name.startswith("reset_to[") and name != "reset_to[0]"
            cells = name == "c_0" or name.startswith("state ") or others
            kept = cells and found == torch.float and like.dtype in DTYPES[:2]
            if found != wanted and not kept:
                error = ValueError if (name, what) == ("input", "dtype") else RuntimeError
                raise error(
                    f"{layer}(): expected {name} to have the {what} of "
                    f"{'the parameters' if name in given else first} ({wanted}), but got {found}"
                ) from None
    for name, shape in shapes.items():
        found = shape if (tensor := own[name]) is None else tensor.shape
        if found != shape:
            refuse(layer, f"{name} to have shape {list(shape)}", list(found))


def whole_states(
    layer: str, state: State, sizes: Sequence[tuple[int, int, int]], batched: bool
) -> list[Tensor]:
    """The states, each of its size (num_layers * D, B, ·)."""
    count = len(sizes)
    given = _as_tuple(layer, "hx", state, count)
    rank, shape = (3, "[layers, batch, hidden]") if batched else (2, "[layers, hidden]")
    states = []
    for name, tensor, size in zip(names_of_states(count), given, sizes, strict=True):
        refuse_non_tensor(layer, name, tensor)
        if tensor.dim() != rank:
            wanted = f"{name} to have {rank} dimensions {shape}"
            refuse(layer, wanted, f"shape {list(tensor.shape)}")
        refuse_sparse(layer, name, tensor)
        whole = tensor if batched else tensor.unsqueeze(1)
        if whole.shape != size:
            right = [*size] if batched else [size[0], size[2]]
            refuse(layer, f"{name} to have shape {shape} = {right}", list(tensor.shape))
        states.append(whole)
    return states


def _as_tuple(layer: str, name: str, state: State, count: int) -> Sequence[Tensor]:
    given = (state,) if isinstance(state, Tensor) else state
    if not isinstance(given, (tuple, list)) or len(given) != count:
        wanted = "a tensor" if count == 1 else f"a tuple of {count} tensors"
        got = len(state) if isinstance(state, (tuple, list)) else type(state).__name__
        refuse(layer, f"{name} to be {wanted}", got, TypeError)
    return given


def names_of_states(count: int) -> list[str]:
    """The names of the tensors of ``hx`` in messages."""
    return ["h_0", "c_0", *(f"state {i}" for i in range(2, count))][:count]


def names_of_resets(count: int) -> list[str]:
    """The names of the tensors of ``reset_to`` in messages."""
    return ["reset_to"] if count == 1 else [f"reset_to[{i}]" for i in range(count)]


def states_to_reset_to(
    layer: str,
    state: State,
    first: Sequence[Tensor] | None,
    sizes: Sequence[tuple[int, int, int]],
    steps: int,
    batched: bool,
) -> list[Tensor]:
    """The states that rows are reset to, each (K, num_layers * D, B, ·) for K = 1 or the steps.

    They have the dtypes of the states before the first step, if these are given.
    """
    count = len(sizes)
    given = _as_tuple(layer, "reset_to", state, count)
    of_one = "[layers, batch, hidden]" if batched else "[layers, hidden]"
    rank, states = 3 if batched else 2, []
    likes = first or [None] * count
    for name, tensor, like, size in zip(names_of_resets(count), given, likes, sizes, strict=True):
        refuse_non_tensor(layer, name, tensor)
        if like is not None and tensor.dtype != like.dtype:
            wanted = f"{name} to have the dtype of the same state in hx ({like.dtype})"
            refuse(layer, wanted, tensor.dtype)
        if tensor.dim() not in (rank, rank + 1):
            wanted = f"{name} to have the dimensions {of_one}, or one of the steps before them"
            refuse(layer, wanted, f"shape {list(tensor.shape)}")
        refuse_sparse(layer, name, tensor)
        whole = tensor if batched else tensor.unsqueeze(-2)
        shape, right = of_one, [*size] if batched else [size[0], size[2]]
        if tensor.dim() > rank:
            shape, right = f"[steps, {of_one[1:]}", [steps, *right]
        if whole.size(-2) == 1:  # the same for all rows
            whole = whole.expand(*whole.shape[:-2], size[1], -1)
        if whole.shape[-3:] != size or (tensor.dim() > rank and tensor.size(0) != steps):
            refuse(layer, f"{name} to have shape {shape} = {right}", list(tensor.shape))
        states.append(whole if tensor.dim() > rank else whole.unsqueeze(0))
    return states


def reset_mask(
    layer: str, x: Tensor, reset: Tensor | None, batched: bool, batch_first: bool
) -> Tensor | None:
    """The steps before which rows are reset, (L, B); the mask may have one feature."""
    if reset is None:
        return None
    refuse_non_tensor(layer, "reset", reset)
    refuse_sparse(layer, "reset", reset)
    if reset.dim() == 2 + batched and reset.size(-1) == 1:
        reset = reset.squeeze(-1)
    if reset.device != x.device:
        refuse(layer, f"reset to have the device of input ({x.device})", reset.device)
    shape, right = ("[steps, batch]", [*x.shape[:2]]) if batched else ("[steps]", [x.size(0)])
    if batched and batch_first:
        shape, right = "[batch, steps]", right[::-1]
    if [*reset.shape] != right:
        refuse(layer, f"reset to have shape {shape} = {right}", list(reset.shape))
    mask = reset if batched else reset.unsqueeze(-1)
    return (mask.transpose(0, 1) if batched and batch_first else mask) != 0
