"""Single steps of the cells for which torch has modules, called like these modules."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from lltm_jit._library import autocasts
from lltm_jit.jit import LltmJitError
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import refuse_script, traced, under_own_name
from lltm_jit.ops.rnn.recurrent_layer.types import StateT
from lltm_jit.ops.rnn.sequence import run_layer


class _Call(Protocol[StateT]):
    """The typed call of a cell; torch's modules do not type theirs."""

    def __call__(self, input: Tensor, hx: StateT | None = None) -> StateT: ...


class _SingleCell(nn.RNNCellBase):
    """One step of a cell. Each class below has this class before torch's class among its bases.

    On a CPU it is a sequence of one step. Elsewhere torch's step runs, which needs no compilation
    for each batch size. torch's step also takes arguments that ours does not, such as sparse
    tensors, and reports what is wrong with a call.
    """

    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    _cell: str  # as recurrent_sequence() takes it
    _least_size = 0  # units of the state; with fewer, torch's step is as fast

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Run one step; see the class of torch."""
        if isinstance(input, Proxy):
            return traced(self, input, hx=hx)
        ours = isinstance(input, Tensor) and input.is_cpu and self.hidden_size >= self._least_size
        if not ours or autocasts(input):
            return super().forward(input, hx)
        try:
            return self._step(input, hx)
        except LltmJitError:  # a build failed
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return super().forward(input, hx)

    def _step(self, input: Tensor, hx: Any) -> Any:
        pair, batched = self._cell == "lstm", input.dim() == 2
        h, c = (hx if pair else (hx, None)) if hx is not None else (None, None)
        if c is not None and c.dtype != input.dtype:  # torch's step promotes the state
            return super().forward(input, hx)
        x = input
        if not batched:
            x, h, c = (None if tensor is None else tensor.unsqueeze(0) for tensor in (x, h, c))
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        args = (None, h, None if c is None else c.unsqueeze(0), None)
        operands = (x.unsqueeze(0), *weights)
        _, h, cells = run_layer(self._cell, operands, args, reverse=False, tf32=False)
        if not batched:
            h, cells = h.squeeze(0), cells.squeeze(1)
        # No view, because detach_() refuses views.
        return (h, torch.ops.aten._unsafe_view.default(cells, h.shape)) if pair else h

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_script(self)


@under_own_name
class LSTMCell(_SingleCell, nn.LSTMCell):
    """One step of an LSTM, in place of :class:`torch.nn.LSTMCell`.

    Arguments, parameters and call are those of :class:`torch.nn.LSTMCell`, of which this is a
    subclass. On a CPU a step makes fewer calls than torch's step; on a GPU torch's step runs. If a
    program has the inputs of all steps at once, :class:`LSTM` is much faster.

    Example:
        >>> cell = LSTMCell(3, 4)
        >>> h, c = cell(torch.randn(2, 3))
        >>> h, c = cell(torch.randn(2, 3), (h, c))
        >>> h.shape, c.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    _cell = "lstm"

    __call__: _Call[tuple[Tensor, Tensor]]


@under_own_name
class GRUCell(_SingleCell, nn.GRUCell):
    """One step of a GRU, in place of :class:`torch.nn.GRUCell`.

    Arguments, parameters and call are those of :class:`torch.nn.GRUCell`, of which this is a
    subclass. See :class:`LSTMCell`.

    Example:
        >>> GRUCell(3, 4)(torch.randn(3)).shape
        torch.Size([4])
    """

    _cell = "gru"

    __call__: _Call[Tensor]


@under_own_name
class RNNCell(_SingleCell, nn.RNNCell):
    """One step of a plain recurrent cell, in place of :class:`torch.nn.RNNCell`.

    Arguments, parameters and call are those of :class:`torch.nn.RNNCell`, of which this is a
    subclass. See :class:`LSTMCell`.

    Example:
        >>> RNNCell(3, 4, nonlinearity="relu")(torch.randn(2, 3), torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """

    _least_size = 128

    @property
    def _cell(self) -> str:  # type: ignore[override]
        return f"rnn_{self.nonlinearity}"

    __call__: _Call[Tensor]
