"""What `benchmark sequence` measures: layers over a sequence, torch's beside ours, and a floor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lltm_jit.ops.rnn.layer import RecurrentLayer
from lltm_jit.ops.rnn.layers import GRU, LLTM, LSTM
from lltm_jit.ops.rnn.lltm import LLTMCell

FORWARD, BACKWARD = "forward", "forward + backward"
PHASES = (FORWARD, BACKWARD)
OURS: dict[str, type[RecurrentLayer]] = {"LLTM": LLTM, "LSTM": LSTM, "GRU": GRU}
THEIRS = {"LLTM": "nn.LSTM", "LSTM": "nn.LSTM", "GRU": "nn.GRU"}  # what is beside them
LOOP = "loop of cells"
_GRADIENT = 1e-3  # that of the LLTM grows on its way through many steps


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


MODULES = {**OURS, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU, LOOP: LoopOfCells}


@dataclass(frozen=True)
class Case:
    """Sequences of one size, whatever runs over them; as many features as hidden units."""

    batch_size: int
    hidden_size: int
    steps: int
    dtype: torch.dtype
    device: torch.device

    def input(self) -> Tensor:
        shape = (self.steps, self.batch_size, self.hidden_size)
        return draw(shape, self.device, self.dtype)

    def module(self, name: str) -> nn.Module:
        """One of `MODULES`."""
        size = (self.hidden_size, self.hidden_size)
        return MODULES[name](*size, device=self.device, dtype=self.dtype)

    def step(self, name: str, phase: str) -> Callable[[], Any]:
        """What is timed: a function without arguments that does what the phase says."""
        module, x = self.module(name), self.input()
        if phase == BACKWARD:
            return training_step(module, x)
        module.eval()

        def forward() -> tuple[Tensor, ...]:
            with torch.no_grad():
                output, state = module(x)
            return (output, state) if isinstance(state, Tensor) else (output, *state)

        return forward


def draw(shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Random numbers, the same at every call."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return values.to(device, dtype)


def training_step(module: nn.Module, x: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Gradients of the input and of all parameters, from one of the output."""
    module.train()  # which cuDNN's backward pass insists on
    leaves = [x.requires_grad_(), *module.parameters()]
    grad = _GRADIENT * draw(module(x)[0].shape, x.device, x.dtype)
    return lambda: torch.autograd.grad(module(x)[0], leaves, grad)


# ----------------------------------------------------------------------------------- the floor --


def gates(layer: str) -> int:
    return OURS[layer].cell.gates


def operations(case: Case, layer: str, phase: str) -> int:
    """Multiplications and additions a step, of the matrix products of input and output."""
    forward = 2 * case.batch_size * gates(layer) * case.hidden_size * 2 * case.hidden_size
    return 3 * forward if phase == BACKWARD else forward


# Of an H200, in cycles if nothing else is said; kernels/rnn/sequence/README.md has their sources.
_CLOCK = 1.8e9
_SMS = 132
_CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # of so many blocks, that run at once
_BLOCK_BYTES = (227 + 192) * 1024  # of weights: shared memory, three quarters of the registers
_ROWS = 4  # that one takes, at the least: half of a product of 16-bit types
_BARRIER, _EXCHANGE = 60, 300  # of a block; in a cluster
_RECEIVED = 21  # bytes a cycle
_GRID = 1000  # a word's way through L2
_CELL = 150  # from a gate's sum to the output
_SM_PRODUCTS = 4 * 2048 / 6.2  # multiply-adds a cycle of 16-bit types, by mma.sync
_LIBRARY = 990e12  # operations a second of the library's products
_COST = {torch.float: 3, torch.double: 15}  # products of 16-bit types that one stands for


def gpu_floor(case: Case, layer: str, phase: str) -> float:
    """Seconds a step, at the least, of kernels that keep the weights on the chip.

    A step waits for the output of the one before, so its parts come one after the other: the
    output's way to the blocks that need it, the products, and the cell. A cluster takes some rows
    of the batch, and shares the hidden units; or, where the weights do not fit into one, the whole
    grid does. The backward pass goes through as long a chain. The library makes the products of
    all steps at once: one forward, three more backward.
    """
    rows, hidden, cost = case.batch_size, case.hidden_size, _COST.get(case.dtype, 1)
    weights, width = gates(layer) * hidden**2, case.dtype.itemsize
    chains = [_GRID + cost * rows * weights / (_SMS * _SM_PRODUCTS)]
    for blocks, clusters in _CLUSTERS.items():
        if weights * width > blocks * _BLOCK_BYTES:
            continue
        of_cluster = _ROWS * math.ceil(rows / clusters / _ROWS)
        received = of_cluster * hidden * width / _RECEIVED
        exchange = _BARRIER if blocks == 1 else _EXCHANGE + received
        chains.append(exchange + cost * of_cluster * weights / (blocks * _SM_PRODUCTS))
    chain = (min(chains) + _CELL) / _CLOCK
    product = 2 * cost * rows * weights / _LIBRARY
    return chain + product if phase == FORWARD else 2 * chain + 4 * product


def floor(case: Case, layer: str, phase: str, peak: float) -> float:
    """Seconds a step at the least; on a CPU the products at this machine's `peak`."""
    if case.device.type == "cuda":
        return gpu_floor(case, layer, phase)
    return operations(case, layer, phase) / peak
