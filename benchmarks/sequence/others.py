"""minGRU beside a copy of as many bytes, and LayerNormLSTM beside TorchScript and our LSTM."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import lltm_jit
from lltm_jit.functional import recurrent_sequence

from ..shared import times
from ..shared.table import Row, group_of, type_name
from .cases import BACKWARD, PHASES

_MINGRU = Path(__file__).parents[2] / "examples" / "mingru" / "mingru.h"
_STEPS = {"minGRU": 4096, "LayerNormLSTM": 200}
_UNITS = {"minGRU": [512], "LayerNormLSTM": [256, 512, 640]}
# Of a copy's time, of TorchScript's, and of our LSTM's.
_COPY_GOAL, _SCRIPT_GOALS, _LSTM_GOAL, _MOST_UNITS = 1.3, (0.1, 0.15), 1.6, 512

Steps = dict[str, Callable[[], Any]]


def measure(rows: int, dtype: torch.dtype, device: torch.device, seconds: float) -> Iterator[list]:
    """Both, forward and with a backward pass; of minGRU the sequence alone, without products."""
    for phase in PHASES:
        yield _rows(_mingru(rows, dtype, device, phase), "minGRU", phase, device, dtype, seconds)
    for units in _UNITS["LayerNormLSTM"]:
        for phase in PHASES:
            steps = _norms(rows, units, dtype, device, phase)
            title = f"LayerNormLSTM, H {units}"
            yield _rows(steps, title, phase, device, dtype, seconds)


def _rows(
    steps: Steps, case: str, phase: str, device: torch.device, dtype: torch.dtype, seconds: float
) -> list[Row]:
    kind, _, units = case.partition(", H ")
    found = times.measure(steps, seconds, times.modes(device), dict.fromkeys(steps, _STEPS[kind]))
    goals: dict[str, float | None] = {"a copy": _COPY_GOAL}
    if kind != "minGRU":
        goals = {"TorchScript": _SCRIPT_GOALS[phase == BACKWARD]}
        goals["LSTM"] = _LSTM_GOAL if int(units) <= _MOST_UNITS else None
    table = f"{type_name(dtype)}, {device.type}, {_STEPS[kind]} steps, times of one step"
    return group_of(table, case, phase, found, {kind: goals} if device.type == "cuda" else {})


def _mingru(rows: int, dtype: torch.dtype, device: torch.device, phase: str) -> Steps:
    """A copy reads and writes, in all, the bytes of the gates and the output, with gradients too.

    The backward pass reads the gates and the output once more, besides the output's gradient.
    """
    cell, (units,) = lltm_jit.recurrent_cell(_MINGRU, "MinGruCell").cell.name, _UNITS["minGRU"]
    shape = (_STEPS["minGRU"], rows)
    gates = torch.randn(*shape, 2 * units, device=device, dtype=dtype)
    weight, grad = gates.new_empty(0, units), torch.randn_like(gates[..., :units])
    moved = 3 if phase != BACKWARD else 9  # arrays of the output's size
    source = gates.new_zeros(moved * grad.numel() // 2)
    target = torch.empty_like(source)
    leaf = gates.clone().requires_grad_(phase == BACKWARD)

    def sequence() -> Any:
        output, *_ = recurrent_sequence(cell, leaf, weight)
        return torch.autograd.grad(output, leaf, grad) if phase == BACKWARD else output

    return {"minGRU": sequence, "a copy": lambda: target.copy_(source)}


def _norms(rows: int, units: int, dtype: torch.dtype, device: torch.device, phase: str) -> Steps:
    ours = lltm_jit.LayerNormLSTM(units, units, device=device, dtype=dtype)
    plain = lltm_jit.LSTM(units, units, device=device, dtype=dtype)
    x = torch.randn(_STEPS["LayerNormLSTM"], rows, units, device=device, dtype=dtype)
    grad, zeros, p = torch.randn_like(x), x.new_zeros(rows, units), ours.parameters_l0
    with torch.no_grad():
        p[:4] = 0.5  # with ones, the gradients of so many steps are too large for half

    def script() -> Tensor:
        product = F.linear(x, ours.weight_ih_l0)
        gates = F.layer_norm(product, [4 * units], ours.norm_ih_l0, ours.bias_ih_l0)
        return _script(gates, ours.weight_hh_l0, p[:4].flatten(), p[4], p[5], zeros)

    functions = {
        "LayerNormLSTM": (lambda: ours(x)[0], ours),
        "TorchScript": (script, ours),
        "LSTM": (lambda: plain(x)[0], plain),
    }

    def step(function: Callable[[], Tensor], module: torch.nn.Module) -> Callable[[], Any]:
        learnt = list(module.parameters())

        def run() -> Any:
            if phase == BACKWARD:
                return torch.autograd.grad(function(), learnt, grad)
            with torch.no_grad():
                return function()

        return run

    return {name: step(*pair) for name, pair in functions.items()}


@torch.jit.script
def _script(
    gates: Tensor, weight: Tensor, w_h: Tensor, w_c: Tensor, b_c: Tensor, zeros: Tensor
) -> Tensor:
    """The steps of a LayerNormLSTM, for a compiler that knows nothing of recurrences."""
    outputs = torch.jit.annotate(list[Tensor], [])
    h, c = zeros, zeros
    for t in range(gates.size(0)):
        hidden = F.layer_norm(torch.mm(h, weight.t()), [weight.size(0)], w_h)
        i, f, g, o = (gates[t] + hidden).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, [c.size(1)], w_c, b_c))
        outputs.append(h)
    return torch.stack(outputs)
