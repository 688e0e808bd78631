"""What padding costs: layers of any hidden size beside the next multiple of 16."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..shared import times
from ..shared.table import Row, group_of
from .cases import Case

HIDDEN = [*range(1, 41), *range(649, 654), *range(1149, 1154)]
_GOAL = 1.03  # the time over that of the multiple


def beside_multiples(case: Case) -> Iterator[list[Case]]:
    """Layers like this one of all hidden sizes; each list begins with their multiple of 16."""
    for multiple, sizes in itertools.groupby(HIDDEN, lambda size: -(-size // 16) * 16):
        all_sizes = dict.fromkeys([multiple, *sizes])
        yield [replace(case, hidden_size=size) for size in all_sizes]


def rows(cases: Sequence[Case], phase: str, seconds: float) -> list[Row]:
    first = cases[0]
    functions = {f"H {case.hidden_size}": case.step(case.layer, phase) for case in cases}
    steps = dict.fromkeys(functions, first.steps)
    found = times.measure(functions, seconds, times.modes(first.device)[:1], steps)
    table = f"{first.type}, {first.device.type}, B {first.batch_size}, T {first.steps}"
    leads, *others = functions
    beside = {name: {leads: _GOAL} for name in others}
    return group_of(f"{table}, times of one step", leads, phase, found, beside)
