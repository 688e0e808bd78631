"""Heads of cells, at sizes of FlashRNN's authors: all at once, one alone, one after the other."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from lltm_jit.ops.rnn.layers import LAYERS
from lltm_jit.ops.rnn.sequence import recurrent_sequence

from ..shared import times
from ..shared.table import Row, group_of, type_name
from .cases import BACKWARD, PHASES, compile_side_by_side, draw

UNITS = 768  # the hidden units of all heads together
# Numbers of heads, and goals on a GPU, where heads run at once: the time of all over that of one.
SIZES = {1: None, 3: 1.2, 6: 1.2, 12: 1.2, 24: 1.45, 48: 1.75}
CELLS = {"lstm": None, "slstm": 1.35}  # the goal beside the LSTM
_ONE, _IN_TURN = "one head", "in turn"


def measure(
    batch_size: int, steps: int, dtype: torch.dtype, device: torch.device, seconds: float
) -> Iterator[list[Row]]:
    """Time calls with given gates, (steps, batch, gates of all heads)."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        _compile_kernels(batch_size, dtype)
    sizes = f"B {batch_size}, T {steps}"
    table = f"{type_name(dtype)}, {device.type}, {sizes}, gates given, times of a call"
    for heads in SIZES:
        for phase in PHASES:
            shapes = (steps, batch_size, heads, UNITS // heads, dtype, device)
            functions = {cell: _call(cell, phase, *shapes) for cell in CELLS}
            if heads > 1:
                functions[_ONE] = _call("lstm", phase, steps, batch_size, 1, *shapes[3:])
                functions[_IN_TURN] = partial(_repeat, functions[_ONE], heads)
            found = times.measure(functions, seconds, times.modes(device))
            case = f"{heads} x {UNITS // heads}"
            yield group_of(table, case, phase, found, goals(heads, on_gpu))


def goals(heads: int, on_gpu: bool) -> dict[str, dict[str, float | None]]:
    """What each is compared with, and the goal for the ratio of times, if any."""
    one, lstm = (SIZES[heads], CELLS["slstm"]) if on_gpu else (None, None)
    return {"lstm": {_ONE: one, _IN_TURN: None}, "slstm": {"lstm": lstm}}


def _compile_kernels(batch_size: int, dtype: torch.dtype) -> None:
    layers = [
        LAYERS[cell](1, UNITS // heads * together, num_heads=together, device="meta", dtype=dtype)
        for cell in CELLS
        for heads in SIZES
        for together in {1, heads}
    ]
    compile_side_by_side(layers, repeat(batch_size))


def _call(
    cell: str,
    phase: str,
    steps: int,
    batch_size: int,
    heads: int,
    units: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Callable[[], Any]:
    gates = draw((steps, batch_size, 4 * heads * units), device, dtype)
    weights = draw((heads, 4 * units, units), device, dtype) / units**0.5
    if phase != BACKWARD:
        return partial(recurrent_sequence, cell, gates, weights)
    leaves = [gates.requires_grad_(), weights.requires_grad_()]
    grad = draw((steps, batch_size, heads * units), device, dtype)

    def training_step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(recurrent_sequence(cell, *leaves)[0], leaves, grad)

    return training_step


def _repeat(function: Callable[[], Any], count: int) -> Any:
    for _ in range(count):
        result = function()
    return result
