"""The function of FlashRNN, with its arguments and layouts, on this package's kernels.

Sizes: B is the batch size, T the number of steps, N the number of heads, D the units of a head, S
the states of a cell, and G its gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lltm_jit._library import DTYPES, refuse, refuse_non_tensor
from lltm_jit.ops.rnn.sequence import run_all_steps, run_sequence, uses_tf32

# By function: the cell, its number of states, and the numbers of gates of Wx, R and b.
_FUNCTIONS = {
    "elman": ("rnn_tanh", 1, (1, 1, 1)),
    "gru": ("gru", 1, (3, 3, 4)),
    "lstm": ("lstm", 2, (4, 4, 4)),
    "slstm": ("slstm", 4, (4, 4, 4)),
}


def flashrnn(
    Wx: Tensor,
    R: Tensor,
    b: Tensor,
    states: Tensor | None = None,
    function: str = "lstm",
    backend: str | None = None,
    dtype: str | torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the heads of a recurrent cell over sequences, and return all states of all steps.

    Each head computes ``r = Wx + R h + b``, and then:

    - ``"elman"``, state h: ``h = tanh(r)``.
    - ``"lstm"``, states h and c, and ``"slstm"``, states h, c, n and m: the equations of
      :class:`lltm_jit.LSTM` and :class:`lltm_jit.SLSTM`, with the same gates in the same order.
    - ``"gru"``, state h, the equations of :class:`lltm_jit.GRU`: ``Wx`` has the gates r, z and n,
      ``R`` has g, r and z, and ``b`` has g, r, z and n; the reset gate multiplies g.

    Source: K. Pöppel et al., "FlashRNN: I/O-Aware Optimization of Traditional RNNs on modern
    hardware" (2024).

    Args:
        Wx: (B, T, G, N, D), the input's part of the gates.
        R: (G, N, D, D), the recurrent weights, ``R[gate, head] @ h`` for a head's old output h.
        b: (G, N, D), the bias.
        states: (S, B, 1, N, D), the states before the first step; zeros by default.
        function: the cell.
        backend, dtype: no effect. The kernels of ``Wx``'s device compute, in the dtype of ``Wx`` or
            of ``torch.autocast``.

    Returns:
        The states after each step, (S, B, T, N, D), and the states after the last step, (S, B, 1,
        N, D). State 0 is the output. The states are differentiable any number of times in all
        tensors.

    Raises:
        TypeError: if an argument is not a tensor.
        ValueError: if there is no such function, no step or head, or a shape does not match.
        RuntimeError: if ``Wx`` has another dtype than half, bfloat16, float or double, or a tensor
            is on another device.

    Example:
        >>> from lltm_jit.ops.flashrnn import flashrnn
        >>> Wx, R, b = torch.randn(2, 5, 4, 3, 8), torch.randn(4, 3, 8, 8), torch.zeros(4, 3, 8)
        >>> states, last = flashrnn(Wx, R, b, function="slstm")
        >>> states.shape, last.shape
        (torch.Size([4, 2, 5, 3, 8]), torch.Size([4, 2, 1, 3, 8]))
    """
    if not isinstance(function, str) or function not in _FUNCTIONS:
        names = ", ".join(map(repr, _FUNCTIONS))
        refuse("flashrnn", f"function to be one of {names}", repr(function), ValueError)
    cell, count, gates_of = _FUNCTIONS[function]
    _check({"Wx": Wx, "R": R, "b": b, "states": states}, count, gates_of)
    size = Wx.shape[3:]
    given = None if states is None else states[:, :, 0].flatten(2).to(Wx.dtype)
    R, b = R.to(Wx.dtype), b.to(Wx.dtype)
    if function == "gru":  # ours has the gates r, z and n, and keeps the two parts of n apart
        Wx = Wx + torch.cat([torch.zeros_like(b[:2]), b[3:]])
        R, b = R.roll(-1, 0), b[:3].roll(-1, 0)
    args = (
        Wx.transpose(0, 1).flatten(2),
        R.transpose(0, 1).flatten(1, 2),
        b.flatten(),
        None,
        None if given is None else given[0],
        None if given is None or count == 1 else given[1:],
        None,
    )
    if count == 1:
        output, *_ = run_sequence(cell, args, False, uses_tf32(Wx))
        every = output.unsqueeze(1)
    else:
        output, _, c_n, before = run_all_steps(cell, args, False, uses_tf32(Wx))
        every = torch.ops.lltm_jit.stack_states(output, c_n, before)
    every = every.unflatten(3, size).permute(1, 2, 0, 3, 4)
    return every, every[:, :, -1:]


def _check(tensors: dict[str, Tensor | None], states: int, gates: tuple[int, int, int]) -> None:
    for name, tensor in tensors.items():
        refuse_non_tensor("flashrnn", name, tensor, optional=name == "states")
    Wx = tensors["Wx"]
    assert Wx is not None
    wanted = ""
    if Wx.dim() != 5:
        wanted = "Wx to have 5 dimensions [batch, steps, gates, heads, units]"
    elif 0 in (Wx.size(1), Wx.size(3)):
        wanted = "Wx to have at least one step and one head"
    if wanted:
        refuse("flashrnn", wanted, f"shape {list(Wx.shape)}", ValueError)
    rows, steps, _, *head = Wx.shape
    if Wx.dtype not in DTYPES:
        refuse("flashrnn", "Wx to be half, bfloat16, float or double", Wx.dtype)
    shapes = {
        "Wx": ("[batch, steps, gates, heads, units]", [rows, steps, gates[0], *head]),
        "R": ("[gates, heads, units, units]", [gates[1], *head, head[1]]),
        "b": ("[gates, heads, units]", [gates[2], *head]),
        "states": ("[states, batch, 1, heads, units]", [states, rows, 1, *head]),
    }
    for name, (what, shape) in shapes.items():
        if (tensor := tensors[name]) is None:
            continue
        if tensor.device != Wx.device:
            refuse("flashrnn", f"{name} to be on the device of Wx ({Wx.device})", tensor.device)
        if list(tensor.shape) != shape:
            wanted = f"{name} to have shape {what} = {shape}"
            refuse("flashrnn", wanted, list(tensor.shape), ValueError)
