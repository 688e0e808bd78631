"""Time the kinds of plans that a sequence may have on this GPU, and fit the plan's constants.

    python tools/fit_plan.py [--dtype half] [--layer LSTM] [--sizes 40] [--seed 0] [--seconds 0.05]

Sizes are random: 17 to 512 rows, hidden sizes that are multiples of 8, 64 steps, gates given. Each
has a line for each pass: us per step of each kind, in CUDA graphs, the quickest with a star, and
what the plan takes unless told otherwise. Then come the constants of ``cycles_of_steps()``
(kernels/rnn/sequence/plan/plan.cpp) as least squares have them, and for ranges of rows the hidden
sizes where Note [Many rows] is quickest, which many_rows/plan.h lists.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.sequence.cases import draw, use_precision
from benchmarks.shared import times
from lltm_jit import native
from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.rnn.recurrent_layer.warm import Calls, warm

PLANNED, BY_STEPS, MANY_ROWS = "planned", "by steps", "many rows"
KINDS = (PLANNED, BY_STEPS, "one launch", MANY_ROWS)  # as PlanKind has them
TYPES = {
    "half": (torch.half, "ieee"),
    "bfloat16": (torch.bfloat16, "ieee"),
    "float": (torch.float, "ieee"),
    "tf32": (torch.float, "tf32"),
}
GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1}
ROWS = (32, 64, 96, 128, 192, 256, 384, 512)
STEPS, MOST_UNITS = 64, 2112
CYCLES = 1.8e9  # a second, as Note [What a step costs] counts

Size = tuple[int, int]  # rows and hidden units
Found = dict[tuple[str, Size], dict[str, float]]  # by the pass: seconds of a step, by the kind


@contextmanager
def plans_of(kind: str) -> Iterator[None]:
    native.rnn.plan_sequences(KINDS.index(kind))
    try:
        yield
    finally:
        native.rnn.plan_sequences(0)


def compile_kernels(sizes: list[Size], layer: str, dtype: torch.dtype) -> None:
    calls = [Calls(layer.lower(), units, rows, dtype, True, False) for rows, units in sizes]
    calls += [Calls(call.cell, call.hidden_size, call.batch_size, dtype, False, False)
              for call in calls]  # fmt: skip
    for kind in KINDS:
        with plans_of(kind), ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(partial(warm, "fit_plan"), calls))


def passes(size: Size, layer: str, dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
    (rows, units), device = size, torch.device("cuda")
    gates = draw((STEPS, rows, GATES[layer] * units), device, dtype).requires_grad_()
    weights = draw((GATES[layer] * units, units), device, dtype) / units**0.5
    grad = draw((STEPS, rows, units), device, dtype)
    output = recurrent_sequence(layer.lower(), gates, weights)[0]
    return {
        "forward": partial(recurrent_sequence, layer.lower(), gates.detach(), weights),
        "backward": partial(torch.autograd.grad, output, [gates], grad, retain_graph=True),
    }


def measure(size: Size, layer: str, dtype: torch.dtype, seconds: float) -> Found:
    def of_kind(kind: str, function: Callable[[], Any]) -> Any:
        with plans_of(kind):
            return function()

    found: Found = {}
    for name, function in passes(size, layer, dtype).items():
        functions = {kind: partial(of_kind, kind, function) for kind in KINDS}
        timed = times.measure(functions, seconds, (times.GRAPH,), dict.fromkeys(KINDS, STEPS))
        found[name, size] = {kind: timed[kind][times.GRAPH].median for kind in KINDS}
    return found


def line(name: str, size: Size, of_kinds: dict[str, float]) -> str:
    best = min(of_kinds, key=lambda kind: of_kinds[kind])
    marks = [f"{kind} {of_kinds[kind] * 1e6:.2f}{'*' * (kind == best)}" for kind in KINDS]
    return f"B {size[0]}, H {size[1]} {name}: {', '.join(marks)}"


def constants(found: Found, layer: str, type: str) -> str:
    """Of plans step by step: cycles of launches, and multiply-adds and bytes a cycle."""
    names = {"half": "k{}", "bfloat16": "k{}", "float": "kFloat{}", "tf32": "kRounded{}"}[type]
    rows, cycles = [], []
    for (_, (batch, units)), of_kinds in found.items():
        weights = GATES[layer] * units**2
        rows.append([1.0, float(batch * weights), *[4.0 * weights] * (type == "tf32")])
        cycles.append([of_kinds[BY_STEPS] * CYCLES])
    fit = torch.linalg.lstsq(torch.tensor(rows).double(), torch.tensor(cycles).double()).solution
    launches, *of_one = fit.flatten().tolist()
    named = [f"{names.format('Launches')} = {launches:.0f}"]
    named += [
        f"{names.format(what)} = {1 / each:.0f}"
        for what, each in zip(("Library", "Bytes"), of_one, strict=False)
    ]
    return f"constexpr double {', '.join(named)};"


def ranges(found: Found) -> Iterator[str]:
    for name, (fewest, most) in product(
        ("forward", "backward"), zip((0, *ROWS), ROWS, strict=False)
    ):
        inside = {
            size[1]: min(of_kinds, key=lambda kind: of_kinds[kind] * (kind != PLANNED or 1e9))
            for (of_pass, size), of_kinds in sorted(found.items())
            if of_pass == name and fewest < size[0] <= most
        }
        both = [[u for u, kind in inside.items() if (kind == MANY_ROWS) is is_it]
                for is_it in (True, False)]  # fmt: skip
        yield f"{name}, {fewest + 1} to {most} rows: many rows at H {both[0]}, not at {both[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--dtype", choices=list(TYPES), default="half")
    parser.add_argument("--layer", choices=list(GATES), default="LSTM")
    parser.add_argument("--sizes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05, help="for each kind")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    sizes = [(chance.randint(17, 512), 8 * chance.randint(8, MOST_UNITS // 8))
             for _ in range(args.sizes)]  # fmt: skip
    dtype, precision = TYPES[args.dtype]
    native.load("rnn")
    found: Found = {}
    with use_precision(precision):
        compile_kernels(sizes, args.layer, dtype)
        for size in sizes:
            of_size = measure(size, args.layer, dtype, args.seconds)
            print(*(line(*key, kinds) for key, kinds in of_size.items()), sep="\n", flush=True)
            found |= of_size
    print(constants(found, args.layer, args.dtype), *ranges(found), sep="\n")


if __name__ == "__main__":
    main()
