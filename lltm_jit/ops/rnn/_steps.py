"""Sequences of different lengths in one batch, and where their state is reset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lltm_jit._library import autocasts
from lltm_jit.ops.rnn.sequence import HOLDS, RESETS


@dataclass(frozen=True)
class Steps:
    """Which steps of a batch there are, and before which the state is reset."""

    behind: Tensor | None = None  # (L, B), bool: behind a sequence's end
    reset: Tensor | None = None  # (L, B), bool

    @classmethod
    def of(
        cls, name: str, x: Tensor, lengths: Tensor | Sequence[int] | None, reset: Tensor | None
    ) -> Steps:
        """Of sequences (L, B, ·), for the layer of a name.

        A tensor of lengths on a GPU, or in a compiled program, is not looked into, since that would
        wait for it: what it has beyond the steps counts as all of them.

        Raises:
            RuntimeError: there is not one length a sequence, it is no whole number, or no number of
                steps that there are.
        """
        if lengths is None:
            return cls(None, reset)
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
        if (numbers := _numbers(lengths)) is None:
            ends = ends.long().clamp(0, x.size(0))
        elif wrong := [number for number in numbers if not 0 <= number <= x.size(0)]:
            raise RuntimeError(
                f"{name}(): expected lengths from 0 to {x.size(0)}, the number of steps, "
                f"but got {wrong[0]}"
            )
        behind = _behind(x, ends)
        return cls(behind, None if reset is None else reset & ~behind)

    def inside(self, x: Tensor) -> Tensor:
        """An input with zeros behind the sequences' ends, where it may have any numbers.

        No step reads them. But their products with gradients of zero are added to the weights'.
        """
        return x if self.behind is None else x.masked_fill(self.behind.unsqueeze(2), 0)

    def control(self, reverse: bool) -> Tensor | None:
        """What the kernels are told, (L, B): see :func:`recurrent_sequence`."""
        if self.behind is None and self.reset is None:
            return None
        reset = self.reset
        if reset is not None and reverse:
            reset = torch.cat([reset[1:], torch.zeros_like(reset[:1])])
        control = 0 if reset is None else reset.to(torch.uint8) * RESETS
        return control if self.behind is None else control + self.behind.to(torch.uint8) * HOLDS


def _behind(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(x.size(0), device=x.device).unsqueeze(1) >= lengths


def _numbers(lengths: Tensor | Sequence[int]) -> Sequence[int] | None:
    """Lengths that can be looked into without waiting."""
    if torch.compiler.is_compiling():
        return None
    if not isinstance(lengths, Tensor):
        return lengths
    batched = torch._C._functorch.is_functorch_wrapped_tensor(lengths)
    own = type(lengths) is Tensor and lengths.device.type == "cpu" and not batched
    return lengths.tolist() if own else None


# -------------------------------------------------------------------------------- several parts --

# Note [Packed sequences]
# The sequences of a PackedSequence are in the order of their lengths, the longest first. Its steps
# are divided into parts, each with fewer rows than the one before. A part is padded, but to at most
# half as many rows again as it has: so a few long sequences cost nothing in the rows of the others.
# The number of parts grows with the logarithm of the batch size; it is one if the lengths differ
# little.

# Each some steps (L, B, ·), and their control.
Parts: TypeAlias = "list[tuple[Tensor, Tensor | None]]"

# Runs a part from h_0 and c_0, under its control, and gives output, h_n and c_n.
Run: TypeAlias = Callable[
    [Tensor, "Tensor | None", "Tensor | None", "Tensor | None"], "tuple[Tensor, Tensor, Tensor]"
]


def run_in_turn(
    run: Run,
    parts: Parts,
    h: Tensor | None,
    c: Tensor | None,
    size: tuple[int, int],
    reverse: bool,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Run over parts of a sequence in turn, from the last on if ``reverse``.

    A part has the first rows of the batch; the first part has all of them. A row's last states are
    those of the last part that has it.

    Args:
        run: what runs one of them.
        parts: the parts.
        h, c: h_0 (B, H), and c_0 (S-1, B, H); or ``None`` for zeros.
        size: S-1 and H.
        reverse: whether to begin with the last part.

    Returns:
        The outputs of the parts, h_n and c_n.
    """
    if len(parts) == 1:
        x, control = parts[0]
        output, h_n, c_n = run(x, h, c, control)
        return [output], h_n, c_n
    whole, dtype, (others, hidden_size) = parts[0][0], None if c is None else c.dtype, size
    if h is None:
        h = whole.new_zeros(whole.size(1), hidden_size)
    # Between the parts, too, these states do not lose their bits. A wrong dtype is refused later.
    wide = torch.promote_types(whole.dtype if c is None else c.dtype, torch.float)
    if c is None:
        c = whole.new_zeros(others, *h.shape, dtype=wide)
    elif c.dtype == whole.dtype or autocasts(whole):
        c = c.to(wide)
    outputs = []
    for x, control in reversed(parts) if reverse else parts:
        rows = x.size(1)
        output, h_n, c_n = run(x, h[:rows], c[:, :rows] if others else None, control)
        outputs.append(output)
        if rows < h.size(0):
            h_n = torch.cat([h_n, h[rows:].to(h_n.dtype)])
            c_n = torch.cat([c_n, c[:, rows:]], 1) if others else c
        h, c = h_n, c_n if others else c
    return outputs[::-1] if reverse else outputs, h, c.to(dtype or h.dtype)


def parts_of(batch_sizes: Sequence[int]) -> list[slice]:
    """The parts of packed sequences, as slices of their steps."""
    parts, begin, rows = [], 0, 0
    for step, size in enumerate(batch_sizes):
        rows += size
        if 2 * batch_sizes[begin] * (step + 1 - begin) > 3 * rows:
            parts.append(slice(begin, step))
            begin, rows = step, size
    return [*parts, slice(begin, len(batch_sizes))]


def unpacked(packed: PackedSequence) -> list[tuple[Tensor, Steps]]:
    """The parts of packed sequences, each (L, B, ·)."""
    sizes = [packed.batch_sizes[part] for part in parts_of(packed.batch_sizes.tolist())]
    parts = []
    for own, data in zip(sizes, packed.data.split([int(own.sum()) for own in sizes]), strict=True):
        if own[0] == own[-1]:
            parts.append((data.unflatten(0, (len(own), int(own[0]))), Steps()))
        else:
            x, lengths = pad_packed_sequence(PackedSequence(data, own))
            parts.append((x, Steps(_behind(x, lengths.to(x.device)))))
    return parts


def packed_again(outputs: Sequence[Tensor], packed: PackedSequence) -> PackedSequence:
    """The outputs of the parts, packed as the input was."""
    sizes = packed.batch_sizes.split([len(output) for output in outputs])
    data = []
    for own, output in zip(sizes, outputs, strict=True):
        if own[0] == own[-1]:
            data.append(output.flatten(0, 1))
        else:
            lengths = (own.unsqueeze(1) > torch.arange(int(own[0]), device=own.device)).sum(0)
            data.append(pack_padded_sequence(output, lengths).data)
    whole = torch.cat(data) if len(data) > 1 else data[0]
    return PackedSequence(whole, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
