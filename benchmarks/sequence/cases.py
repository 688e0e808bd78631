"""The layers that run over a sequence: ours, torch's, and a loop of cells."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lltm_jit.ops.rnn.layers import LAYERS
from lltm_jit.ops.rnn.lltm import LLTMCell
from lltm_jit.ops.rnn.recurrent_layer.types import Cell
from lltm_jit.ops.rnn.recurrent_layer.warm import Warmed

from ..shared.table import type_name

FORWARD, BACKWARD = "forward", "forward + backward"
PHASES = (FORWARD, BACKWARD)
OURS = {layer.__name__: layer for layer in LAYERS.values()}
THEIRS = {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU, "nn.RNN": nn.RNN}
LOOP = "loop of cells"
_GRADIENT = 1e-3  # small, because the LLTM's gradient grows over many steps


@contextmanager
def use_precision(precision: str) -> Iterator[None]:
    """Set the precision of floats in torch's recurrent layers, and ours, on a GPU."""
    before = torch.backends.cudnn.rnn.fp32_precision
    torch.backends.cudnn.rnn.fp32_precision = precision
    try:
        yield
    finally:
        torch.backends.cudnn.rnn.fp32_precision = before


class LoopOfCells(nn.Module):
    """An LLTM layer as the extension tutorial has it: plain PyTorch, step by step."""

    def __init__(
        self, input_size: int, hidden_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.cell = LLTMCell(input_size, hidden_size, device=device, dtype=dtype, impl="reference")

    def forward(self, input: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h = input.new_zeros(input.size(1), self.cell.hidden_size)
        c = h.to(torch.promote_types(input.dtype, torch.float))
        outputs = []
        for step in input:
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs), (h, c)


MODULES = {**OURS, **THEIRS, LOOP: LoopOfCells}


@dataclass(frozen=True)
class Case:
    """Sequences of one size, for any layer, or for the one in ``layer``."""

    batch_size: int
    hidden_size: int
    steps: int
    dtype: torch.dtype
    device: torch.device
    precision: str = "ieee"  # or "tf32", for floats on a GPU
    layer: str = ""  # a name of `OURS`
    layers: int = 1
    directions: int = 1
    features: int = 0  # the input's; 0 for as many as hidden units
    goals: tuple[float, float] | None = None  # one for each of `PHASES`, beside torch's layer

    @property
    def type(self) -> str:
        return "float32 (TF32)" if self.precision == "tf32" else type_name(self.dtype)

    @property
    def title(self) -> str:
        if not self.layer:
            return f"B {self.batch_size}, H {self.hidden_size}"
        both = " bi" * (self.directions - 1)
        what = f"{self.layer} {self.layers} x {self.hidden_size}{both}"
        given = f" of {self.features}" * (self.features not in (0, self.hidden_size))
        return f"{what}{given}, B{self.batch_size} T{self.steps}"

    @property
    def widths(self) -> list[int]:
        """Features that each layer is given."""
        inner = self.hidden_size * self.directions
        return [self.features or self.hidden_size, *[inner] * (self.layers - 1)]

    def input(self) -> Tensor:
        shape = (self.steps, self.batch_size, self.widths[0])
        return draw(shape, self.device, self.dtype)

    def module(self, name: str) -> nn.Module:
        """One of `MODULES`."""
        size = (self.widths[0], self.hidden_size)
        stack: dict[str, Any] = {}
        if self.layer:
            stack = {"num_layers": self.layers, "bidirectional": self.directions == 2}
        return MODULES[name](*size, device=self.device, dtype=self.dtype, **stack)

    def step(self, name: str, phase: str) -> Callable[[], Any]:
        """What is timed: a function without arguments that does what the phase says."""
        module, x = self.module(name), self.input()
        if phase == BACKWARD:
            return training_step(module, x)
        return torch.no_grad()(partial(module.eval(), x))


def compile_side_by_side(layers: Iterable[Warmed], rows: Iterable[int]) -> None:
    """Compile what layers need on a GPU, each for a batch of so many rows, in both phases."""

    def compile_one(layer: Warmed, rows: int) -> None:
        for training in (False, True):
            layer.warm(rows, training=training)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, layers, rows))


def draw(shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Random numbers, the same at every call."""
    generator = torch.Generator(device).manual_seed(0)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def training_step(module: nn.Module, x: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Gradients of the input and of all parameters, from a gradient of the output."""
    module.train()  # cuDNN's backward pass needs it
    leaves = [x.requires_grad_(), *module.parameters()]
    grad = _GRADIENT * draw(module(x)[0].shape, x.device, x.dtype)
    return lambda: torch.autograd.grad(module(x)[0], leaves, grad)


def theirs(layer: str) -> str:
    """The layer of torch to compare with: the same one, or one with as many states."""
    if f"nn.{layer}" in THEIRS:
        return f"nn.{layer}"
    return "nn.GRU" if cell_of(layer).states == 1 else "nn.LSTM"


def cell_of(layer: str) -> Cell:
    """The cell of an instance, because a class may have several."""
    return OURS[layer](1, 1, device="meta").cell


def gates(layer: str) -> int:
    return cell_of(layer).gates


def operations(case: Case, layer: str, phase: str) -> int:
    """Multiplications and additions per step, in the matrix products of input and output."""
    units = case.directions * gates(layer) * case.hidden_size
    forward = 2 * case.batch_size * units * sum(case.hidden_size + width for width in case.widths)
    return 3 * forward if phase == BACKWARD else forward
