"""Measure an implementation of the LLTM cell: is it right, how quick is it, what is the limit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lltm_jit.jit import LltmJitError

from . import _busy

if TYPE_CHECKING:  # it imports torch.utils.cpp_extension, which looks for CUDA, and may print
    from torch.utils.benchmark import Timer

PHASES = ("forward, no_grad", "forward", "forward + backward")
GRAPH_CALLS = 20  # in one CUDA graph, so that its own launch weighs little
_FEWEST_SAMPLES = 7  # enough for quartiles
_FIRST_CALLS = 5  # to find out how long one takes
_TURN = 0.01  # seconds
_PEAKS = 3  # measurements more of a peak that was exceeded
_SPREAD = 0.25  # of the middle half of the samples, as a share of the median
_GRAPH_SECONDS = 0.01  # that a replay takes at most, where a call is shorter

Cell = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """One size: what is measured, whatever measures it."""

    batch_size: int
    input_size: int
    hidden_size: int
    dtype: torch.dtype
    device: torch.device

    def operands(self) -> list[Tensor]:
        """input, weights, bias, old_h, old_cell, each requiring grad; the same at every call."""
        generator = torch.Generator().manual_seed(0)
        columns = self.hidden_size + self.input_size
        scale = self.hidden_size**-0.5  # as the module initialises its parameters

        def draw(*shape: int) -> Tensor:
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return values.to(self.device, self.dtype)

        tensors = [
            draw(self.batch_size, self.input_size),
            draw(3 * self.hidden_size, columns) * scale,
            draw(3 * self.hidden_size) * scale,
            draw(self.batch_size, self.hidden_size),
            draw(self.batch_size, self.hidden_size),
        ]
        return [tensor.requires_grad_() for tensor in tensors]

    def operations(self, phase: str) -> int:
        """Multiplications and additions of the matrix products, which are nearly all there is."""
        forward = 2 * self.batch_size * 3 * self.hidden_size * (self.hidden_size + self.input_size)
        return 3 * forward if phase == PHASES[2] else forward

    def bytes(self, phase: str) -> int:
        """The fewest bytes that must move: every operand read once, every result written once."""
        B, I, H = self.batch_size, self.input_size, self.hidden_size  # noqa: E741
        weights = 3 * H * (H + I) + 3 * H
        state, gates = 2 * B * H, 3 * B * H
        forward = weights + B * I + state + state
        # The backward reads what the forward read, the new cell, the gates and two gradients, and
        # writes a gradient for each operand.
        operands = weights + B * I + state
        backward = operands + B * H + gates + state + operands
        elements = {PHASES[0]: forward, PHASES[1]: forward + gates}
        elements[PHASES[2]] = forward + gates + backward
        return elements[phase] * self.dtype.itemsize


@dataclass(frozen=True)
class Times:
    """Seconds of one call: quartiles and the least, of `count` samples.

    ``waited`` is the share of a sample's time in which a thread waited for a processor, as another
    program had it: the median of the samples.
    """

    least: float
    lower: float
    median: float
    upper: float
    count: int
    waited: float = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether the machine had too much else to do for these times to be relied on."""
        return self.upper - self.lower > _SPREAD * self.median or self.waited > _busy.LIMIT


def run_phase(cell: Cell, operands: list[Tensor], phase: str) -> Callable[[], Any]:
    """A function without arguments that does what the phase says."""
    if phase == PHASES[0]:

        def forward() -> Any:
            with torch.no_grad():
                return cell(*operands)

        return forward
    if phase == PHASES[1]:
        return lambda: cell(*operands)
    grads = [torch.ones_like(operands[3]), torch.ones_like(operands[4])]
    return lambda: torch.autograd.grad(cell(*operands), operands, grads)


def addmm_alone(case: Case) -> Callable[[], Any]:
    """The matrix product inside a forward and nothing else, to compare with."""
    input, weights, bias, old_h, _ = (tensor.detach() for tensor in case.operands())
    X, transposed = torch.cat([old_h, input], 1), weights.t()
    return lambda: torch.addmm(bias, X, transposed)


def host_timer(function: Callable[[], Any]) -> Timer:
    """Times calls as a program makes them; on a GPU with its work at the end of each block."""
    from torch.utils.benchmark import Timer

    return Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())


def graph_timer(function: Callable[[], Any], calls: int = GRAPH_CALLS) -> Timer | None:
    """Times blocks of `calls` in a CUDA graph: what the GPU needs, whatever the host does.

    None for a function that launches on a stream of its own: the graph misses those kernels.
    """
    from torch.utils.benchmark import Timer

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            results = function()
    outputs = [tensor.detach() for tensor in (results if isinstance(results, tuple) else [results])]
    for output in outputs:
        output.fill_(torch.nan)
    graph.replay()
    if any(output.isnan().any() for output in outputs):
        return None
    return Timer("graph.replay()", globals={"graph": graph})


def sure_graph_timer(name: str, function: Callable[[], Any], calls: int) -> Timer:
    """As :func:`graph_timer`, of a function that must be in the graph.

    Raises:
        LltmJitError: it is not; the message has its name.
    """
    timer = graph_timer(function, calls)
    if timer is None:
        raise LltmJitError(f"{name} uses a stream of its own, which a CUDA graph does not capture")
    return timer


def calls_in_graph(function: Callable[[], Any]) -> int:
    """How many to take into a graph: as many as of short kernels, but few of what takes long."""
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    calls = _GRAPH_SECONDS / (time.perf_counter() - start)
    return min(max(1, round(calls)), GRAPH_CALLS)


def take_turns(
    timers: Sequence[Timer], seconds: float, calls: int | Sequence[float] = 1
) -> list[Times]:
    """Time several functions in turns, so that a machine whose speed drifts treats all alike.

    Args:
        timers: of the functions.
        seconds: for each.
        calls: of what is measured, in one statement of a timer; a number for all or for each, which
            may be a part of a call.
    """
    # Timer.blocked_autorange takes blocks so long that a synchronisation weighs nothing, far beyond
    # a turn.
    blocks = [max(1, round(_TURN / timer.timeit(_FIRST_CALLS).mean)) for timer in timers]
    samples: list[list[float]] = [[] for _ in timers]
    waits: list[list[float]] = [[] for _ in timers]
    counts = [calls] * len(timers) if isinstance(calls, int) else calls
    end = time.monotonic() + seconds * len(timers)
    while timers and (time.monotonic() < end or len(samples[0]) < _FEWEST_SAMPLES):
        for timer, block, count, of_one, waited in zip(
            timers, blocks, counts, samples, waits, strict=True
        ):
            waiting = _busy.Waiting()
            of_one.append(timer.timeit(block).mean / count)
            waited.append(waiting.share())
    return [
        replace(summary(of_one), waited=statistics.median(waited))
        for of_one, waited in zip(samples, waits, strict=True)
    ]


def summary(seconds: list[float]) -> Times:
    """Quartiles of samples."""
    values = torch.tensor(seconds, dtype=torch.float64)
    lower, median, upper = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    return Times(min(seconds), lower.item(), median.item(), upper.item(), len(seconds))


@cache
def mismatch(cell: Cell, reference: Cell, case: Case) -> str:
    """How far results and gradients are from the float64 reference; see :func:`compare`."""
    operands = case.operands()
    exact = _results(reference, [tensor.detach().double().requires_grad_() for tensor in operands])
    baseline = _results(reference, operands)
    return compare(_results(cell, operands), baseline, exact)


def compare(
    values: list[Tensor], baseline: list[Tensor], exact: list[Tensor], times: float = 2
) -> str:
    """How far values are from the exact ones; empty when as near as they can.

    As near means: at most so many times the error that the baseline makes in their type, plus one
    rounding.
    """
    for value, plain, true in zip(values, baseline, exact, strict=True):
        # In double the baseline is what is exact, and sums are long.
        rounding = 1e-12 if value.dtype == torch.double else 4 * torch.finfo(value.dtype).eps
        scale = true.abs().max().item() or 1.0
        error = (value.double() - true).abs().max().item() / scale
        allowed = times * (plain.double() - true).abs().max().item() / scale + rounding
        if not error <= allowed:  # NaN is no match
            return f"error {error:.1e}"
    return ""


def _results(cell: Cell, operands: list[Tensor]) -> list[Tensor]:
    outputs = cell(*operands)
    grads = [torch.ones_like(output) for output in outputs]
    return [*outputs, *torch.autograd.grad(outputs, operands, grads)]


_peaks: dict[tuple[torch.device, torch.dtype], tuple[float, float]] = {}


def peak(device: torch.device, dtype: torch.dtype, operations: float = 0.0) -> tuple[float, float]:
    """What this machine reaches, a second: operations of a matrix product, bytes of a copy.

    Measured again where something has reached more ``operations`` by now: the machine may have been
    busy when it was measured first.
    """
    key = (device, dtype)
    if key not in _peaks:
        _peaks[key] = _peak(device, dtype)
    for _ in range(_PEAKS):
        if operations <= _peaks[key][0]:
            break
        again = _peak(device, dtype)
        _peaks[key] = (max(_peaks[key][0], again[0]), max(_peaks[key][1], again[1]))
    return _peaks[key]


def _peak(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    size = 8192 if device.type == "cuda" else 512
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    block = torch.empty(2**28 if device.type == "cuda" else 2**26, dtype=torch.uint8, device=device)
    target = torch.empty_like(block)
    timers = [host_timer(lambda: matrix @ matrix), host_timer(lambda: target.copy_(block))]
    product, copy = take_turns(timers, 0.3)
    return 2 * size**3 / product.least, 2 * block.numel() / copy.least
