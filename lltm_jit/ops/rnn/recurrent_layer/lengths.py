"""Sequences of different lengths in one batch, and where their state is reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lltm_jit._library import refuse
from lltm_jit.ops.rnn.sequence import HOLDS, RESETS


@dataclass(frozen=True)
class Steps:
    """Which steps of a batch exist, and before which ones the state is reset."""

    behind: Tensor | None = None  # (L, B), bool: after a sequence's end
    reset: Tensor | None = None  # (L, B), bool
    packed: Tensor | None = None  # the batch sizes of packed sequences, for all of their parts
    # The states of resets, (K, num_layers * D, B, H) with K = 1 or L; zeros if None.
    to: list[Tensor] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        x: Tensor,
        lengths: Tensor | Sequence[int] | None,
        reset: Tensor | None,
        to: list[Tensor] | None,
    ) -> Steps:
        """The steps of sequences (L, B, ·); errors name the layer.

        A tensor of lengths on a GPU, or in a compiled program, is not read, because that would wait
        for it: a length above the number of steps counts as all of them.

        Raises:
            RuntimeError: the lengths are not one for each sequence, not whole numbers, or not from
                0 to the number of steps.
        """
        if lengths is None:
            return cls(None, reset, to=to)
        if isinstance(lengths, Tensor):
            ends = lengths.to(x.device)
        else:  # as_tensor() would make constants of them in a compiled program
            ends = torch.tensor(lengths, device=x.device)
        if ends.shape != x.shape[1:2]:
            refuse(name, f"lengths to have shape [batch] = {list(x.shape[1:2])}", list(ends.shape))
        whole = ends.dtype != torch.bool and not ends.dtype.is_floating_point
        if not whole and ends.numel():
            refuse(name, "lengths to be whole numbers", f"dtype {ends.dtype}")
        if (numbers := _numbers(lengths)) is None:
            ends = ends.long()
        elif wrong := [number for number in numbers if not 0 <= number <= x.size(0)]:
            refuse(name, f"lengths from 0 to {x.size(0)}, the number of steps", wrong[0])
        behind = steps_behind(x, ends)
        return cls(behind, None if reset is None else reset & ~behind, to=to)

    def inside(self, x: Tensor) -> Tensor:
        """An input with zeros after the sequences' ends, where it may have any numbers.

        No step reads them, but their products with zero gradients enter the weights' gradients.
        """
        return x if self.behind is None else x.masked_fill(self.behind.unsqueeze(2), 0)

    def control(self, reverses: Sequence[bool]) -> Tensor | None:
        """The kernels' ``control`` for one direction or both: see :func:`recurrent_sequence`."""
        holds = None if self.behind is None else self.behind.to(torch.uint8) * HOLDS
        if self.reset is None:
            return holds if holds is None or len(reverses) == 1 else holds.expand(2, -1, -1)
        each = []
        for reverse in reverses:
            reset = _at_step_before(self.reset) if reverse else self.reset
            marks = reset.to(torch.uint8) * RESETS
            each.append(marks if holds is None else marks + holds)
        return each[0] if len(each) == 1 else torch.stack(each)

    def states(self, first: int, reverses: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
        """The states that directions from the first on are reset to, beside each other.

        Returns:
            h, (K, B, ·), and the other states, (K, S-1, B, ·).
        """
        if self.to is None:
            return None, None
        found = []
        for state in self.to:
            own = [state[:, first + i] for i in range(len(reverses))]
            if state.size(0) > 1:
                pairs = zip(own, reverses, strict=True)
                own = [_at_step_before(each) if back else each for each, back in pairs]
            found.append(torch.cat(own, 2) if len(own) > 1 else own[0])
        return found[0], torch.stack(found[1:], 1) if len(found) > 1 else None


def _at_step_before(marks: Tensor) -> Tensor:
    """Marks moved one step back: the reverse direction meets a mark between two steps there."""
    return torch.cat([marks[1:], torch.zeros_like(marks[:1])])


def steps_behind(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(x.size(0), device=x.device).unsqueeze(1) >= lengths


def _numbers(lengths: Tensor | Sequence[int]) -> Sequence[int] | None:
    """The lengths, if they can be read without waiting for a GPU; else None."""
    if torch.compiler.is_compiling():
        return None
    if not isinstance(lengths, Tensor):
        return lengths
    batched = torch._C._functorch.is_functorch_wrapped_tensor(lengths)
    own = type(lengths) is Tensor and lengths.device.type == "cpu" and not batched
    return lengths.tolist() if own else None
