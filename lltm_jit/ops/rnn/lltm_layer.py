"""A recurrent layer of LLTM cells.

Sizes: B is the batch size, I the input size, H the hidden size, L the sequence length.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lltm_jit.ops._library import refuse_non_tensor
from lltm_jit.ops.rnn.lltm import LLTMCell, state_pair


class LLTM(nn.Module):
    """A layer of LLTM cells over a sequence, called like :class:`torch.nn.LSTM`.

    Args:
        input_size, hidden_size: see :class:`LLTMCell`.
        batch_first: whether sequences are (B, L, ·) rather than (L, B, ·).
        bias, device, dtype, impl: see :class:`LLTMCell`.

    With half and bfloat16 inputs the running cell is kept in float from step to step.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        batch_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.cell = LLTMCell(input_size, hidden_size, bias, device, dtype, impl)

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over a sequence.

        Args:
            input: (L, B, I), (B, L, I) if ``batch_first``, or (L, I) without a batch.
            state: ``(h_0, c_0)``, each (1, B, H), or (1, H) without a batch; zeros when left out.

        Returns:
            ``(output, (h_n, c_n))``: the hidden states of all steps, shaped like ``input`` with H
            features, and the last state, shaped like ``state``.

        Raises:
            ValueError: if ``input`` or the state has another rank, or ``input`` no steps.
            RuntimeError: if another size, dtype or device does not fit; see :class:`LLTMCell`.
            TypeError: if the state is no pair, or an argument no tensor.
        """
        refuse_non_tensor("LLTM", "input", input)
        if input.dim() not in (2, 3):
            raise ValueError(
                "LLTM(): expected input to have 2 or 3 dimensions, "
                f"but got shape {list(input.shape)}"
            )
        batched = input.dim() == 3
        time = 1 if batched and self.batch_first else 0
        if input.size(time) == 0:
            shape = list(input.shape)
            raise ValueError(f"LLTM(): expected at least one step, but got shape {shape}")
        steps = input.unbind(time) if batched else input.unsqueeze(1).unbind(0)
        h, c = self._initial_state(steps[0], state, batched)
        cell_dtype = c.dtype
        running = torch.float32 if cell_dtype in (torch.half, torch.bfloat16) else cell_dtype
        c = c.to(running)
        outputs = []
        for step in steps:
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        output, c = torch.stack(outputs, time), c.to(cell_dtype)
        if not batched:
            return output.squeeze(1), (h, c)
        return output, (h.unsqueeze(0), c.unsqueeze(0))

    def _initial_state(
        self, step: Tensor, state: tuple[Tensor, Tensor] | None, batched: bool
    ) -> tuple[Tensor, Tensor]:
        """The state as two (B, H) tensors."""
        if state is None:
            zeros = step.new_zeros(step.size(0), self.cell.hidden_size)
            return zeros, zeros
        h, c = state_pair("LLTM", state)
        rank, shape = (3, "[1, batch_size, hidden_size]") if batched else (2, "[1, hidden_size]")
        for name, tensor in (("h_0", h), ("c_0", c)):
            refuse_non_tensor("LLTM", name, tensor)
            if tensor.dim() != rank:
                raise ValueError(
                    f"LLTM(): expected {name} to have {rank} dimensions {shape}, "
                    f"but got shape {list(tensor.shape)}"
                )
        return (h.squeeze(0), c.squeeze(0)) if batched else (h, c)
