"""Layers of recurrent cells over sequences, like :class:`torch.nn.LSTM` and ``GRU``.

Sizes: L is the number of steps, B the batch size, I the input size, H the hidden size, D the number
of directions (2 if bidirectional), G and S the gates and states of the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

from lltm_jit._library import refuse, refuse_non_tensor
from lltm_jit.ops.rnn.recurrent_layer import plain
from lltm_jit.ops.rnn.recurrent_layer.directions import Directions
from lltm_jit.ops.rnn.recurrent_layer.inputs import (
    check_input,
    check_packed,
    name_of,
    reset_mask,
    states_to_reset_to,
    whole_states,
)
from lltm_jit.ops.rnn.recurrent_layer.lengths import Steps
from lltm_jit.ops.rnn.recurrent_layer.parts import run_packed
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import traced
from lltm_jit.ops.rnn.recurrent_layer.types import State
from lltm_jit.ops.rnn.sequence import runs_as_called


class RecurrentLayer(Directions):
    """The base class of all recurrent layers; :func:`lltm_jit.recurrent_cell` makes your own.

    L is the number of steps, B the batch size, I the input size, H the hidden size, D the number of
    directions (2 if bidirectional), G the number of gates of the cell, and P its number of
    parameters per hidden unit.

    Every layer k has the parameters ``weight_ih_lk`` of shape (GH, I), or (GH, DH) for k > 0,
    ``weight_hh_lk`` of shape (GH, H), ``bias_ih_lk`` and ``bias_hh_lk`` of shape (GH,), and
    ``parameters_lk`` of shape (P, H) if the cell has any. The other direction's names end in
    ``_reverse``. All are initialised uniformly in ±1/sqrt(H). In the equations of a cell, ``x`` is
    the product of ``weight_ih`` and the input, and ``y`` is the product of ``weight_hh`` and the
    old output, each with its bias.

    Args:
        input_size: I, the number of features of ``input``.
        hidden_size: H, the number of features of the state.
        num_layers: how many layers to stack.
        bias: whether there are biases.
        batch_first: whether ``input`` and ``output`` are (B, L, features), not (L, B, features).
        dropout: the probability of dropout on the output of each layer except the last. On a CPU
            the mask is the one that torch's layers draw with the same seed.
        bidirectional: whether a second set of cells runs from the last step to the first.
        proj_size: the number of features that the output is projected to, less than H; 0 for no
            projection. It is only for an :class:`~lltm_jit.LSTM` without heads.
        checkpoint: if not 0, the layer keeps the state only after every ``checkpoint`` steps, and
            the backward pass recomputes the steps between. This saves the memory for their gates,
            but has no effect under :mod:`torch.func`.
        num_heads: N, the number of heads that the hidden units are divided into. Heads have no
            recurrent weights between them: ``weight_hh_lk`` has the shape (N, GH/N, H/N), the
            diagonal blocks of the gates' matrices. With N = H each unit sees only its own old
            output, so that an RNN with relu is an IndRNN.
        device: the device of the parameters.
        dtype: the dtype of the parameters: half, bfloat16, float or double.

    Raises:
        TypeError: if a size or count is not an int, or ``dropout`` not a number.
        ValueError: if a number is out of range, or ``proj_size`` is for another layer.

    Note:
        **16-bit types.** The state stays in float between steps. Only the output is rounded between
        the pieces of a sequence: with ``checkpoint``, in a packed sequence of very different
        lengths, and in small layers that a GPU runs side by side. On a CPU the results without
        gradients differ a little from those with gradients, because the backward pass keeps the
        gates of all steps, rounded to 16 bits, and the forward pass then uses these.

        **Floats on a GPU.** Products (GEMMs) have the precision of torch's recurrent layers, which
        ``torch.backends.cudnn.rnn.fp32_precision`` sets. With ``"tf32"``, the default, the factors
        of large products are rounded to the 11 bits of TF32. With ``"ieee"``, or
        ``torch.backends.cudnn.allow_tf32 = False``, they keep 22 bits, which is nearly all of a
        float. In both cases a factor may also have an error of 2^-39 of the largest weight of the
        layer, or of the largest number in its row of the state. This matters if you want 22 bits
        and such numbers differ by a factor of more than 2^17, as in an RNN with relu whose units
        have very different sizes: use double there. A backward pass has the precision of its
        forward pass. Higher derivatives use torch's own products, which follow
        ``torch.backends.cuda.matmul.fp32_precision``.

        **Sizes on a GPU.** Any H takes about as long as the next multiple of 16. A call of several
        steps also copies the weights if H is not a multiple of 4, or, for 16-bit types and
        H >= 96, of 8.
    """

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        reset_to: State | None = None,
        return_states: bool = False,
    ) -> tuple[Any, ...]:
        """Run over a sequence.

        Args:
            input: (L, B, I), (B, L, I) if ``batch_first``, (L, I) without a batch, or a packed
                sequence.
            hx: the state before the first step, in the form in which this function returns it:
                ``h_0`` for a cell with one state, else a tuple ``(h_0, c_0, ...)``. Each is
                (num_layers * D, B, H), or (num_layers * D, H) without a batch; zeros by default.
            lengths: (B,), the number of steps of each sequence, as an alternative to packing. After
                the end of a sequence its input may be anything, and its output is zero. Its last
                state is the state after its own last step. The values of a tensor on a GPU are not
                checked: a length above the number of steps counts as all steps. In a compiled
                program use a tensor, because each number of a list is one more input.
            reset: a mask with the shape of ``input`` without its features, or with one feature. The
                state is set to zero before each marked step, for example where an episode begins. A
                mark at step t is between the steps t - 1 and t; the reverse direction is reset
                there, too.
            reset_to: the state that a reset sets in place of zeros. It has the form of ``hx``; or
                the dimension of the steps stands in front, (L, num_layers * D, B, H) or (L,
                num_layers * D, H), and a mark at step t takes the state at t. B may be 1, for one
                state of all rows. It is differentiable, like ``hx``.
            return_states: whether to return the states of all steps, too; not for packed sequences.

        Returns:
            ``(output, state)``: the hidden states of all steps, with the shape of ``input`` but DH
            features, and the last states. With ``return_states``, ``(output, state, states)``: the
            states after each step, in the form of ``state`` with the dimension of the steps in
            front, even if ``batch_first``. After the end of a sequence they are zero.

        Raises:
            ValueError: if ``input`` has the wrong number of dimensions, or the wrong dtype.
            RuntimeError: if another size, dtype or device does not match.
            TypeError: if an argument is not a tensor, or ``hx`` is not a tuple.
        """
        if isinstance(input, Proxy):
            named = {"lengths": lengths, "reset": reset, "reset_to": reset_to}
            return traced(self, input, hx=hx, return_states=return_states or None, **named)
        ordinary = lengths is None and reset is None and reset_to is None and not return_states
        if ordinary and type(input) is Tensor and input.dim() == 3 and runs_as_called(input):
            first = self.batch_first
            found = plain.plainly(self, input.transpose(0, 1) if first else input, hx)
            if found is not None:
                output = found.pop(0)
                output = self._returned(output.transpose(0, 1) if first else output)
                return output, found[0] if len(found) == 1 else tuple(found)
        name = name_of(self)
        if reset_to is not None and reset is None:
            raise ValueError(f"{name}(): expected reset with reset_to, but got only reset_to")
        recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if isinstance(input, PackedSequence):
            if not ordinary:
                wanted = "a packed input takes neither lengths nor reset, and returns no states"
                raise ValueError(f"{name}(): {wanted} of all steps; a padded one does")
            check_packed(name, input, self.input_size)
            states = self._states(name, int(input.batch_sizes[0]), hx, batched=True)
            packed, last = run_packed(self._layers, input, states)
            packed = packed._replace(data=self._returned(packed.data, recorded))
            return packed, last[0] if len(last) == 1 else tuple(last)
        refuse_non_tensor(name, "input", input)
        if input.dim() not in (2, 3):
            got = f"shape {list(input.shape)}"
            refuse(name, "input to have 2 or 3 dimensions", got, ValueError)
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        check_input(name, x, self.input_size)
        states = self._states(name, x.size(1), hx, batched)
        mask = reset_mask(name, x, reset, batched, self.batch_first)
        to = None
        if reset_to is not None:
            sizes = self._sizes_of_states(x.size(1))
            to = states_to_reset_to(name, reset_to, states, sizes, x.size(0), batched)
        steps = Steps.of(name, x, lengths, mask, to)
        parts = [(steps.inside(x), steps)]
        (output,), last, every = self._layers(parts, states, return_states)
        if batched and self.batch_first:
            output = output.transpose(0, 1)
        if not batched:
            output, last = output.squeeze(1), [tensor.squeeze(1) for tensor in last]
            every = [tensor.squeeze(2) for tensor in every]
        output = self._returned(output, recorded)
        results = (last, every) if return_states else (last,)
        return output, *(each[0] if len(each) == 1 else tuple(each) for each in results)

    def _states(
        self, name: str, batch_size: int, hx: State | None, batched: bool
    ) -> list[Tensor] | None:
        """The states before the first step, each (num_layers * D, B, H)."""
        if hx is None:
            return None
        return whole_states(name, hx, self._sizes_of_states(batch_size), batched)

    def _sizes_of_states(self, batch_size: int) -> list[tuple[int, int, int]]:
        features = [self._output_size, *[self.hidden_size] * (self.cell.states - 1)]
        return [(self.num_layers * self._directions, batch_size, size) for size in features]
