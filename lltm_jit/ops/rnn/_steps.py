"""Sequences of different lengths in one batch, and where their state is reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lltm_jit.ops.rnn.sequence import HOLDS, RESETS


@dataclass(frozen=True)
class Steps:
    """Which steps of a batch there are, and before which the state is reset."""

    behind: Tensor | None  # (L, B), bool: behind a sequence's end
    reset: Tensor | None  # (L, B), bool
    order: Tensor | None  # (L, B): each sequence's steps from its last to its first

    @classmethod
    def of(
        cls, name: str, x: Tensor, lengths: Tensor | Sequence[int] | None, reset: Tensor | None
    ) -> Steps:
        """Of sequences (L, B, ·), for the layer of a name.

        What a tensor of lengths has beyond the steps counts as all of them: to look would wait for
        a GPU.

        Raises:
            RuntimeError: there is not one length a sequence, it is no whole number, or no number of
                steps that there are.
        """
        if lengths is None:
            return cls(None, reset, None)
        ends = torch.as_tensor(lengths, device=x.device)
        if ends.shape != x.shape[1:2]:
            raise RuntimeError(
                f"{name}(): expected lengths to have shape [batch] = {list(x.shape[1:2])}, "
                f"but got {list(ends.shape)}"
            )
        whole = ends.dtype != torch.bool and not ends.dtype.is_floating_point
        if not whole and ends.numel():
            raise RuntimeError(
                f"{name}(): expected lengths to be whole numbers, but got dtype {ends.dtype}"
            )
        if isinstance(lengths, Tensor) or torch.compiler.is_compiling():
            ends = ends.long().clamp(0, x.size(0))
        elif wrong := [length for length in lengths if not 0 <= length <= x.size(0)]:
            raise RuntimeError(
                f"{name}(): expected lengths from 0 to {x.size(0)}, the number of steps, "
                f"but got {wrong[0]}"
            )
        time = torch.arange(x.size(0), device=x.device).unsqueeze(1)
        inside = time < ends
        order = torch.where(inside, ends - 1 - time, time)
        return cls(~inside, None if reset is None else reset & inside, order)

    @property
    def turns(self) -> bool:
        """Whether a sequence is turned round for the other direction, and not only walked so."""
        return self.order is not None

    def turned(self, x: Tensor) -> Tensor:
        """The steps of each sequence in the other order; as they are where the kernels walk so."""
        if self.order is None:
            return x
        return x.gather(0, self.order.unsqueeze(2).expand_as(x))

    def control(self, reverse: bool) -> Tensor | None:
        """What the kernels are told, (L, B): see :func:`recurrent_sequence`."""
        if self.behind is None and self.reset is None:
            return None
        reset = self.reset
        if reset is not None and reverse:
            reset = torch.cat([reset[1:], torch.zeros_like(reset[:1])])
            reset = reset if self.order is None else reset.gather(0, self.order)
        control = 0 if reset is None else reset.to(torch.uint8) * RESETS
        return control if self.behind is None else control + self.behind.to(torch.uint8) * HOLDS
