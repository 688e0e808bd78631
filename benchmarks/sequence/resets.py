"""Resets within sequences, as in reinforcement learning: our LSTM beside torch's cut at each reset.

Torch's layers know no resets. They run in pieces that end at each step at which any row is reset;
as a loop of cells; or on packed sequences, one for every piece of a row, which are prepared
beforehand. The fastest of these ways is measured, in a graph the fastest of the first two.
TorchRL's Triton kernels take resets, also to given states.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..builds import say
from ..shared import times
from ..shared.gpu_kernels import compile_variants
from ..shared.table import Row, group_of
from .cases import BACKWARD, PHASES, Case, training_step, use_precision

# Steps, rows, features and hidden units.
SIZES = [(128, 128, 256, 256), (64, 64, 128, 128), (16, 4096, 128, 256), (64, 16, 512, 512)]
SHARE = 0.03  # the share of steps before which a row is reset
GOAL = 0.35  # our time over that of the best other way
OURS, TO_STATES = "LSTM", "to states"
PIECES, CELLS, PACKED, TORCHRL = "nn in pieces", "nn.LSTMCell", "nn packed", "TorchRL"


class Resets(nn.Module):
    """One way to run an LSTM over a sequence whose rows are reset; all have the same weights."""

    def __init__(self, case: Case, marks: Tensor) -> None:
        super().__init__()
        self.marks, self.batch_size = marks, case.batch_size
        self.kept = (~marks).to(case.dtype).unsqueeze(2)
        torch.manual_seed(0)
        self.lstm = self.made(case)

    def made(self, case: Case) -> nn.Module:
        return case.module("nn.LSTM")


class Ours(Resets):
    def made(self, case: Case) -> nn.Module:
        return case.module(OURS)

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        return self.lstm(input, reset=self.marks)


class OursToStates(Ours):
    """Resets to given states of each step. They are zeros, so that results are the same."""

    def __init__(self, case: Case, marks: Tensor) -> None:
        super().__init__(case, marks)
        shape = (case.steps, 1, case.batch_size, case.hidden_size)
        self.state = torch.zeros(shape, device=case.device, dtype=case.dtype)

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        return self.lstm(input, reset=self.marks, reset_to=(self.state, self.state))


class Pieces(Resets):
    """One call for the steps between two resets of any row."""

    def __init__(self, case: Case, marks: Tensor) -> None:
        super().__init__(case, marks)
        starts = marks[1:].any(1).nonzero().flatten() + 1
        self.cuts = [0, *starts.tolist(), case.steps]

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        size = self.lstm.hidden_size
        h = c = torch.zeros(1, self.batch_size, size, device=input.device, dtype=input.dtype)
        outputs = []
        for begin, end in pairwise(self.cuts):
            h, c = h * self.kept[begin], c * self.kept[begin]
            output, (h, c) = self.lstm(input[begin:end], (h, c))
            outputs.append(output)
        return torch.cat(outputs), h, c


class Cells(Resets):
    """The loop of cells that many implementations of recurrent PPO have."""

    def made(self, case: Case) -> nn.Module:
        sizes = (case.widths[0], case.hidden_size)
        return nn.LSTMCell(*sizes, device=case.device, dtype=case.dtype)

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        size = self.lstm.hidden_size
        h = c = torch.zeros(self.batch_size, size, device=input.device, dtype=input.dtype)
        outputs = []
        for x, kept in zip(input, self.kept, strict=True):
            h, c = self.lstm(x, (h * kept, c * kept))
            outputs.append(h)
        return torch.stack(outputs), h, c


class Packed(Resets):
    """Every piece of a row is a sequence. Their places are found beforehand, from the marks."""

    def __init__(self, case: Case, marks: Tensor) -> None:
        super().__init__(case, marks)
        pieces = [
            (row, begin, end)
            for row, own in enumerate(marks.t().tolist())
            for begin, end in pairwise([0, *(t for t in range(1, len(own)) if own[t]), len(own)])
        ]
        pieces.sort(key=lambda piece: piece[1] - piece[2])
        of_steps = [
            [(begin + t) * case.batch_size + row for row, begin, end in pieces if begin + t < end]
            for t in range(pieces[0][2] - pieces[0][1])
        ]
        self.sizes = torch.tensor([len(own) for own in of_steps])
        order = torch.tensor([place for own in of_steps for place in own])
        self.order, self.back = order.to(case.device), order.argsort().to(case.device)

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        data = input.flatten(0, 1).index_select(0, self.order)
        packed, _ = self.lstm(PackedSequence(data, self.sizes))
        output = packed.data.index_select(0, self.back).unflatten(0, input.shape[:2])
        return (output,)


class TorchRL(Resets):
    """The function that its LSTMModule calls for a layer, with ``recurrent_backend="triton"``."""

    def __init__(self, case: Case, marks: Tensor) -> None:
        super().__init__(case, marks)
        kernels = import_module("torchrl.modules.tensordict_module._rnn_triton")
        self.precision = "tf32" if case.precision == "tf32" else "ieee"
        self.function = kernels.lstm_triton
        shape = (case.batch_size, case.steps, case.hidden_size)
        self.state = torch.zeros(shape, device=case.device, dtype=case.dtype)
        self.first = marks.t().contiguous()

    def forward(self, input: Tensor) -> tuple[Any, ...]:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self.lstm, name) for name in names]
        x = input.transpose(0, 1).contiguous()
        how = {"compute_dtype": input.dtype, "input_precision": self.precision}
        output, *_ = self.function(x, self.state, self.state, *weights, self.first, **how)
        return (output.transpose(0, 1),)


OF_OURS: dict[str, type[Resets]] = {OURS: Ours, TO_STATES: OursToStates}
OF_TORCH: dict[str, type[Resets]] = {PIECES: Pieces, CELLS: Cells, PACKED: Packed}


def cases(
    dtype: torch.dtype, precision: str, device: torch.device, size: tuple[int, int, int] | None
) -> list[Case]:
    """The cases of `SIZES`, or of one size: steps, rows and hidden units."""
    sizes = [(*size, size[2])] if size else SIZES
    return [
        Case(rows, hidden, steps, dtype, device, precision, OURS, features=features)
        for steps, rows, features, hidden in sizes
    ]


def marks_of(case: Case) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    marks = torch.rand(case.steps, case.batch_size, generator=generator) < SHARE
    return marks.to(case.device)


def measure(found: list[Case], seconds: float) -> Iterator[list[Row]]:
    """Time ours beside the fastest of torch's ways; then beside TorchRL's, which compiles long.

    The states of a reset are zeros, so that all compute the same.
    """
    case = found[0]
    with use_precision(case.precision):
        if case.device.type == "cuda":
            say(f"resets at {len(found)} sizes, when our kernels are compiled")
            compile_kernels(found)
        for case, phase in product(found, PHASES):
            yield rows(case, phase, seconds, OF_TORCH)
        takes = case.device.type == "cuda" and case.dtype in (torch.float, torch.bfloat16)
        if takes and find_spec("torchrl"):
            # Triton tries many kernels, which take longer to compile the more units there are.
            for case, phase in product(sorted(found, key=lambda c: c.hidden_size), PHASES):
                yield rows(case, phase, seconds, {TORCHRL: TorchRL})


def compile_kernels(found: list[Case]) -> None:
    """Compile what ours need on a GPU, side by side."""
    meta = [replace(case, device=torch.device("meta")) for case in found]
    modules = [(case, way(case, marks_of(case))) for case in meta for way in OF_OURS.values()]
    compile_variants(
        partial(call_without_numbers, case, module, phase)
        for case, module in modules
        for phase in PHASES
    )


def call_without_numbers(case: Case, module: nn.Module, phase: str) -> None:
    shape = (case.steps, case.batch_size, case.widths[0])
    x = torch.empty(shape, dtype=case.dtype, device=case.device, requires_grad=phase == BACKWARD)
    with torch.set_grad_enabled(phase == BACKWARD):
        output = module(x)[0]
    if phase == BACKWARD:
        torch.autograd.grad(output, [x, *module.parameters()], torch.empty_like(output))


def rows(
    case: Case, phase: str, seconds: float, other_ways: Mapping[str, type[Resets]]
) -> list[Row]:
    """Time ours, and for each way of calling the fastest of the others."""
    title = f"T{case.steps} B{case.batch_size} I{case.widths[0]} H{case.hidden_size}"
    say(f"{title}, {phase}, beside {', '.join(other_ways)}")
    marks, on_gpu = marks_of(case), case.device.type == "cuda"
    modules = {name: way(case, marks) for name, way in {**OF_OURS, **other_ways}.items()}
    functions = {name: step(module, case.input(), phase) for name, module in modules.items()}
    usual, checks = functions[[*other_ways][-1]]()[0], {}
    for name in OF_OURS:
        error = ((functions[name]()[0] - usual).norm() / usual.norm()).item()
        checks[name] = "match" if error < _TOLERANCE[case.type] else f"error {error:.1e}"
    found: dict[str, dict[str, times.Times]] = {}
    for mode in times.modes(case.device):
        # The lengths of packed sequences come from the host at each call.
        others = [n for n in other_ways if (n, mode) != (PACKED, times.GRAPH)]
        best = min(others, key=lambda name: trial(functions[name], mode))
        sides = {name: functions[name] for name in (*OF_OURS, best)}
        for name, by_mode in times.measure(sides, seconds, (mode,)).items():
            found.setdefault(name, {}).update(by_mode)
    goal = GOAL if on_gpu else None
    beside = {name: goal for name in found if name in other_ways}
    table = f"LSTM, {case.type}, {case.device.type}, {SHARE:.0%} resets, times of a call"
    group = group_of(table, title, phase, found, dict.fromkeys(checks, beside))
    return [replace(row, check=checks.get(row.name, "-")) for row in group]


def trial(function: Callable[[], Any], mode: str) -> float:
    """Seconds of a call."""
    timer = times.graph_timer(function, 1) if mode == times.GRAPH else None
    return (timer or times.host_timer(function)).timeit(2).mean


# Limits between two ways that round differently: norms of differences over norms.
_TOLERANCE = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float32 (TF32)": 1e-2,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}


def step(module: nn.Module, x: Tensor, phase: str) -> Callable[[], Any]:
    if phase == BACKWARD:
        return training_step(module, x)
    return torch.no_grad()(partial(module.eval(), x))
