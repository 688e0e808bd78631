"""Sequences that run in parts: packed sequences, and sequences with checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from lltm_jit._library import autocasts
from lltm_jit.ops.rnn.recurrent_layer.lengths import Steps, steps_behind
from lltm_jit.ops.rnn.recurrent_layer.types import Results

_LITTLE = 1 << 12  # elements

# Note [Packed sequences]
# The sequences of a PackedSequence are in the order of their lengths, the longest first. Its steps
# are divided into parts, each with fewer rows than the one before. Padding adds at most
# half of a part's rows, so a few long sequences do not make the short ones run for as many steps.
# The number of parts grows with the logarithm of the batch size; it is one if the lengths differ
# little.

# Each part has steps (L, B, ·), their control, and the h and the other states of resets.
Parts: TypeAlias = "list[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]]"

# Runs a part x from h_0 and c_0, with the layer's weights: run(x, h_0, c_0, control, reset_h,
# reset_cells, *weights). Every tensor is an argument, because a backward pass may run it again when
# the layer has other weights.
Run: TypeAlias = Callable[..., Results]


def run_in_turn(
    run: Run,
    parts: Parts,
    h: Tensor | None,
    c: Tensor | None,
    weights: Sequence[Tensor],
    sizes: tuple[int, int, int],
    reverse: bool,
) -> tuple[list[Tensor], Tensor, Tensor, Tensor | None]:
    """Run over parts of a sequence in turn, from the last on if ``reverse``.

    A part has the first rows of the batch; the first part has all rows. A row's last states are
    those of the last part that has the row. ``h`` is h_0 (B, ·), and ``c`` is c_0 (S-1, B, H), or
    None for zeros; ``sizes`` are the features of h, then S-1 and H of c. Returns the outputs of the
    parts, h_n, c_n, and the other states after each step.
    """
    if len(parts) == 1:
        x, *controls = parts[0]
        output, h_n, c_n, cells = run(x, h, c, *controls, *weights)
        return [output], h_n, c_n, cells
    whole, dtype, (features, others, units) = parts[0][0], None if c is None else c.dtype, sizes
    if h is None:
        h = whole.new_zeros(whole.size(1), features)
    # These states keep the bits of float between the parts. A wrong dtype is refused later.
    wide = torch.promote_types(whole.dtype if c is None else c.dtype, torch.float)
    if c is None:
        c = whole.new_zeros(others, whole.size(1), units, dtype=wide)
    elif c.dtype == whole.dtype or autocasts(whole):
        c = c.to(wide)
    outputs: list[Tensor] = []
    all_cells: list[Tensor] = []
    for x, *controls in reversed(parts) if reverse else parts:
        rows = x.size(1)
        old = (h[:rows], c[:, :rows] if others else None)
        output, h_n, c_n, cells = run(x, *old, *controls, *weights)
        outputs.append(output)
        if cells is not None:
            all_cells.append(cells)
        if rows < h.size(0):
            h_n = torch.cat([h_n, h[rows:].to(h_n.dtype)])
            c_n = torch.cat([c_n, c[:, rows:]], 1) if others else c
        h, c = h_n, c_n if others else c
    if reverse:
        outputs, all_cells = outputs[::-1], all_cells[::-1]
    whole_cells = torch.cat(all_cells) if all_cells else None
    return outputs, h, c.to(dtype or h.dtype), whole_cells


def recomputes() -> bool:
    """Whether a backward pass can recompute: not under torch.func, which has no hooks."""
    if not torch.is_grad_enabled():
        return False
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is None


def checkpointed(run: Run, most: int, sizes: tuple[int, int, int], reverse: bool) -> Run:
    """Like `run`, in pieces of ``most`` steps, which the backward pass computes again."""
    again = partial(checkpoint, run, use_reentrant=False)

    def in_pieces(
        x: Tensor,
        h_0: Tensor | None,
        c_0: Tensor | None,
        *others: Tensor | None,
    ) -> Results:
        pieces, controls, weights = x.split(most), others[:3], others[3:]
        of_pieces = [split(tensor, x.size(0), len(pieces)) for tensor in controls]
        parts = list(zip(pieces, *of_pieces, strict=True))
        outputs, *last = run_in_turn(again, parts, h_0, c_0, weights, sizes, reverse)
        return torch.cat(outputs), *last

    def split(tensor: Tensor | None, steps: int, pieces: int) -> Sequence[Tensor | None]:
        if tensor is None or tensor.size(0) != steps:  # the same for all steps
            return [tensor] * pieces
        return tensor.split(most)

    return in_pieces


def run_packed(
    layers: Callable[..., tuple[list[Tensor], list[Tensor], list[Tensor]]],
    packed: PackedSequence,
    states: list[Tensor] | None,
) -> tuple[PackedSequence, list[Tensor]]:
    """Run layers over packed sequences. The states are sorted by length and sorted back."""
    if states is not None and packed.sorted_indices is not None:
        states = [tensor.index_select(1, packed.sorted_indices) for tensor in states]
    outputs, last, _ = layers(unpacked(packed), states)
    if packed.unsorted_indices is not None:
        last = [tensor.index_select(1, packed.unsorted_indices) for tensor in last]
    return packed_again(outputs, packed), last


def dropped(parts: list[Tensor], p: float, batch_sizes: Tensor | None) -> list[Tensor]:
    """The parts (L, B, ·) after dropout. Packed sequences get the mask that their data would."""
    if batch_sizes is None:
        return [F.dropout(x, p) for x in parts]
    mask = F.dropout(parts[0].new_ones(int(batch_sizes.sum()), parts[0].size(2)), p)
    masks = unpacked(PackedSequence(mask, batch_sizes))
    return [x * own for x, (own, _) in zip(parts, masks, strict=True)]


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """torch.stack() without copying a single tensor. The result is no view, so detach_() works."""
    one, *others = tensors
    if others or not one.size(1):
        return torch.stack(tensors)
    # Copying little is faster than calling that operator.
    if one.is_cpu and not torch.compiler.is_compiling() and one.numel() <= _LITTLE:
        return torch.stack(tensors)
    # The -1 lets a traced layer take other batch sizes.
    return torch.ops.aten._unsafe_view.default(one, [1, -1, one.size(1)])


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
            x, behind = data.unflatten(0, (len(own), int(own[0]))), None
        else:
            x, lengths = pad_packed_sequence(PackedSequence(data, own))
            behind = steps_behind(x, lengths.to(x.device))
        parts.append((x, Steps(behind, packed=packed.batch_sizes)))
    return parts


def packed_again(outputs: list[Tensor], packed: PackedSequence) -> PackedSequence:
    """The outputs of the parts, packed as the input was. The list is emptied to free memory."""
    sizes = packed.batch_sizes.split([len(output) for output in outputs])
    data = [_packed_part(outputs.pop(0), own) for own in sizes]
    whole = torch.cat(data) if len(data) > 1 else data[0]
    return PackedSequence(whole, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _packed_part(output: Tensor, sizes: Tensor) -> Tensor:
    if sizes[0] == sizes[-1]:
        return output.flatten(0, 1)
    lengths = (sizes.unsqueeze(1) > torch.arange(int(sizes[0]), device=sizes.device)).sum(0)
    return pack_padded_sequence(output, lengths).data
