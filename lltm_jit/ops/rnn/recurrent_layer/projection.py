"""LSTMs with a proj_size: their output is W_hr u, a projection of their hidden units u.

Sizes: L is the number of steps, B the batch size, H the hidden units, P their projections, D the
directions that run in a call.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lltm_jit.ops.rnn.recurrent_layer.all_steps import run_cells
from lltm_jit.ops.rnn.recurrent_layer.types import Pass, Results
from lltm_jit.ops.rnn.sequence import (
    HOLDS,
    RESETS,
    Operands,
    input_gates,
    run_layer,
    with_resets,
)

# Note [Projections]
# A step multiplies twice: its hidden units u give h = W_hr u, and then W_hh h. So u has the
# recurrence of an LSTM without projection, with the recurrent weights W_hh W_hr. This recurrence
# runs in one call, and one GEMM then projects all steps. h_0 is not the projection of any u, so u
# starts at zero, and the product W_hh h_0 is added to the gates of each row's first step. In the
# same way, the product with an h that rows are reset to is added after each reset.
#
# The product of the weights takes P * 4HH multiplications per call, and a step takes 4HH per row
# instead of 5HP. On a GPU this is little compared with the launches that it saves. On a CPU it is
# much if H is large or steps are few, as in streams: then each step runs as torch operations.


def run_projected(
    how: Pass,
    operands: Operands,
    weights_hr: list[Tensor],
    h_0: Tensor | None,
    c_0: Tensor | None,
    control: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
) -> Results:
    """:func:`run_layer` of an LSTM with the projection W_hr (P, H) of each direction.

    ``weight_hh`` is (4H, P), or (2, 4H, P) for both directions. Rows are reset to the h (K, B, DP)
    and the c (K, 1, B, DH).

    Returns:
        The output (L, B, DP), h_n (B, DP) and c_n (1, B, DH); and ``every`` c, (L, 1, B, DH).
    """
    x, weight_ih, weight_hh, bias_ih, bias_hh = operands
    reverse, tf32, resets = how.reverse, how.tf32, (reset_h, reset_c)
    if _better_by_steps(operands, weights_hr[0], h_0, c_0, *resets):
        gates = input_gates(x, weight_ih, bias_ih)
        states = (h_0, c_0, control, *resets)
        return _by_steps(gates, weight_hh, weights_hr[0], *states, how.every, reverse)
    count, both = len(weights_hr), len(weights_hr) > 1
    projections, units = weights_hr[0].shape
    first, last = _ends(x, control, [False, True] if both else [reverse])
    rows = torch.arange(x.size(1), device=x.device)
    sides = torch.arange(count, device=x.device).unsqueeze(1)
    at_first = None
    if h_0 is not None:
        h_0 = h_0.unflatten(1, (count, projections)).transpose(0, 1)
        if control is not None:
            at_first = _of_sides(control)[sides, first, rows].unsqueeze(2)
    weight = _product(weight_hh, torch.stack(weights_hr) if both else weights_hr[0])
    args = (None, None, with_resets(c_0, reset_c), control)
    cells = None
    if h_0 is None and reset_h is None and not how.every:
        whole = (x, weight_ih, weight, bias_ih, bias_hh)
        hidden, _, c_n = run_layer("lstm", whole, args, reverse, tf32, both)
    else:
        weights = weight_hh.view(-1, *weight_hh.shape[-2:])
        gates = input_gates(x, weight_ih, bias_ih, tf32).unflatten(2, (count, 4 * units))
        if h_0 is not None:
            old = h_0 if at_first is None else h_0.masked_fill(at_first & RESETS != 0, 0)
            parts = zip(old, weights, strict=True)
            products = torch.cat([input_gates(h.unsqueeze(0), w, None, tf32) for h, w in parts])
            gates = gates.index_put((first, rows, sides), products, accumulate=True)
        if reset_h is not None and control is not None:
            marks = _of_sides(control).movedim(0, 2).unsqueeze(3) == RESETS
            read = marks if reset_h.size(0) > 1 else marks.any(0, keepdim=True)
            old = reset_h.unflatten(2, (count, projections)).masked_fill(~read, 0)  # may be NaN
            parts = zip(old.unbind(2), weights, strict=True)
            more = torch.stack([input_gates(h, w, None, tf32) for h, w in parts], 2)
            gates = gates + more.masked_fill(~marks, 0)
        given = (gates.flatten(2), weight, bias_hh, *args)
        hidden, _, c_n, cells = run_cells("lstm", given, how, both)
    outputs_of = zip(hidden.chunk(count, 2), weights_hr, strict=True)
    outputs = [input_gates(u, w, None, tf32) for u, w in outputs_of]
    output = torch.cat(outputs, 2) if both else outputs[0]
    h_n = output.unflatten(2, (count, projections))[last, rows, sides]
    if h_0 is not None and at_first is not None:  # rows without a step keep h_0
        h_n = torch.where(at_first & HOLDS != 0, h_0.to(h_n.dtype), h_n)
    return output, h_n.transpose(0, 1).flatten(1), c_n, cells


def _product(weight_hh: Tensor, weight_hr: Tensor) -> Tensor:
    """W_hh W_hr of both directions or of one, rounded once."""
    if weight_hh.dim() == 2:
        return input_gates(weight_hh.unsqueeze(0), weight_hr.t()).squeeze(0)
    return torch.stack([_product(*each) for each in zip(weight_hh, weight_hr, strict=True)])


def _of_sides(control: Tensor) -> Tensor:
    """The control bytes of each direction, or of both at once, (D or 1, L, B)."""
    return control if control.dim() == 3 else control.unsqueeze(0)


def _ends(x: Tensor, control: Tensor | None, backwards: list[bool]) -> tuple[Tensor, Tensor]:
    """The first and the last step that each row computes, (D, B)."""
    begin = torch.zeros(x.size(1), dtype=torch.long, device=x.device)
    if control is None:
        end = begin + (x.size(0) - 1)
    else:  # it skips the same steps in both directions
        skipped = _of_sides(control)[0] & HOLDS
        end = ((skipped == 0).sum(0) - 1).clamp(min=0)
    first = torch.stack([end if backward else begin for backward in backwards])
    return first, torch.stack([begin if backward else end for backward in backwards])


def _better_by_steps(operands: Operands, weight_hr: Tensor, *states: Tensor | None) -> bool:
    """Whether :func:`_by_steps` is faster on a CPU. Wrong calls are left to the operators."""
    x, weight_ih, weight_hh, *_ = operands
    if not x.is_cpu or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    others = (weight_ih, weight_hh, weight_hr, *states)
    if any(t is not None and (not t.is_cpu or t.dtype != x.dtype) for t in others):
        return False
    (steps, batch_size), (projections, units) = x.shape[:2], weight_hr.shape
    # Measured, in multiplications: a step's function calls and a unit's maths. Reading the weights
    # takes as long as multiplying 8 rows.
    calls, maths, rows = 4_000_000, 1500, max(batch_size, 8)
    by_steps = steps * (rows * 5 * units * projections + calls + batch_size * units * maths)
    at_once = 4 * units * units * (projections + steps * rows)
    return by_steps < at_once


def _by_steps(
    gates: Tensor,
    weight_hh: Tensor,
    weight_hr: Tensor,
    h_0: Tensor | None,
    c_0: Tensor | None,
    control: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    every: bool,
    reverse: bool,
) -> Results:
    """Run step by step in torch's operations. The state of 16-bit types stays in float."""
    wide = torch.promote_types(gates.dtype, torch.float)
    weight_hh, weight_hr = weight_hh.to(wide), weight_hr.to(wide)
    zero = torch.zeros((), dtype=wide, device=gates.device)
    h = zero.expand(gates.size(1), weight_hr.size(0)) if h_0 is None else h_0.to(wide)
    c = zero.expand(gates.size(1), weight_hr.size(1)) if c_0 is None else c_0[0].to(wide)
    given = (reset_h, None if reset_c is None else reset_c.squeeze(1))
    to = [zero.view(1, 1, 1) if resets is None else resets.to(wide) for resets in given]
    steps, cells = list(gates.unbind(0)), [c] * len(gates)
    order = range(len(steps))
    for t in reversed(order) if reverse else order:
        old, before = h, c
        if control is not None:
            marks, skips = ((control[t] & what != 0).unsqueeze(1) for what in (RESETS, HOLDS))
            h, c = (
                torch.where(marks, other[t if len(other) > 1 else 0], state)
                for other, state in zip(to, (h, c), strict=True)
            )
        i, f, g, o = torch.addmm(steps[t].to(wide), h, weight_hh.t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = output = F.linear(o.sigmoid() * c.tanh(), weight_hr)
        cells[t] = c
        if control is not None:
            output, cells[t] = h.masked_fill(skips, 0), c.masked_fill(skips, 0)
            h, c = torch.where(skips, old, h), torch.where(skips, before, c)
        steps[t] = output
    output, h_n = torch.stack(steps).to(gates.dtype), h.to(gates.dtype)
    all_cells = torch.stack(cells).unsqueeze(1) if every else None
    return output, h_n, c.to(gates.dtype).unsqueeze(0), all_cells
