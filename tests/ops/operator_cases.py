"""The table of operators, a row or a few for each: test_every_operator.py goes through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from elementwise_cases import ELEMENTWISE, Calls, Case, normal
from lltm_testing import cell_inputs
from sequence_testing import CELLS, Inputs, cell_of, inputs_of
from sequence_testing import reference as sequence_reference
from torch import Tensor

from lltm_jit.functional import lltm_cell, lltm_forward, recurrent_sequence
from lltm_jit.ops.bias_act import bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.fma import fma
from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.rnn.lltm import lltm_cell_reference
from lltm_jit.ops.rnn.sequence import input_gates
from lltm_jit.ops.stylegan import implementation
from lltm_jit.ops.stylegan2 import fused_bias_act
from lltm_jit.ops.upfirdn2d import upfirdn2d

ops = torch.ops.lltm_jit
# ------------------------------------------------------------------------------------- recurrent --


def lltm_calls(*tensors: Tensor) -> Calls:
    plain = [tensor.detach() for tensor in tensors]
    new_h, new_cell, gates = ops.lltm_cell_forward(*plain)
    whole = [(name, tensors) for name in ("lltm_cell", "lltm_cell_aten", "lltm_cell_check")]
    backward = [torch.randn_like(new_h), None, *plain, new_cell, gates]
    masks = ([True] * 5, [False, True, False, True, False])
    _, _, *saved = lltm_forward(*plain)
    return [
        *whole,
        ("lltm_cell_forward", plain),
        *(("lltm_cell_backward", [*backward, mask]) for mask in masks),
        ("lltm_forward", plain),
        ("lltm_backward", [new_h, new_cell, new_cell, *saved, plain[1]]),
    ]


def draw_sequence(cell: str, large: bool) -> list[Tensor]:
    return inputs_of(cell, *((6, 40, 33) if large else (3, 2, 3)), bias=True).leaves()


def sequence_inputs(cell: str, names: list[str], tensors: Sequence[Tensor]) -> Inputs:
    """A call's inputs, of those that a cell has; the first cell's is a call without a control."""
    inputs = Inputs(**dict.fromkeys(Inputs._fields) | dict(zip(names, tensors, strict=True)))
    return inputs if cell == CELLS[0] else inputs._replace(control=control_of(inputs.gates))


def control_of(gates: Tensor) -> Tensor | None:
    """A row is reset after the first step, and another has ended before the last."""
    if not isinstance(gates, Tensor) or gates.dim() != 3:
        return None
    steps, rows = (
        torch.arange(size, device=gates.device).unsqueeze(i)
        for size, i in zip(gates.shape[:2], (1, 0), strict=True)
    )
    resets, ended = (steps == 1) & (rows == 0), (steps == len(gates) - 1) & (rows == 1)
    return (resets + 2 * ended).to(torch.uint8)


def sequence_calls(cell: str, names: list[str], *tensors: Tensor) -> Calls:
    inputs, found = sequence_inputs(cell, names, tensors), []
    control = control_of(inputs.gates)
    for reverse, given in ((False, control), (True, None)):
        found.append(("recurrent_sequence", [*inputs[:6], given, reverse, cell]))
        held = None if given is None else control & 1  # nothing is saved of steps that hold
        plain = [t if t is None else t.detach() for t in (*inputs[:6], held)]
        found.append(("recurrent_sequence_forward", [*plain, reverse, cell]))
        output, h_n, _, *saved = ops.recurrent_sequence_forward(*plain, reverse, cell)
        grads = (output.cos(), None, None) if reverse else (None, h_n.cos(), None)
        if given is None:
            found.append(("recurrent_sequence_states", [*inputs[:6], None, reverse, cell]))
            states = ops.recurrent_sequence_states(*plain, reverse, cell)
            found.append(("stack_states", [states[0], *states[2:]]))
        of_cells = saved[1].cos() if given is None else None
        for mask in ([t is not None for t in plain[:6]], [False, True] + [False] * 4):
            args = [*grads, *plain, reverse, cell, False, False, output, *saved, mask]
            args += [False, of_cells]
            found.append(("recurrent_sequence_backward", args))
    return found


def sequence_case(cell: str) -> Case:
    given, states = inputs_of(cell, bias=True), cell_of(cell).states
    names = [name for name, tensor in given._asdict().items() if tensor is not None]
    return Case(
        f"recurrent_sequence {cell}",
        names,
        lambda *t: recurrent_sequence(cell, *sequence_inputs(cell, names, t))[: 1 + states],
        lambda *t: sequence_reference(cell, sequence_inputs(cell, names, t))[: 1 + states],
        partial(draw_sequence, cell),
        family="rnn",
        calls=partial(sequence_calls, cell, names),
        optional=("bias_hh", "h_0", "c_0"),
        under_autocast=(torch.bfloat16, torch.bfloat16, torch.float)[: 1 + states],
        library_sums=True,
    )


def input_gates_calls(*tensors: Tensor) -> Calls:
    x, weight, bias = (tensor.detach() for tensor in tensors)
    grad = torch.randn_like(input_gates(x, weight, bias))
    masks = ([True] * 3, [False, True, False])
    backward = [("input_gates_backward", [grad, x, weight, mask]) for mask in masks]
    return [("input_gates", tensors), *backward, *pad_gates_calls(x)]


def pad_gates_calls(x: Tensor) -> Calls:
    """What a layer of 3 gates and 8 hidden units multiplies, some of it absent.

    test_padded_sizes.py has sizes that are padded: the kernel's rows are apart, the formula's not.
    """
    rows, units = 24, 8
    weights = [x.new_ones(rows, x.size(2)), x.new_ones(rows, units)]
    operands = [x, *weights, x.new_ones(rows), x.new_ones(rows)]
    whole = [t.detach().clone().requires_grad_() for t in operands]
    grads = [t.detach() for t in ops.pad_gates(*operands, 3, False)]
    return [
        ("pad_gates", (*whole, 3, True)),
        ("pad_gates", (None, *whole[1:4], None, 3, False)),
        ("pad_gates_backward", (*grads, 3, x.size(2), units)),
    ]


RECURRENT = [
    Case(
        "lltm_cell",
        ["input", "weights", "bias", "old_h", "old_cell"],
        lltm_cell,
        lltm_cell_reference,
        lambda large: cell_inputs(*((65, 33, 129) if large else (2, 3, 2))),
        family="rnn",
        calls=lltm_calls,
        optional=("bias",),
        under_autocast=(torch.bfloat16, torch.float),
    ),
    *(sequence_case(cell) for cell in CELLS),
    Case(
        "input_gates",
        ["input", "weight_ih", "bias"],
        input_gates,
        F.linear,
        lambda large: normal(
            *[(40, 7, 33), (51, 33), (51,)] if large else [(2, 3, 4), (5, 4), (5,)]
        ),
        family="rnn",
        calls=input_gates_calls,
        under_autocast=(torch.bfloat16,),
        sees="linear",
        public=False,
    ),
]

# -------------------------------------------------------------------------------------- StyleGAN --

TAPS = torch.tensor([1.0, 3.0, 2.0])
FILTER = TAPS.outer(torch.tensor([1.0, 2.0]))


# Copied before any call: a graph takes no copy from the CPU, and one that is made inside a
# transform of torch.func is of its level.
FILTERS = {
    (device, f.dim()): f.to(device)
    for device in ("cpu", "meta", "cuda")[: 2 + torch.cuda.is_available()]
    for f in (TAPS, FILTER)
}


def beside(x: Tensor, rank: int = 1) -> Tensor:
    """A filter on the device of x, if that is a tensor."""
    return FILTERS[getattr(x, "device", TAPS.device).type, rank]


def bias_act_calls(*tensors: Tensor) -> Calls:
    x, b = (tensor.detach() for tensor in tensors)
    kind, grad = (1, 4, 0.0, 1.0, 0.5), torch.randn_like(x)
    return [
        ("bias_act", (*tensors, *kind)),
        ("bias_act_backward", (grad, x, None, *kind, [True, True])),
        ("bias_act_second", (grad, grad + 1, x, b, 1, 9, 0.0, 1.0, None)),
    ]


def upfirdn2d_calls(x: Tensor) -> Calls:
    wide = x.detach().repeat(1, 4, 1, 1).contiguous(memory_format=torch.channels_last)
    args = ([2, 1], [1, 3], [13, 14, 15, 16], True, 2.0)
    filters = [f if f is None else f.to(x.device) for f in (None, TAPS, FILTER)]
    return [
        ("upfirdn2d", (image, f, *args)) for image in (x, wide.requires_grad_()) for f in filters
    ]


def filtered_lrelu_calls(x: Tensor, b: Tensor) -> Calls:
    f, f2, plain = TAPS.to(x.device), FILTER.to(x.device), x.detach()
    call, found = (2, 3, [3, 4, 5, 6], 1.2, 0.2, 0.5, False), []
    for name, more in (("filtered_lrelu", ()), ("filtered_lrelu_forward", ([3, 14],))):
        found.append((name, (x, f, f2, b, *call, *more)))
        found.append((name, (plain, None, f2, None, *call, *more)))
    y, _ = ops.filtered_lrelu_forward(plain, f, None, b.detach(), 2, 1, *call[2:], [0, 0])
    size = list(y.shape[2:])
    words = 65 * -(-size[0] // 16) * -(-size[1] // 64)
    signs = torch.randint(-(2**31), 2**31, (*y.shape[:2], words), device=x.device).int()
    linear = (1, 2, [1, 0, 2, 1], size, [-2, -1], [0, 0], 1.0, 0.3, True)
    for with_sums in (False, True):
        args = (y.detach().requires_grad_(), signs, None, f, *linear, with_sums)
        found.append(("filtered_lrelu_linear", args))
    return found


def draw_images(large: bool) -> list[Tensor]:
    """Images, and a number for each channel."""
    return normal((2, 8, 65, 40) if large else (2, 2, 4, 3), (8 if large else 2,))


def sample(images: Tensor, grid: Tensor) -> Tensor:
    """Every pixel weighs 1 - |distance| in x and in y. Torch's own has no second derivative."""

    def weights(places: Tensor, size: int) -> Tensor:
        pixels = torch.arange(size, dtype=places.dtype, device=places.device)
        distances = ((places + 1) * size - 1).unsqueeze(-1) / 2 - pixels
        return (1 - distances.abs()).relu()

    across, down = weights(grid[..., 0], images.size(3)), weights(grid[..., 1], images.size(2))
    return torch.einsum("nchw,nijh,nijw->ncij", images, down, across)


def draw_points(large: bool) -> list[Tensor]:
    """Images, and points in them and around them."""
    batch, *size = (2, 3, 33, 31) if large else (2, 2, 4, 5)
    points = (17, 5) if large else (3, 2)
    grid = 2.8 * torch.rand(batch, *points, 2, dtype=torch.double) - 1.4
    return [*normal((batch, *size)), grid]


def with_reference(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [function, partial(function, impl="ref")]


def convolve(x: Tensor, w: Tensor) -> Tensor:
    return conv2d_resample(x, w, beside(x), up=2, padding=1)


STYLEGAN = [
    Case(
        f"bias_act {act}",
        ["x", "b"],
        *with_reference(partial(bias_act, act=act, clamp=0.9)),
        draw_images,
        family="stylegan",
        calls=bias_act_calls,
        optional=("b",),
    )
    for act in ("lrelu", "swish")
]
STYLEGAN += [
    Case(
        "fused_bias_act",
        ["input", "bias"],
        *with_reference(
            lambda x, b, **impl: fused_bias_act(x, b, None, 3, 0, 0.2, -1.5, **impl),
        ),
        draw_images,
        family="stylegan",
        calls=lambda x, b: [("fused_bias_act", (x, b, None, 3, 0, 0.2, 1.5))],
        optional=("bias",),
    ),
    Case(
        "upfirdn2d",
        ["x"],
        *with_reference(
            lambda x, **impl: upfirdn2d(x, beside(x), 2, [1, 3], [1, 2, -1, 3], **impl),
        ),
        lambda large: draw_images(large)[:1],
        family="stylegan",
        calls=upfirdn2d_calls,
    ),
    Case(
        "filtered_lrelu",
        ["x", "b"],
        *with_reference(
            lambda x, b, **impl: filtered_lrelu(
                x, beside(x), beside(x, rank=2), b, 2, 2, 4, clamp=0.9, **impl
            ),
        ),
        draw_images,
        family="stylegan",
        calls=filtered_lrelu_calls,
        optional=("b",),
        gradcheck={"eps": 1e-7, "atol": 1e-4},
    ),
    Case(
        "fma",
        ["a", "b", "c"],
        fma,
        lambda a, b, c: a * b + c,
        lambda large: normal(*([(41, 33, 65)] * 3 if large else [(2, 3, 4), (3, 1), (2, 1, 1)])),
        sees="addcmul",
    ),
    Case(
        "grid_sample",
        ["input", "grid"],
        grid_sample,
        sample,
        draw_points,
        sees="grid_sampler_2d",
        forward_mode=False,
        exact_on_gpus=False,
    ),
    Case(
        "conv2d_resample",
        ["x", "w"],
        convolve,
        implementation("ref")(convolve),
        lambda large: normal(
            *[(2, 8, 33, 20), (5, 8, 3, 3)] if large else [(1, 2, 4, 3), (2, 2, 3, 2)]
        ),
        under_autocast=(torch.bfloat16,),
        sees="upfirdn2d",
        library_sums=True,
    ),
]

CASES = [*ELEMENTWISE, *RECURRENT, *STYLEGAN]
