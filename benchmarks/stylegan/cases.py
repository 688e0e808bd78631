"""The operators that are called, their arguments, and the bytes that they must move."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from lltm_jit.ops.bias_act import activation_funcs, bias_act
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, setup_filter, upsample2d

from ..shared.gpu_kernels import compile_variants

FORWARD, WITH_SIGNS, BACKWARD = "forward", "forward with signs", "forward + backward"
CLAMP = 1.0  # inputs are about as large as 1, so that many meet it
WIDE_CLAMP = 256.0  # StyleGAN's, which inputs never meet
OUTLIER = 2.0**15  # far larger than its surroundings: see Note [Outliers] in mma/walk/scales.cuh
PAIRS = ((2, 2), (2, 1), (1, 2), (4, 2), (2, 4), (4, 4))  # up, down
_TAPS = 6  # taps of a filter, per unit of its factor
_LAYOUTS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}

Shape = tuple[int, ...]
Function = Callable[..., Tensor]  # its arguments are x, a bias, and impl=


@dataclass(frozen=True)
class Case:
    """One call: an operator with its arguments, on one tensor, in one phase.

    The fewest bytes count each tensor that the phase reads or writes once: `tensors` times the
    bytes of x, and `more` bytes for each element of x.
    """

    operator: str
    name: str
    function: Function
    shape: Shape
    dtype: torch.dtype
    device: torch.device
    tensors: float
    phase: str = FORWARD
    more: float = 0.0
    layout: str = "NCHW"
    bias: bool = True
    clamp: float | None = None  # the clamp of the result
    outliers: int = 0  # planes of x that have one

    @property
    def bytes(self) -> int:
        return round(math.prod(self.shape) * (self.tensors * self.dtype.itemsize + self.more))

    def inputs(self, seed: int = 0) -> list[Tensor]:
        """x, and the bias where there is one."""
        generator = torch.Generator(self.device).manual_seed(seed)
        shapes = [self.shape, self.shape[1:2]] if self.bias else [self.shape]
        x, *bias = (
            torch.randn(shape, generator=generator, device=self.device).to(self.dtype)
            for shape in shapes
        )
        x.flatten(0, 1)[: self.outliers, 0, 0] = OUTLIER
        return [x.contiguous(memory_format=_LAYOUTS[self.layout]), *bias]

    def run(self, inputs: list[Tensor], impl: str) -> Tensor:
        return self.function(*inputs, impl=impl)

    def step(self, inputs: list[Tensor], impl: str) -> Callable[[], Any]:
        """What is timed: a function without arguments that does what the phase says."""
        if self.phase == FORWARD:
            return torch.no_grad()(partial(self.run, inputs, impl))
        leaves = [tensor.requires_grad_() for tensor in inputs]
        if self.phase == WITH_SIGNS:
            return partial(self.run, leaves, impl)
        with torch.no_grad():
            grad = torch.ones_like(self.run(leaves, impl))
        return lambda: torch.autograd.grad(self.run(leaves, impl), leaves, grad)


def compile_kernels(
    shapes: Iterable[Shape], dtypes: Iterable[torch.dtype], error_shape: Shape
) -> None:
    """Compile the kernels that the cases of filtered_lrelu need on the GPU."""
    meta = torch.device("meta")
    timed = [
        case
        for shape, dtype in itertools.product(shapes, dtypes)
        for case in cases("filtered_lrelu", dtype, shape, meta)
    ]
    differentiated = [  # for the errors of their gradients
        replace(case, phase=BACKWARD)
        for dtype in dtypes
        for case in cases("filtered_lrelu", dtype, error_shape, meta)
    ]
    compile_variants(
        case.step(
            [torch.empty(s, dtype=case.dtype, device=meta) for s in (case.shape, case.shape[1:2])],
            "cuda",
        )
        for case in (*timed, *differentiated)
    )


def cases(operator: str, dtype: torch.dtype, shape: Shape, device: torch.device) -> Iterator[Case]:
    """The cases of an operator of the given name."""
    make = {
        "bias_act": _bias_act_cases,
        "upfirdn2d": _upfirdn2d_cases,
        "filtered_lrelu": _filtered_lrelu_cases,
    }
    yield from make[operator](partial(Case, shape=shape, dtype=dtype, device=device), device)


def _bias_act_cases(case: Callable[..., Case], device: torch.device) -> Iterator[Case]:
    clamped = partial(bias_act, act="lrelu", clamp=CLAMP)
    for layout in _LAYOUTS:
        named = partial(case, "bias_act", layout=layout)
        for act in activation_funcs:
            yield named(f"{act}, {layout}", partial(bias_act, act=act), tensors=2)
        # The backward pass reads its gradient and the result, and writes a gradient.
        yield named(f"lrelu, clamp, {layout}", clamped, tensors=5, phase=BACKWARD, clamp=CLAMP)


def _upfirdn2d_cases(case: Callable[..., Case], device: torch.device) -> Iterator[Case]:
    four, twelve = (setup_filter(taps, device) for taps in ([1, 3, 3, 1], low_pass(2)))
    functions: dict[str, tuple[Function, float]] = {
        "upsample2d": (upsample2d, 5),
        "downsample2d": (downsample2d, 1.25),
        "filter2d": (filter2d, 2),
    }
    for layout, (taps, f) in itertools.product(
        _LAYOUTS, (("4 taps", four), ("12 + 12 taps", twelve))
    ):
        for name, (function, tensors) in functions.items():
            text, call = f"{name}, {taps}, {layout}", partial(function, f=f)
            yield case("upfirdn2d", text, call, tensors=tensors, layout=layout, bias=False)
    call = partial(upsample2d, f=four)
    for layout in _LAYOUTS:
        text = f"upsample2d, 4 taps, {layout}"
        options = {"layout": layout, "bias": False}
        yield case("upfirdn2d", text, call, tensors=10, phase=BACKWARD, **options)


def _filtered_lrelu_cases(case: partial[Case], device: torch.device) -> Iterator[Case]:
    # On a CPU the plain composition takes long.
    for up, down in PAIRS if device.type != "cpu" else PAIRS[:1]:
        fu, fd = (setup_filter(low_pass(max(factor, 2)), device) for factor in (up, down))
        around = len(fu) + len(fd) - 2
        left, right = (around + 1) // 2, around // 2
        call = partial(filtered_lrelu, fu=fu, fd=fd, up=up, down=down)
        call = partial(call, padding=[left, right, left, right])
        both = 1 + (up / down) ** 2  # x and the result
        name = f"up {up}, down {down}"
        # One bit of each element between the filters is kept, and one more where the clamp is met.
        for clamp, text, bits in ((WIDE_CLAMP, name, 1), (CLAMP, f"{name}, clamped", 2)):
            signs = bits * up**2 / 8  # bytes
            named = partial(case, "filtered_lrelu", text, partial(_lrelu, call, clamp))
            if clamp == WIDE_CLAMP or (up, down) == PAIRS[0]:
                yield named(tensors=both)
            if (up, down) == PAIRS[0]:  # each phase needs a kernel of its own
                yield named(tensors=both, more=signs, phase=WITH_SIGNS)
                yield named(tensors=2 * both, more=2 * signs, phase=BACKWARD)
        if (up, down) == PAIRS[0] and device.type != "cpu":  # outliers need another kernel there
            named = partial(case, "filtered_lrelu", function=partial(_lrelu, call, WIDE_CLAMP))
            planes = math.prod(case.keywords["shape"][:2])
            for count, text in ((1, "an outlier"), (planes, "an outlier in each plane")):
                yield named(f"{name}, {text}", tensors=both, outliers=count)


def _lrelu(call: Function, clamp: float, x: Tensor, b: Tensor, impl: str) -> Tensor:
    return call(x, b=b, clamp=clamp, impl=impl)


@cache
def low_pass(factor: int) -> Tensor:
    """A sinc under a Kaiser window: the filtered signal fits into 1/factor as many samples."""
    taps = _TAPS * factor
    places = torch.arange(taps) - (taps - 1) / 2
    return torch.sinc(places / factor) * torch.kaiser_window(taps, periodic=False, beta=6.0)
