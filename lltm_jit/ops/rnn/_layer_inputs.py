"""What callers give a recurrent layer: checks, in its name, and the form in which it takes them.

Sizes: L is the number of steps, B the batch size, I the input size, H the hidden size, D the number
of directions.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from lltm_jit.ops._library import refuse_non_tensor

State: TypeAlias = "Tensor | tuple[Tensor, ...]"


def check_input(layer: str, x: Tensor, input_size: int) -> None:
    """Refuse an input (L, B, I) with other features, or without a step."""
    if x.size(2) != input_size:
        raise RuntimeError(
            f"{layer}(): expected input to have {input_size} features, but got {x.size(2)}"
        )
    if x.size(0) == 0:
        raise ValueError(f"{layer}(): expected at least one step, but got none")


def refuse_foreign(layer: str, x: Tensor, weight: Tensor) -> None:
    """Refuse an input of another device or dtype than the parameters."""
    for what in ("device", "dtype"):
        given, own = getattr(x, what), getattr(weight, what)
        if given != own:
            raise RuntimeError(
                f"{layer}(): expected input to have the {what} of the parameters ({own}), "
                f"but got {given}"
            ) from None


def whole_states(
    layer: str, state: State, count: int, size: tuple[int, int, int], batched: bool
) -> list[Tensor]:
    """The ``count`` states, each of ``size`` (num_layers * D, B, H)."""
    given = (state,) if isinstance(state, Tensor) else state
    if not isinstance(given, (tuple, list)) or len(given) != count:
        wanted = "a tensor" if count == 1 else f"a tuple of {count} tensors"
        got = f"{len(given)}" if isinstance(given, (tuple, list)) else type(given).__name__
        raise TypeError(f"{layer}(): expected the state to be {wanted}, but got {got}")
    rank, shape = (3, "[layers, batch, hidden]") if batched else (2, "[layers, hidden]")
    states = []
    names = ("h_0", "c_0", *(f"state {i}" for i in range(2, count)))
    for name, tensor in zip(names, given, strict=False):
        refuse_non_tensor(layer, name, tensor)
        if tensor.dim() != rank:
            raise ValueError(
                f"{layer}(): expected {name} to have {rank} dimensions {shape}, "
                f"but got shape {list(tensor.shape)}"
            )
        whole = tensor if batched else tensor.unsqueeze(1)
        if whole.shape != size:
            raise RuntimeError(
                f"{layer}(): expected {name} to have shape {shape} = {list(size)}, "
                f"but got {list(whole.shape)}"
            )
        states.append(whole)
    return states


def reset_mask(
    layer: str, x: Tensor, reset: Tensor | None, batched: bool, batch_first: bool
) -> Tensor | None:
    """The steps before which rows are reset, (L, B)."""
    if reset is None:
        return None
    refuse_non_tensor(layer, "reset", reset)
    mask = reset if batched else reset.unsqueeze(-1)
    if batched and batch_first:
        mask = mask.transpose(0, 1)
    if mask.shape != x.shape[:2]:
        raise RuntimeError(
            f"{layer}(): expected reset to have shape [steps, batch] = "
            f"{list(x.shape[:2])}, but got {list(mask.shape)}"
        )
    return mask != 0
