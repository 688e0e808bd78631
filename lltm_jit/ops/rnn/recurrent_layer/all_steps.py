"""The cell states after each step, as a layer returns them beside its output.

Sizes: L is the number of steps, B the batch size, H the hidden size of all directions of a call, S
the states of the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lltm_jit.ops.rnn.recurrent_layer.types import Pass, Results
from lltm_jit.ops.rnn.sequence import HOLDS, RESETS, Args, run_all_steps, run_sequence

# Note [States after resets]
# The operator returns the state at the beginning of each step. It is the state after the step
# before, unless a reset lies between the two. For rows with resets, all steps are computed again as
# the rows of one large batch, in a single step with one GEMM.


def run_cells(cell: str, args: Args, how: Pass, bidirectional: bool = False) -> Results:
    """:func:`run_sequence`; and, if they are wanted, the cell states after each step.

    These are (L, S-1, B, H), and zero for skipped steps.
    """
    reverse, tf32 = how.reverse, how.tf32
    if not how.every:
        return *run_sequence(cell, args, reverse, tf32, bidirectional), None
    output, h_n, c_n, before = run_all_steps(cell, args, reverse, tf32, bidirectional)
    *_, h_0, _, control = args
    backwards = [False, True] if bidirectional else [reverse]
    last = c_n.to(before.dtype).unsqueeze(0)
    after = _each(_next, backwards, before, last)
    if control is None:
        return output, h_n, c_n, after
    marks = [*control] if bidirectional else [control]
    pairs = zip(marks, backwards, strict=True)
    nexts = [_next(own, torch.zeros_like(own[:1]), back) for own, back in pairs]
    after = torch.where(_of_units(nexts, after, HOLDS), last, after)
    holds = _of_units(marks, after, HOLDS)
    if how.resets:
        first = torch.zeros_like(output[0]) if h_0 is None else h_0
        first, given = (first, None) if first.dim() == 2 else (first[0], first[1:])
        old = _each(_previous, backwards, output, first.unsqueeze(0))
        pairs = zip(marks, backwards, strict=True)
        earlier = [_previous(own, torch.zeros_like(own[:1]), back) for own, back in pairs]
        old = torch.where(_of_units(earlier, old, HOLDS), first, old)
        zero = torch.zeros((), dtype=old.dtype, device=old.device)
        old = torch.where(_of_units(marks, old, RESETS), zero if given is None else given, old)
        again = _one_step(cell, args, old, before.masked_fill(holds, 0), tf32, bidirectional)
        after = torch.where(_of_units(nexts, after, RESETS), again, after)
    return output, h_n, c_n, after.masked_fill(holds, 0)


def _one_step(
    cell: str, args: Args, h: Tensor, cells: Tensor, tf32: bool, bidirectional: bool
) -> Tensor:
    """The cell states after each step, from the states before it."""
    gates, weight_hh, bias_hh, parameters, *_ = args
    assert gates is not None
    rows = (h.flatten(0, 1), cells.transpose(0, 1).flatten(1, 2), None)
    of_all = (gates.flatten(0, 1).unsqueeze(0), weight_hh, bias_hh, parameters, *rows)
    _, _, found = run_sequence(cell, of_all, False, tf32, bidirectional)
    return found.unflatten(1, gates.shape[:2]).transpose(0, 1)


def _next(steps: Tensor, last: Tensor, reverse: bool) -> Tensor:
    """For each step, the step that is computed after it."""
    return torch.cat([last, steps[:-1]] if reverse else [steps[1:], last])


def _previous(steps: Tensor, first: Tensor, reverse: bool) -> Tensor:
    return _next(steps, first, not reverse)


def _each(
    function: Callable[[Tensor, Tensor, bool], Tensor],
    backwards: Sequence[bool],
    steps: Tensor,
    end: Tensor,
) -> Tensor:
    """Apply a function to the units of each direction."""
    count = len(backwards)
    pairs = zip(steps.chunk(count, -1), end.chunk(count, -1), backwards, strict=True)
    return torch.cat([function(*each) for each in pairs], -1)


def _of_units(marks: Sequence[Tensor], like: Tensor, what: int) -> Tensor:
    """Whether rows have the mark ``what``, broadcast to the dimensions of (L, ..., B, H)."""
    units = like.size(-1) // len(marks)
    each = [
        (mark == RESETS if what == RESETS else mark & HOLDS != 0)
        .view(mark.size(0), *[1] * (like.dim() - 3), -1, 1)
        .expand(*[-1] * (like.dim() - 1), units if len(marks) > 1 else 1)
        for mark in marks
    ]
    return torch.cat(each, -1) if len(each) > 1 else each[0]
