"""Clocks: how long functions take, in turns, and what this machine reaches at best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from . import busy

if TYPE_CHECKING:  # it imports torch.utils.cpp_extension, which looks for CUDA, and may print
    from torch.utils.benchmark import Timer

# Ways of calling: from the host, which on a GPU waits for the work at the end; in a CUDA graph,
# which shows the GPU's time without the host's; and the time of all processors in a build.
HOST, GRAPH, PROCESSORS = "as called", "in a graph", "processors"

_CALLS_IN_GRAPH = 20  # so that the graph's own launch weighs little
_FEWEST_SAMPLES = 7  # enough for quartiles
_FIRST_CALLS = 5  # to find out how long a call takes
_TURN = 0.01  # seconds
_PEAKS = 3  # further measurements of a peak that was exceeded
_SPREAD = 0.25  # the widest middle half of reliable samples, as a share of the median
_GRAPH_SECONDS = 0.01  # the most that a replay of several calls takes

Function = Callable[[], Any]


@dataclass(frozen=True)
class Times:
    """Seconds of one call: quartiles and the least, of `count` samples.

    ``busy`` says that other programs had a part of the processors meanwhile.
    """

    least: float
    lower: float
    median: float
    upper: float
    count: int
    busy: bool = False

    @property
    def doubtful(self) -> bool:
        """Whether the machine was too busy to rely on these times."""
        return self.busy or self.upper - self.lower > _SPREAD * self.median


def constant(seconds: float, busy: bool = False) -> Times:
    """The times of a call that was measured once, or not at all."""
    return Times(seconds, seconds, seconds, seconds, 1, busy)


def modes(device: torch.device) -> tuple[str, ...]:
    """The ways of calling that are timed on a device."""
    return (GRAPH, HOST) if device.type == "cuda" else (HOST,)


def measure(
    functions: Mapping[str, Function],
    seconds: float,
    modes: Sequence[str],
    units: Mapping[str, float] | None = None,
) -> dict[str, dict[str, Times]]:
    """Time functions in turns: by name, and by the way of calling.

    Args:
        functions: by name.
        seconds: for each, and for each way of calling.
        modes: the ways of calling. A function that no CUDA graph captures has no time in one.
        units: how many units, such as steps, a call of each function has; by default 1. Times are
            those of one unit.
    """
    found: dict[str, dict[str, Times]] = {name: {} for name in functions}
    for mode in modes:
        timers, counts = {}, []
        for name, function in functions.items():
            calls = calls_in_graph(function) if mode == GRAPH else 1
            timer = graph_timer(function, calls) if mode == GRAPH else host_timer(function)
            if timer:
                timers[name] = timer
                counts.append(calls * (units or {}).get(name, 1))
        for name, times in zip(
            timers, take_turns([*timers.values()], seconds, counts), strict=True
        ):
            found[name][mode] = times
    return found


def host_timer(function: Callable[[], Any]) -> Timer:
    """Times calls as a program makes them; on a GPU with its work at the end of each block."""
    from torch.utils.benchmark import Timer

    return Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())


def graph_timer(function: Callable[[], Any], calls: int) -> Timer | None:
    """Times blocks of `calls` in a CUDA graph: the GPU's time without the host's.

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
    outputs = [tensor.detach() for tensor in tree_leaves(results)]
    for output in outputs:
        output.fill_(torch.nan)
    graph.replay()
    if any(output.isnan().any() for output in outputs):
        return None
    return Timer("graph.replay()", globals={"graph": graph})


def calls_in_graph(function: Callable[[], Any]) -> int:
    """How many calls a graph gets: many of a short function, and few of a long one."""
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    calls = _GRAPH_SECONDS / (time.perf_counter() - start)
    return min(max(1, round(calls)), _CALLS_IN_GRAPH)


def take_turns(timers: Sequence[Timer], seconds: float, counts: Sequence[float]) -> list[Times]:
    """Time several functions in turns, so that a machine whose speed drifts treats all alike.

    Args:
        timers: of the functions.
        seconds: for each.
        counts: how many units a statement of each timer has.
    """
    # Timer.blocked_autorange would take blocks far longer than a turn, so that synchronisations
    # weigh nothing.
    blocks = [max(1, round(_TURN / timer.timeit(_FIRST_CALLS).mean)) for timer in timers]
    samples: list[list[float]] = [[] for _ in timers]
    waits: list[list[float]] = [[] for _ in timers]
    end = time.monotonic() + seconds * len(timers)
    while timers and (time.monotonic() < end or len(samples[0]) < _FEWEST_SAMPLES):
        for timer, block, count, of_one, waited in zip(
            timers, blocks, counts, samples, waits, strict=True
        ):
            waiting = busy.Waiting()
            of_one.append(timer.timeit(block).mean / count)
            waited.append(waiting.share())
    return [
        replace(summary(of_one), busy=statistics.median(waited) > busy.LIMIT)
        for of_one, waited in zip(samples, waits, strict=True)
    ]


def summary(seconds: list[float]) -> Times:
    """Quartiles of samples."""
    values = torch.tensor(seconds, dtype=torch.float64)
    lower, median, upper = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    return Times(min(seconds), lower.item(), median.item(), upper.item(), len(seconds))


_peaks: dict[tuple[torch.device, torch.dtype], tuple[float, float]] = {}


def peak(device: torch.device, dtype: torch.dtype, operations: float = 0.0) -> tuple[float, float]:
    """The peak of this machine, per second: operations of a GEMM, and bytes of a copy.

    It is measured again if a function has reached more ``operations`` since, because the machine
    may have been busy.
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
    product, copy = take_turns(timers, 0.3, [1, 1])
    operations = 2 * size**3 / product.least
    if device.type == "cpu" and dtype.itemsize == 2:  # not every processor multiplies 16 bits
        operations = max(operations, peak(device, torch.float)[0])
    return operations, 2 * block.numel() / copy.least


def compare(
    values: list[Tensor], baseline: list[Tensor], exact: list[Tensor], times: float = 2
) -> str:
    """How far values are from the exact ones: "match" if they are near enough, or the error.

    Near enough is at most ``times`` the error of the baseline in the same type, plus one rounding.
    """
    for value, plain, true in zip(values, baseline, exact, strict=True):
        # In double the baseline is the exact result, and sums are long.
        rounding = 1e-12 if value.dtype == torch.double else 4 * torch.finfo(value.dtype).eps
        scale = true.abs().max().item() or 1.0
        error = (value.double() - true).abs().max().item() / scale
        allowed = times * (plain.double() - true).abs().max().item() / scale + rounding
        if not error <= allowed:  # NaN is no match
            return f"error {error:.1e}"
    return "match"
