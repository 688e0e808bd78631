"""Recurrent layers with layer norms in their steps: ``kernels/rnn/cells/layer_norm.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from lltm_jit._library import refuse, refuse_non_bool
from lltm_jit.ops.rnn.layers import cell_of
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer
from lltm_jit.ops.rnn.recurrent_layer.all_steps import run_cells
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import named, under_own_name
from lltm_jit.ops.rnn.recurrent_layer.types import Cell, Pass, Results
from lltm_jit.ops.rnn.sequence import input_gates, with_resets

if TYPE_CHECKING:
    from lltm_jit.ops.rnn.recurrent_layer.types import Call

_EPSILON = 1e-5  # of the input's norm, as of the cell's


class _LayerNormLayer(RecurrentLayer):
    """The base class of both layers: how they run, and how their norms begin."""

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        if self.num_heads > 1:
            wanted = "num_heads to be 1, as norms are over all units"
            refuse(type(self).__name__, wanted, self.num_heads, ValueError)

    def reset_parameters(self) -> None:
        """Matrices and biases as in torch's layers; weights of norms are 1, their biases 0."""
        super().reset_parameters()
        for name, parameter in self.named_parameters():
            kind = name.partition("_l")[0]
            if kind == "norm_ih":
                nn.init.ones_(parameter)
            elif kind == "parameters":
                nn.init.zeros_(parameter)
                nn.init.ones_(parameter[: self._norm_weights])

    _norm_weights = 0  # rows of `parameters` that begin with ones, the first ones

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
        own = dict(zip(how.kinds, weights, strict=True))
        states = (with_resets(h_0, reset_h), with_resets(c_0, reset_cells))
        gates = input_gates(x, own["weight_ih"], None, how.tf32)
        if "norm_ih" in own:
            norm = (own["norm_ih"], own.get("bias_ih"), _EPSILON)
            gates = F.layer_norm(gates, gates.shape[-1:], *norm)
        args = (gates, own["weight_hh"], None, own["parameters"], *states, control)
        return run_cells(self.cell.name, args, how)


@under_own_name
class LayerNormLSTM(_LayerNormLayer):
    """Long short-term memory with layer norms of the input's gates, the hidden gates and the cell.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`, without heads and projections. The
    rows of the matrices belong to the input, forget, candidate and output gate, in this order.
    ``norm(v)`` is ``(v - v.mean()) / sqrt(v.var() + 1e-5)`` over a row's numbers of all four gates,
    or of the cell state::

        i, f, g, o = w_x * norm(weight_ih @ x) + b + w_h * norm(weight_hh @ h)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(w_c * norm(c) + b_c)

    Every layer k has the parameters ``weight_ih_lk``, ``weight_hh_lk``, ``norm_ih_lk`` of shape
    (4H,), which is w_x, ``bias_ih_lk``, which is b, and ``parameters_lk`` of shape (6, H): four
    rows of w_h, w_c and b_c. Norms begin as those of :class:`torch.nn.LayerNorm` do. On a GPU, H
    is at most 4096, or 1024 if it is no multiple of 4.

    Args:
        carried: whether the next step also gets ``w_c * norm(c) + b_c`` in place of ``c``.

    Source of the maths: J. Ba et al., "Layer Normalization" (2016).

    Example:
        >>> lstm = LayerNormLSTM(input_size=3, hidden_size=4)
        >>> output, (h, c) = lstm(torch.randn(5, 2, 3))
        >>> output.shape, c.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
    """

    def __init__(self, *args: Any, carried: bool = False, **others: Any) -> None:
        refuse_non_bool("LayerNormLSTM", "carried", carried)
        self.carried = carried
        self._begin(*args, **others)

    _begin = named("LayerNormLSTM.__init__", _LayerNormLayer.__init__)
    _norm_weights = 5

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        return cell_of("layer_norm_lstm_carried" if self.carried else "layer_norm_lstm")

    def _shapes(self, *suffixes: str) -> dict[str, tuple[int, ...]]:
        shapes = super()._shapes(*suffixes)
        norms = {f"norm_ih_{suffix}": (4 * self.hidden_size,) for suffix in suffixes}
        return shapes | norms

    def extra_repr(self) -> str:
        return super().extra_repr() + (", carried=True" if self.carried else "")

    __call__: Call[tuple[Tensor, Tensor]]


@under_own_name
class LayerNormGRU(_LayerNormLayer):
    """Gated recurrent unit with one layer norm, of all gates, as in DreamerV3.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`, without heads. The rows of the
    matrices belong to the reset gate, the candidate and the update gate, in this order. ``norm(v)``
    is ``(v - v.mean()) / sqrt(v.var() + 1e-3)`` over a row's numbers of all gates::

        r, n, z = w * norm(weight_ih @ x + weight_hh @ h) + b
        h = h + sigmoid(z - 1) * (tanh(sigmoid(r) * n) - h)

    Every layer k has the parameters ``weight_ih_lk``, ``weight_hh_lk``, and ``parameters_lk`` of
    shape (6, H): three rows of w, and three of b. The norm begins as :class:`torch.nn.LayerNorm`
    does. There are no other biases: ``bias`` has no effect. On a GPU, H is at most 4096, or 1024 if
    it is no multiple of 4.

    Source of the maths: D. Hafner et al., "Mastering Diverse Domains through World Models" (2023).

    Example:
        >>> gru = LayerNormGRU(input_size=3, hidden_size=4)
        >>> output, h = gru(torch.randn(5, 2, 3))
        >>> output.shape, h.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
    """

    _norm_weights = 3

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        return cell_of("layer_norm_gru")

    def _shapes(self, *suffixes: str) -> dict[str, tuple[int, ...]]:
        shapes = super()._shapes(*suffixes)
        return {name: shape for name, shape in shapes.items() if not name.startswith("bias")}

    __call__: Call[Tensor]
