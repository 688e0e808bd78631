"""Runs the layers and directions of a call in turn, except for the ordinary calls of ``plain.py``.

Sizes: L is the number of steps, B the batch size, I the input size, H the hidden size, D the number
of directions, S the states of the cell.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import autocasts
from lltm_jit.ops.rnn.recurrent_layer import plain
from lltm_jit.ops.rnn.recurrent_layer.all_steps import run_cells
from lltm_jit.ops.rnn.recurrent_layer.inputs import names_of_resets, refuse_misfits
from lltm_jit.ops.rnn.recurrent_layer.lengths import Steps
from lltm_jit.ops.rnn.recurrent_layer.parts import (
    Parts,
    Run,
    checkpointed,
    dropped,
    recomputes,
    run_in_turn,
    stacked,
)
from lltm_jit.ops.rnn.recurrent_layer.projection import run_projected
from lltm_jit.ops.rnn.recurrent_layer.types import Pass, Results
from lltm_jit.ops.rnn.recurrent_layer.warm import Warmed
from lltm_jit.ops.rnn.sequence import (
    ALIGNED,
    input_gates,
    pad_gates,
    pads_gates,
    run_layer,
    runs_as_called,
    uses_tf32,
    with_resets,
)


class Directions(Warmed):
    """The part of a layer that runs its cells over a sequence."""

    def _layers(
        self,
        parts: list[tuple[Tensor, Steps]],
        states: list[Tensor] | None,
        return_states: bool = False,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Run all layers over the parts of a sequence, each (L, B, I).

        Returns:
            The outputs of the parts, and the last states, each (num_layers * D, B, H); and, if they
            are wanted, those after each step, (L, num_layers * D, B, H).
        """
        (x, of_first), *more = parts
        whole = not more and of_first.behind is None and of_first.reset is None
        if whole and not return_states and type(x) is Tensor and runs_as_called(x):
            found = plain.plainly(self, x, None if states is None else tuple(states))
            if found is not None:
                return found[:1], found[1:], []
        ends: list[list[Tensor]] = []
        every: list[list[Tensor]] = []
        xs, steps = [x for x, _ in parts], [steps for _, steps in parts]
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                xs = dropped(xs, self.dropout, of_first.packed)
            outputs, suffixes = [], self._suffixes(layer)
            for own in [suffixes] if self._together(xs) else [[s] for s in suffixes]:
                first, reverses = len(ends), [suffix.endswith("_reverse") for suffix in own]
                pieces = [
                    (x, s.control(reverses), *s.states(first, reverses))
                    for x, s in zip(xs, steps, strict=True)
                ]
                old = None if states is None else [t[first : first + len(own)] for t in states]
                wanted = (return_states, of_first.reset is not None)
                output, end, of_steps = self._recurrences(pieces, own, old, reverses[0], *wanted)
                outputs.append(output)
                ends += end
                every += of_steps
            both = zip(*outputs, strict=True)
            xs = [torch.cat(each, 2) if len(each) > 1 else each[0] for each in both]
        last = [stacked(tensors) for tensors in zip(*ends, strict=True)]
        return xs, last, [torch.stack(tensors, 1) for tensors in zip(*every, strict=True)]

    def _together(self, parts: list[Tensor]) -> bool:
        """Whether both directions run in one call: over one part, from its two ends."""
        x, units = parts[0], self.hidden_size // self.num_heads
        if not self.bidirectional or len(parts) > 1 or (self.checkpoint and recomputes()):
            return False
        if not self.cell.ordinary:
            return False
        # A compiled or recorded call is not for one GPU or size alone.
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(x) is not Tensor:
            return x.is_cuda and units % ALIGNED == 0
        if x.is_cpu and self.proj_size:  # it may run by steps, which have one direction
            return False
        how = (self.cell.name, False, torch.is_grad_enabled(), uses_tf32(x))
        return bool(native.rnn.directions_together(x, units, self.num_heads, *how))

    def _recurrences(
        self,
        parts: Parts,
        suffixes: list[str],
        states: list[Tensor] | None,
        reverse: bool,
        every: bool,
        resets: bool,
    ) -> tuple[list[Tensor], list[list[Tensor]], list[list[Tensor]]]:
        """Run the cells of one direction, or of both, over parts (L, B, ·) and their controls.

        Returns:
            The outputs of the parts; for each direction the last states, each (B, H); and, for
            ``every`` step, the states after it, each (L, B, H).
        """
        count = len(suffixes)
        old = None
        if states is not None:  # beside each other, as the outputs are
            old = [t[0] if count == 1 else t.transpose(0, 1).flatten(1) for t in states]
        h_0 = None if old is None else old[0]
        c_0 = None if old is None or len(old) == 1 else torch.stack(old[1:])
        sizes = (self._output_size, self.cell.states - 1, self.hidden_size)
        try:
            # Read once, because a recomputation needs the same weights and the same precision.
            names = [*self._shapes(*suffixes)]
            weights = [getattr(self, name) for name in names]
            kinds, tf32 = [name.partition("_l")[0] for name in names], uses_tf32(parts[0][0])
            how = Pass(kinds, reverse, tf32, every and self.cell.states > 1, resets)
            run: Run = partial(self._run, how)
            if self.checkpoint and recomputes():
                run = checkpointed(run, self.checkpoint, sizes, reverse)
            outputs, h_n, c_n, cells = run_in_turn(run, parts, h_0, c_0, weights, sizes, reverse)
        except (RuntimeError, TypeError, AttributeError):
            # The message may name tensors that a caller of the layer never sees.
            given = {"input": parts[0][0], "h_0": h_0, "c_0": c_0}
            given |= zip(names_of_resets(self.cell.states), parts[0][2:], strict=False)
            refuse_misfits(self, given, suffixes)
            raise
        if c_n.dtype != h_n.dtype and autocasts(c_n):  # as in torch's layers; the operator keeps it
            c_n = c_n.to(h_n.dtype)
        # Not by unbind(), which torch.export does not load if there are no other states.
        others = range(self.cell.states - 1)
        last = [h_n, *(c_n[i] for i in others)]
        of_steps = []
        if every:
            of_steps = [outputs[0]]
            if cells is not None:
                of_steps += [cells[:, i].to(c_n.dtype) for i in others]

        def apart(states: list[Tensor]) -> list[list[Tensor]]:
            if count == 1 or not states:
                return [states] if states else []
            return [list(own) for own in zip(*(t.chunk(2, -1) for t in states), strict=True)]

        return outputs, apart(last), apart(of_steps)

    def _run(
        self,
        how: Pass,
        x: Tensor,
        h_0: Tensor | None,
        c_0: Tensor | None,
        control: Tensor | None,
        reset_h: Tensor | None,
        reset_cells: Tensor | None,
        *weights: Tensor,
    ) -> Results:
        """Run over a part (L, B, ·) of a sequence."""
        own, reverse, tf32 = how.by_kind(weights), how.reverse, how.tf32
        directions = len(own["weight_ih"])

        def of(kind: str, dim: int = 0) -> Tensor:
            each = own[kind]
            if directions == 1:
                return each[0]
            one, other = (tensor.dtype for tensor in each)
            if one is not other:
                raise RuntimeError(f"expected {kind} of one dtype, but got {one} and {other}")
            if kind == "weight_hh" and self.num_heads == 1:
                return torch.stack(each)
            return torch.cat(each, dim)

        cell = self.cell
        weight_ih = of("weight_ih")
        weight_hh = of("weight_hh") if cell.product else weight_ih.new_empty(0, self.hidden_size)
        bias = of("bias_ih") if self.bias else None
        bias_hh = of("bias_hh") if self.bias and cell.hidden_bias else None
        if bias_hh is not None and directions > 1 and cell.adds_gates:
            # A copy, because the gradients of both biases would be views of the same memory.
            bias_hh = bias_hh * 1
        parameters = of("parameters", 1) if cell.parameters else None
        operands = (x, weight_ih, weight_hh, bias, bias_hh)
        if cell.ordinary and not self.proj_size and pads_gates(operands):
            operands = pad_gates(operands, cell.gates, cell.adds_gates)
        elif bias is not None and bias_hh is not None and cell.adds_gates:
            if (bias.dtype, bias.shape) != (bias_hh.dtype, bias_hh.shape):
                got = " and ".join(f"{list(b.shape)} of {b.dtype}" for b in (bias, bias_hh))
                raise RuntimeError(f"expected biases of one shape and dtype, but got {got}")
            both = bias + bias_hh  # added where it costs least
            bias, bias_hh = (None, both) if x.is_cuda else (both, None)
            operands = (x, weight_ih, weight_hh, bias, bias_hh)
        if self.proj_size:
            states = (h_0, c_0, control, reset_h, reset_cells)
            return run_projected(how, operands, own["weight_hr"], *states)
        args = (parameters, with_resets(h_0, reset_h), with_resets(c_0, reset_cells), control)
        if not how.every:
            return *run_layer(cell.name, operands, args, reverse, tf32, directions > 1), None
        x, weight_ih, weight_hh, bias_ih, bias_hh = operands
        gates = input_gates(x, weight_ih, bias_ih, tf32)
        return run_cells(cell.name, (gates, weight_hh, bias_hh, *args), how, directions > 1)
