"""Time the kinds of plans that a sequence may have on this GPU, and fit the plan's constants.

    python tools/fit_plan.py [--dtype half] [--layer LSTM] [--sizes 40] [--steps 64] [--seed 0]
                             [--seconds 0.05]

Sizes are random: 17 to 512 rows, hidden sizes that are multiples of 8; gates are given. Each size
has a line for each pass: us per step of each kind of plan, in CUDA graphs. A star marks the
quickest kind, and "planned" is the plan's own choice. Then come the numbers of
``cycles_of_steps()`` (kernels/rnn/sequence/plan/cycles.h) by least squares, and for ranges of rows
the hidden sizes where Note [Many rows] is quickest, which many_rows/plan.h lists.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.sequence import compile_kernels
from benchmarks.sequence.cases import Case, draw, gates, use_precision
from benchmarks.shared import times
from lltm_jit import native

PLANNED, STEPS, MANY_ROWS = "planned", "steps", "many rows"
KINDS = (PLANNED, STEPS, "persistent", MANY_ROWS)  # as PlanKind has them
TYPES = {
    "half": (torch.half, "ieee"),
    "bfloat16": (torch.bfloat16, "ieee"),
    "float": (torch.float, "ieee"),
    "tf32": (torch.float, "tf32"),
}
LAYERS = ("LSTM", "GRU", "RNN_TANH")
ROWS = (32, 64, 96, 128, 192, 256, 384, 512)
MOST_UNITS = 2112
CYCLES = 1.8e9  # a second, as Note [What a step costs] counts

Size = tuple[int, int]  # rows and hidden units
Found = dict[tuple[str, Size], dict[str, float]]  # for each pass: seconds of a step by kind


@contextmanager
def plans_of(kind: str) -> Iterator[None]:
    native.rnn.plan_sequences(KINDS.index(kind))
    try:
        yield
    finally:
        native.rnn.plan_sequences(0)


def passes(case: Case) -> dict[str, Callable[[], Any]]:
    def random_numbers(*shape: int) -> torch.Tensor:
        return draw(shape, case.device, case.dtype)

    rows, units = case.batch_size, case.hidden_size
    columns, cell = gates(case.layer) * units, case.layer.lower()
    of_input = random_numbers(case.steps, rows, columns)
    weights = random_numbers(columns, units) / units**0.5
    grad = random_numbers(case.steps, rows, units)
    none, tf32 = [None] * 4, case.precision == "tf32"
    given, how = (of_input, weights, None, *none, False, cell), (tf32, False)
    operators = torch.ops.lltm_jit
    output, *_, saved_gates, saved_cells = operators.recurrent_sequence_forward(*given, *how)
    saved, wanted = (output, saved_gates, saved_cells), [True, *[False] * 5]
    back = (grad, None, None, *given, *how, *saved, wanted)
    return {
        "forward": partial(operators.recurrent_sequence, *given, *how),
        "backward": lambda: operators.recurrent_sequence_backward(*back)[0],
    }


def measure(case: Case, seconds: float) -> Found:
    def of_kind(kind: str, function: Callable[[], Any]) -> Any:
        with plans_of(kind):
            return function()

    found: Found = {}
    for name, function in passes(case).items():
        functions = {kind: partial(of_kind, kind, function) for kind in KINDS}
        timed = times.measure(functions, seconds, (times.GRAPH,), dict.fromkeys(KINDS, case.steps))
        of_kinds = {kind: timed[kind][times.GRAPH].median for kind in KINDS}
        found[name, (case.batch_size, case.hidden_size)] = of_kinds
    return found


def line(name: str, size: Size, of_kinds: dict[str, float]) -> str:
    best = min(of_kinds, key=lambda kind: of_kinds[kind])
    marks = [f"{kind} {of_kinds[kind] * 1e6:.2f}{'*' * (kind == best)}" for kind in KINDS]
    return f"B {size[0]}, H {size[1]} {name}: {', '.join(marks)}"


def constants(found: Found, layer: str, type: str) -> str:
    """The numbers of plans by steps: cycles of launches, and each SM's work in a cycle."""
    sms = torch.cuda.get_device_properties().multi_processor_count
    rows, cycles = [], []
    for (_, (batch, units)), of_kinds in found.items():
        columns = gates(layer) * units
        moved = batch * columns * (8 if type in ("float", "tf32") else 4)
        moved += 4 * columns * units * (type == "tf32")
        rows.append([1.0, batch * columns * units / sms, moved / sms])
        cycles.append([of_kinds[STEPS] * CYCLES])
    factors = torch.tensor(rows).double()
    fit = torch.linalg.lstsq(factors, torch.tensor(cycles).double()).solution
    launches, product, byte = fit.flatten().tolist()
    exact = type == "float"  # whose launches count twice, and whose products use all lanes
    rate = f"{'kLanes' if exact else 'kLibrary'} = {1 / product:.0f}"
    return f"kLaunches = {launches / (1 + exact):.0f}, {rate}, kMemoryBytes = {1 / byte:.0f}"


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
    parser.add_argument("--layer", choices=LAYERS, default="LSTM")
    parser.add_argument("--sizes", type=int, default=40)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05, help="for each kind of plan")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    dtype, precision = TYPES[args.dtype]
    numbers = (args.steps, dtype, torch.device("cuda"), precision, args.layer)
    cases = [
        Case(chance.randint(17, 512), 8 * chance.randint(8, MOST_UNITS // 8), *numbers)
        for _ in range(args.sizes)
    ]
    native.load("rnn")
    for kind in KINDS:
        with plans_of(kind):
            compile_kernels((case, [case.layer]) for case in cases)
    found: Found = {}
    with use_precision(precision):
        for case in cases:
            of_size = measure(case, args.seconds)
            print(*(line(*key, kinds) for key, kinds in of_size.items()), sep="\n", flush=True)
            found |= of_size
    print(constants(found, args.layer, args.dtype), *ranges(found), sep="\n")


if __name__ == "__main__":
    main()
