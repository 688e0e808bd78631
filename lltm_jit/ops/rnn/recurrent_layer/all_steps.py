"""The cell states after each step, as a layer returns them beside its output.

Sizes: L is the number of steps, B the batch size, H the hidden size of all directions of a call, S
the states of the cell.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    after = _next(before, last, backwards)
    if control is None:
        return output, h_n, c_n, after
    units = h_n.size(1) // len(backwards)
    marks = (control.movedim(0, 2) if bidirectional else control.unsqueeze(2)).unsqueeze(1)
    holds, resets = marks & HOLDS != 0, marks == RESETS

    def of_units(marks: Tensor, order: Sequence[bool] | None = None) -> Tensor:
        """Marks (L, 1, B, D) of each step, or of the one after it, for all units of a direction."""
        if order is not None:
            marks = _next(marks, torch.zeros_like(marks[:1]), order)
        return marks.unsqueeze(4).expand(-1, -1, -1, -1, units).flatten(3)

    after = torch.where(of_units(holds, backwards), last, after)
    if how.resets:
        first = torch.zeros_like(output[0]) if h_0 is None else h_0
        first, given = (first, None) if first.dim() == 2 else (first[0], first[1:])
        opposite = [not back for back in backwards]  # the next step is the one before
        old = _next(output, first.unsqueeze(0), opposite)
        old = torch.where(of_units(holds, opposite).squeeze(1), first, old)
        zero = torch.zeros((), dtype=old.dtype, device=old.device)
        old = torch.where(of_units(resets).squeeze(1), zero if given is None else given, old)
        cells = before.masked_fill(of_units(holds), 0)
        again = _one_step(cell, args, old, cells, tf32, bidirectional)
        after = torch.where(of_units(resets, backwards), again, after)
    return output, h_n, c_n, after.masked_fill(of_units(holds), 0)


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


def _next(steps: Tensor, last: Tensor, backwards: Sequence[bool]) -> Tensor:
    """For each step, the step that is computed after it; a direction has its part of the units."""
    count = len(backwards)
    each = zip(steps.chunk(count, -1), last.chunk(count, -1), backwards, strict=True)
    found = [torch.cat([end, own[:-1]] if back else [own[1:], end]) for own, end, back in each]
    return torch.cat(found, -1)
