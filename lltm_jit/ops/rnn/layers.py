"""The layers of this package's own cells: LLTM, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lltm_jit.ops.rnn.layer import Cell, RecurrentLayer

if TYPE_CHECKING:
    from lltm_jit.ops.rnn._calls import Call


class LSTM(RecurrentLayer):
    """Long short-term memory: :class:`torch.nn.LSTM` with more, whose ``state_dict`` it shares.

    Arguments, attributes and call are those of :class:`RecurrentLayer`; the gates are, in the rows
    of its matrices, the input, forget, candidate and output gate::

        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Source of the maths: S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory" (1997), with the
    forget gate of F. Gers et al. (2000).
    """

    cell = Cell("lstm", gates=4, states=2, adds_gates=True)

    if TYPE_CHECKING:
        __call__: Call[tuple[Tensor, Tensor]]


class GRU(RecurrentLayer):
    """Gated recurrent unit: :class:`torch.nn.GRU` with more, whose ``state_dict`` it shares.

    Arguments, attributes and call are those of :class:`RecurrentLayer`; the gates are, in the rows
    of its matrices, the reset, update and candidate gate, whose hidden part stands apart::

        n = tanh(n_input + sigmoid(r) * n_hidden)
        h = (1 - sigmoid(z)) * n + sigmoid(z) * h

    Source of the maths: K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder
    for Statistical Machine Translation" (2014).
    """

    cell = Cell("gru", gates=3, states=1)

    if TYPE_CHECKING:
        __call__: Call[Tensor]


class LLTM(RecurrentLayer):
    """A layer of the LLTM cells of the PyTorch extension tutorial, called like an LSTM.

    Arguments, attributes and call are those of :class:`RecurrentLayer`; the gates are, in the rows
    of its matrices, the input gate, the output gate and the candidate cell, as in
    :class:`lltm_jit.LLTMCell`. A ``state_dict`` of that cell, of the tutorial's own module (under
    the names ``weights`` and ``bias``, or ``cell.weights`` and ``cell.bias``) loads as the first
    layer of one direction.
    """

    cell = Cell("lltm", gates=3, states=2, adds_gates=True)

    if TYPE_CHECKING:
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
