"""The layers of this package's own cells, which are listed in ``kernels/rnn/cells/cells.h``."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lltm_jit import native
from lltm_jit._library import autocasts, refuse
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer
from lltm_jit.ops.rnn.recurrent_layer.lengths import Steps
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import named, under_own_name
from lltm_jit.ops.rnn.recurrent_layer.types import Cell

if TYPE_CHECKING:
    from lltm_jit.ops.rnn.recurrent_layer.types import Call


CELLS: dict[str, Cell] = {}  # once the library has described them


def cell_of(name: str) -> Cell:
    """A cell of this package, once the library has said what it is."""
    if not CELLS:
        _learn_cells(native.rnn)
    return CELLS[name]


class _CellOfLibrary:
    """Stands for a layer's cell; the first use waits until the library has described it."""

    def __get__(self, layer: RecurrentLayer | None, owner: type[RecurrentLayer]) -> Cell:
        _learn_cells(native.rnn)
        return owner.cell


@under_own_name
class LLTM(RecurrentLayer):
    """A layer of LLTM cells, from the PyTorch extension tutorial, which is called like an LSTM.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`. The rows of the
    matrices belong to the input gate, the output gate and the candidate cell, in this order::

        i, o, g = x + y
        c = c + sigmoid(i) * elu(g)
        h = sigmoid(o) * tanh(c)

    A ``state_dict`` of :class:`lltm_jit.LLTMCell` or of the tutorial's module (with the names
    ``weights`` and ``bias``, or ``cell.weights`` and ``cell.bias``) loads as the first layer of the
    forward direction. Source of the maths: see :func:`lltm_jit.lltm_cell`.

    Example:
        >>> lltm = LLTM(input_size=3, hidden_size=4)
        >>> output, (h, c) = lltm(torch.randn(5, 2, 3))
        >>> output.shape, c.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
        >>> lltm.load_state_dict(lltm_jit.LLTMCell(3, 4).state_dict())
        <All keys matched successfully>
    """

    cell = _CellOfLibrary()

    __call__: Call[tuple[Tensor, Tensor]]

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        renamed = dict(state_dict)
        for cell in (prefix, prefix + "cell."):
            weights: Tensor | None = renamed.pop(cell + "weights", None)
            if weights is not None:
                renamed[prefix + "weight_hh_l0"] = weights[:, : self.hidden_size]
                renamed[prefix + "weight_ih_l0"] = weights[:, self.hidden_size :]
            bias: Tensor | None = renamed.pop(cell + "bias", None)
            if bias is not None:
                renamed[prefix + "bias_ih_l0"] = bias.flatten()
                renamed[prefix + "bias_hh_l0"] = torch.zeros_like(bias.flatten())
        super()._load_from_state_dict(renamed, prefix, *args, **kwargs)


@under_own_name
class LSTM(RecurrentLayer, nn.LSTM):
    """Long short-term memory, compatible with the ``state_dict`` of :class:`torch.nn.LSTM`.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`. The rows of the
    matrices belong to the input, forget, candidate and output gate, in this order::

        i, f, g, o = x + y
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    With a ``proj_size`` of Q, the output of a step is a projection of its hidden units, ``h @
    weight_hr.T``, and the next step multiplies this output. So ``h_0``, ``output``, and the columns
    of ``weight_hh_lk`` and of ``weight_ih_lk`` for k > 0 have Q in place of H, and ``weight_hr_lk``
    has the shape (Q, H). A call multiplies ``weight_hh_lk`` by ``weight_hr_lk`` once, for all
    steps; on a CPU each step multiplies by both weights where this is faster.

    Source of the maths: S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory" (1997), with the
    forget gate of F. Gers et al. (2000).

    Example:
        >>> lstm = LSTM(input_size=3, hidden_size=4)
        >>> output, (h, c) = lstm(torch.randn(5, 2, 3), lengths=[5, 2])
        >>> output.shape, h.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
        >>> output[2:, 1].count_nonzero()
        tensor(0)
    """

    cell = _CellOfLibrary()
    projects = True

    def _layers(
        self,
        parts: list[tuple[Tensor, Steps]],
        states: list[Tensor] | None,
        return_states: bool = False,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        outputs, (h_n, c_n), every = super()._layers(parts, states, return_states)
        if self.proj_size:
            given = parts[0][0] if states is None else states[1]
            (c_n,) = _as_autocast(given, [c_n])
            every[1:] = _as_autocast(given, every[1:])
        return outputs, [h_n, c_n], every

    __call__: Call[tuple[Tensor, Tensor]]


@under_own_name
class GRU(RecurrentLayer, nn.GRU):
    """Gated recurrent unit, compatible with the ``state_dict`` of :class:`torch.nn.GRU`.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`. The rows of the
    matrices belong to the reset, update and candidate gate, in this order. The input part and the
    hidden part of the candidate gate stay separate::

        (r, z, n), (r_y, z_y, n_y) = x, y
        n = tanh(n + sigmoid(r + r_y) * n_y)
        h = (1 - sigmoid(z + z_y)) * n + sigmoid(z + z_y) * h

    Source of the maths: K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder
    for Statistical Machine Translation" (2014).

    Example:
        >>> gru = GRU(input_size=3, hidden_size=4, num_layers=2, bidirectional=True)
        >>> output, h = gru(torch.randn(5, 2, 3))
        >>> output.shape, h.shape
        (torch.Size([5, 2, 8]), torch.Size([4, 2, 4]))
    """

    cell = _CellOfLibrary()
    output_may_change = True

    def _layers(
        self,
        parts: list[tuple[Tensor, Steps]],
        states: list[Tensor] | None,
        return_states: bool = False,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        outputs, last, every = super()._layers(parts, states, return_states)
        given = parts[0][0] if states is None else states[0]
        outputs, last, every = (_as_autocast(given, each) for each in (outputs, last, every))
        return outputs, last, every

    __call__: Call[Tensor]


@under_own_name
class RNN(RecurrentLayer, nn.RNN):
    """Plain recurrent layer, compatible with the ``state_dict`` of :class:`torch.nn.RNN`.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`, with a ``nonlinearity`` after
    ``num_layers``: ``"tanh"``, which is the default, or ``"relu"``. There is one gate::

        a, = x + y
        h = nonlinearity(a)

    Source of the maths: J. Elman, "Finding Structure in Time" (1990).

    Raises:
        TypeError, ValueError: as there. ValueError also for an unknown ``nonlinearity``.

    Example:
        >>> rnn = RNN(3, 4, nonlinearity="relu", batch_first=True)
        >>> output, h = rnn(torch.randn(2, 5, 3))
        >>> output.shape, h.shape
        (torch.Size([2, 5, 4]), torch.Size([1, 2, 4]))
    """

    output_may_change = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **others: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            refuse("RNN", "nonlinearity to be 'tanh' or 'relu'", repr(nonlinearity), ValueError)
        self.nonlinearity = nonlinearity
        self._begin(input_size, hidden_size, num_layers, *args, **others)

    _begin = named("RNN.__init__", RecurrentLayer.__init__)

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        return cell_of(f"rnn_{self.nonlinearity}")

    __call__: Call[Tensor]


class SLSTM(RecurrentLayer):
    """Long short-term memory with an exponential input gate, of xLSTM.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`. The state is a tuple
    ``(h, c, n, m)``. The rows of the matrices belong to the input, forget, candidate and output
    gate, in this order::

        i, f, z, o = x + y
        l = logsigmoid(f) + m
        m = where(n == 0, i, maximum(i, l))
        i, f = exp(i - m), exp(l - m)
        c = f * c + i * tanh(z)
        n = maximum(f * n + i, 1)
        h = sigmoid(o) * c / n

    ``m`` keeps the exponentials in range, however large the gates are. xLSTM divides the units into
    heads (``num_heads``). Source of the maths: M. Beck et al., "xLSTM: Extended Long Short-Term
    Memory" (2024).

    Example:
        >>> slstm = SLSTM(input_size=3, hidden_size=8, num_heads=2)
        >>> output, (h, c, n, m) = slstm(torch.randn(5, 2, 3))
        >>> output.shape, n.shape
        (torch.Size([5, 2, 8]), torch.Size([1, 2, 8]))
    """

    cell = _CellOfLibrary()

    __call__: Call[tuple[Tensor, Tensor, Tensor, Tensor]]


LAYERS: dict[str, type[RecurrentLayer]] = {  # by the names of their cells
    "lltm": LLTM,
    "lstm": LSTM,
    "gru": GRU,
    "slstm": SLSTM,
    "rnn_tanh": RNN,
    "rnn_relu": RNN,
}


def _as_autocast(given: Tensor, results: list[Tensor]) -> list[Tensor]:
    """Results in torch's dtypes: its autocast on a CPU casts only the matrix products."""
    if not (given.is_cpu and autocasts(given)):
        return results
    return [result.to(torch.promote_types(given.dtype, result.dtype)) for result in results]


def _learn_cells(module: ModuleType) -> None:
    """Give every layer its cell as a build of the family describes it."""
    cells = {name: Cell(name, *facts) for name, *facts in module.own_cells()}
    if missing := LAYERS.keys() - cells:
        raise RuntimeError(
            f"expected a row of kernels/rnn/cells/cells.h for each layer, but got none for "
            f"{', '.join(sorted(missing))}; there are {', '.join(cells)}"
        )
    CELLS.update(cells)
    for name, layer in LAYERS.items():
        if layer is not RNN:  # it has two cells
            layer.cell = CELLS[name]


native.when_used["rnn"].append(_learn_cells)
