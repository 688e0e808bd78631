"""Cells, inputs and an independent reference for the tests of whole sequences."""

import inspect
import io
import json
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from op_testing import assert_accurate, bits
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import lltm_jit
from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.rnn import layers
from lltm_jit.ops.rnn.recurrent_layer.types import Cell

# All but one, which differs from rnn_tanh by its function alone.
CELLS = [name for name in layers.LAYERS if name != "rnn_relu"]


def cell_of(name: str | Cell) -> Cell:
    """Without a layer, since transforms of torch.func allow no random parameters."""
    if isinstance(name, Cell):  # one's own
        return name
    _ = lltm_jit.LLTM.cell  # waits until the library has said what its cells are
    return layers.CELLS[name.lower()]


class Inputs(NamedTuple):
    """The tensors of a call, in its order."""

    gates: Tensor
    weight_hh: Tensor
    bias_hh: Tensor | None
    parameters: Tensor | None
    h_0: Tensor | None
    c_0: Tensor | None
    control: Tensor | None

    def to(self, dtype: torch.dtype) -> "Inputs":
        def convert(tensor: Tensor | None) -> Tensor | None:
            return tensor if tensor is None or tensor.dtype == torch.uint8 else tensor.to(dtype)

        return Inputs(*map(convert, self))

    def leaves(self) -> list[Tensor]:
        """Those that gradients are taken of."""
        return [tensor for tensor in self[:6] if tensor is not None]

    def with_leaves(self, leaves: Sequence[Tensor]) -> "Inputs":
        """The inputs with other tensors for those that gradients are taken of."""
        rest = iter(leaves)
        return Inputs(*(t if t is None else next(rest) for t in self[:6]), self.control)

    def requires_grad(self) -> "Inputs":
        """Copies that gradients may be taken of."""
        return self.with_leaves([t.detach().clone().requires_grad_() for t in self.leaves()])


def inputs_of(
    cell: str | Cell,
    steps: int = 5,
    batch_size: int = 3,
    hidden_size: int = 7,
    dtype: torch.dtype = torch.double,
    device: str = "cpu",
    state: bool = True,
    control: bool = False,
    bias: bool = False,
    reverse: bool = False,
) -> Inputs:
    """A cell that does not add its gates has a bias of the hidden part in any case.

    In reverse the steps that are held come first in memory.
    """
    facts = cell_of(cell)
    rows, others = facts.gates * hidden_size, facts.states - 1
    scale = max(hidden_size, 1) ** -0.5

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.double)

    inputs = Inputs(
        random(steps, batch_size, rows),
        random(rows if facts.product else 0, hidden_size) * scale,
        random(rows) if facts.product and (bias or not facts.adds_gates) else None,
        random(facts.parameters, hidden_size) if facts.parameters else None,
        random(batch_size, hidden_size) if state else None,
        random(others, batch_size, hidden_size) if state and others else None,
        controls(steps, batch_size, reverse) if control else None,
    )
    if cell == "slstm" and inputs.c_0 is not None:
        inputs.c_0[1] = 1 + inputs.c_0[1].abs()  # n is a sum of weights, the greatest of them 1
    return Inputs(*(t if t is None else t.to(device) for t in inputs)).to(dtype)


def cell_header(name: str, states: int, step: str, more: str = "") -> str:
    """The header of a cell of one gate, from the body of its step."""
    return f"""
struct {name} {{
  static constexpr int kGates = 1, kStates = {states};
  static constexpr bool kAddsGates = true;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&h)[kGates],
                                        const T (&old)[kStates], T (&now)[kStates]) {{
    {step}
  }}
  {more}
}};
"""


def controls(steps: int, batch_size: int, reverse: bool = False) -> Tensor:
    """Resets here and there, and sequences of different lengths."""
    lengths = torch.randint(1, steps + 1, (batch_size,))
    resets = (torch.rand(steps, batch_size) < 0.3).to(torch.uint8)
    behind = (torch.arange(steps).unsqueeze(1) >= lengths).to(torch.uint8)
    return (resets + 2 * behind).flip(0) if reverse else resets + 2 * behind


def step_of(cell: str) -> Callable[..., list[Tensor]]:
    """A step in plain PyTorch, to new states: the equations in the docstring of the layer.

    In them x and y are the parts of the input and of h, p the cell's parameters, and h, c, n and m
    its states.
    """
    text = inspect.getdoc(layers.LAYERS[cell]).partition("::\n\n")[2].partition("\n\n")[0]
    equations = compile(textwrap.dedent(text), f"{cell}'s docstring", "exec")
    functions = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "elu": nn.functional.elu}
    functions["nonlinearity"] = torch.relu if cell == "rnn_relu" else torch.tanh
    functions |= {"exp": torch.exp, "logsigmoid": nn.functional.logsigmoid, "where": torch.where}
    functions["maximum"] = lambda x, y: torch.maximum(x, torch.as_tensor(y).to(x))
    states = "hcnm"[: cell_of(cell).states]

    def step(x: Tensor, y: Tensor, p: Tensor | None, old: Sequence[Tensor]) -> list[Tensor]:
        gates = (part.unflatten(1, (-1, old[0].size(1))).movedim(1, 0) for part in (x, y))
        names = functions | dict(zip("xyp" + states, (*gates, p, *old), strict=True))
        exec(equations, names)
        return [names[state] for state in states]

    return step


def reference(
    cell: str,
    inputs: Inputs,
    reverse: bool = False,
    step: Callable[..., list[Tensor]] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A loop in plain PyTorch, in the dtype of the inputs, without the rules for 16 bits.

    `step` is that of a cell which the library does not have.
    """
    gates, weight_hh, bias_hh, parameters, h_0, c_0, control = inputs
    zeros = gates.new_zeros(gates.size(1), weight_hh.size(1))
    if step is None:
        step, others = step_of(cell), cell_of(cell).states - 1
    else:
        others = 0 if c_0 is None else c_0.size(-3)
    h_0, reset_h = (h_0, None) if h_0 is None or h_0.dim() == 2 else (h_0[0], h_0[1:])
    c_0, reset_cells = (c_0, None) if c_0 is None or c_0.dim() == 3 else (c_0[0], c_0[1:])
    states = [zeros if h_0 is None else h_0, *([zeros] * others if c_0 is None else c_0)]
    resets = [reset_h, *([None] * others if reset_cells is None else reset_cells.unbind(1))]
    outputs = []
    for t in reversed(range(len(gates))) if reverse else range(len(gates)):
        marked, holds = torch.zeros_like(zeros), torch.zeros_like(zeros)
        if control is not None:
            marked = marked + (control[t] & 1 != 0).unsqueeze(1)
            holds = holds + (control[t] & 2 != 0).unsqueeze(1)
        given = [zeros if r is None else r[t if len(r) > 1 else 0] for r in resets]
        old = [torch.where(marked > 0, *pair) for pair in zip(given, states, strict=True)]
        hidden = nn.functional.linear(old[0], weight_hh, bias_hh)
        new = step(gates[t], hidden, parameters, old)
        states = [torch.where(holds > 0, *pair) for pair in zip(states, new, strict=True)]
        outputs.append(torch.where(holds > 0, 0.0, new[0]))
    output = torch.stack(outputs[::-1] if reverse else outputs)
    h, *cells = states
    return output, h, torch.stack(cells) if cells else h.new_empty(0, *h.shape)


def in_turn(
    cell: str, inputs: Inputs, reverse: bool = False, directions: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The reference of each recurrence, beside each other."""
    count, size = len(inputs.weight_hh), inputs.weight_hh.size(2)
    heads, results = count // directions, []
    shape = (directions, cell_of(cell).gates, heads, size)
    for i, weight_hh in enumerate(inputs.weight_hh):
        way, head = divmod(i, heads)

        def gates(tensor: Tensor | None) -> Tensor | None:
            if tensor is None:
                return None
            return tensor.unflatten(-1, shape)[..., way, :, head, :].flatten(-2)  # noqa: B023

        def units(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.narrow(-1, i * size, size)  # noqa: B023

        control = inputs.control
        if control is not None and directions == 2:
            control = control[way]
        one = Inputs(
            gates(inputs.gates), weight_hh, gates(inputs.bias_hh), units(inputs.parameters),
            units(inputs.h_0), units(inputs.c_0), control,
        )  # fmt: skip
        results.append(reference(cell, one, reverse != (way == 1)))
    return tuple(torch.cat(tensors, -1) for tensors in zip(*results, strict=True))


def smooth_results(cell: str, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """Those whose derivatives do not jump: of an sLSTM the output and h.

    h is the same for any m, as n is above 1, but c, n and m are not. Which of two gates m's
    derivative goes to is up to roundings where they are nearly the same, to 16 bits above all.
    """
    return results[:2] if cell == "slstm" else results


def ours(
    cell: str | Cell, inputs: Inputs, reverse: bool = False, directions: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    name, both = getattr(cell, "name", cell), directions == 2
    return recurrent_sequence(name, *inputs, reverse=reverse, bidirectional=both)


def results_and_gradients(
    cell: str | Cell,
    inputs: Inputs,
    reverse: bool = False,
    function: Callable[..., tuple[Tensor, ...]] = ours,
    smooth: bool = True,
) -> list[Tensor]:
    """Output, last states, and the gradients of a sum of all of them with fixed weights.

    Or of those that are smooth, where they are to be the same in all dtypes.
    """
    given = inputs.requires_grad()
    results = function(cell, given, reverse)
    summed = smooth_results(cell, results) if smooth else results
    weights = [
        torch.linspace(-1, 1, r.numel(), device=r.device).view(r.shape).to(r) for r in summed
    ]
    loss = sum((r * w).sum() for r, w in zip(summed, weights, strict=True))
    gradients = torch.autograd.grad(loss, given.leaves())
    return [r.detach() for r in results] + list(gradients)


def all_accurate(
    found: Sequence[Tensor], exact: Sequence[Tensor], usual: Sequence[Tensor], **allowed
) -> None:
    """Check each result as :func:`assert_accurate` does."""
    for each in zip(found, exact, usual, strict=True):
        assert_accurate(*each, **allowed)


def assert_within(
    found: Sequence[Tensor], exact: Sequence[Tensor], error: float, rtol: float = 0
) -> None:
    """Check that each number is within a part of the largest one of its result."""
    for one, right in zip(found, exact, strict=True):
        most = right.abs().max().item() if right.numel() else 0.0
        torch.testing.assert_close(one.to(right), right, rtol=rtol, atol=error * most)


def assert_near(
    cell: str, inputs: Inputs, reverse: bool = False, functions=(ours, reference), **allowed
) -> None:
    """Results and gradients against the reference in float64, by that in the same dtype."""
    function, theirs = functions
    found = results_and_gradients(cell, inputs, reverse, function)
    exact = results_and_gradients(cell, inputs.to(torch.double), reverse, theirs)
    usual = results_and_gradients(cell, inputs, reverse, theirs)
    all_accurate(found, exact, usual, sums=True, **allowed)


def assert_same_bits_again(cell: str, inputs: Inputs, times: int = 1, directions: int = 1) -> None:
    function = partial(ours, directions=directions)
    first, *others = (
        bits(results_and_gradients(cell, inputs, function=function)) for _ in range(1 + times)
    )
    assert others == [first] * times


def check_derivatives(
    cell: str | Cell, inputs: Inputs, reverse: bool = False, directions=1
) -> None:
    """Of two orders, along random directions; test_every_operator.py takes each element."""
    inputs = inputs.requires_grad()
    leaves = [leaf for leaf in inputs.leaves() if leaf.numel()]

    def function(*changed: Tensor) -> tuple[Tensor, ...]:
        rest = iter(changed)
        given = [next(rest) if leaf.numel() else leaf for leaf in inputs.leaves()]
        results = ours(cell, inputs.with_leaves(given), reverse, directions)
        return results[: 1 + cell_of(cell).states]

    batched = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(function, leaves, fast_mode=True, **batched)
    assert gradgradcheck(function, leaves, fast_mode=True)


def launched(function: Callable[[], object], directory: Path) -> list[dict[str, Any]]:
    """What `function` has the GPU run, as the profiler writes it: kernels, copies and fills."""
    function()  # what happens once a process
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    trace = directory / "trace.json"
    profile.export_chrome_trace(str(trace))
    work = ("kernel", "gpu_memcpy", "gpu_memset")
    return [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") in work]


def names_of_launched(function: Callable[[], object], directory: Path) -> list[str]:
    return [each["name"] for each in launched(function, directory)]


def saved_and_loaded(module: ModuleType, saved: object) -> Any:
    """What torch, torch.jit or torch.export read of a file that they wrote."""
    named = {"weights_only": False} if module is torch else {}
    with io.BytesIO() as file:
        module.save(saved, file)
        file.seek(0)
        return module.load(file, **named)


def peak_of(function) -> int:
    """The most bytes of tensors that a call has allocated at once."""
    with torch.profiler.profile(profile_memory=True) as profile:
        function()
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
