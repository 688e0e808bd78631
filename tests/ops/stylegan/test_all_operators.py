"""What holds for all StyleGAN operators: kernels, formulas and references are of one kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from op_testing import DEVICES, bits, captured_in_graph, needs_gpu, on_side_stream
from torch import Tensor
from torch.func import jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from lltm_jit.ops.bias_act import activation_funcs, bias_act
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.stylegan2 import fused_bias_act
from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, setup_filter, upfirdn2d, upsample2d

TAPS = torch.tensor([1.0, 3.0, 2.0])


def refer_to(x: Tensor) -> Tensor:
    """Of x's shape, contiguous."""
    return torch.arange(x.numel(), device=x.device).view(x.shape).remainder(5).sub(2).to(x.dtype)


# Functions of images. Those of the first kind keep their memory format.
KEEPING: dict[str, Callable[..., Tensor]] = {
    "bias_act": lambda x, **o: bias_act(x, x.new_ones(x.shape[1]), act="tanh", clamp=0.9, **o),
    "bias_act, nothing": lambda x, **o: bias_act(x, **o),
    "fused_bias_act": lambda x, **o: fused_bias_act(x, None, None, 3, 0, 0.2, 1.5, **o),
    "fused_bias_act, slope": lambda x, **o: fused_bias_act(
        x, None, refer_to(x), 3, 1, 0.2, 1.5, **o
    ),
    "fused_bias_act, slope and bias": lambda x, **o: fused_bias_act(
        x, x.new_ones(x.shape[1]), refer_to(x), 3, 1, 0.2, -1.5, **o
    ),
    "fused_bias_act, 0": lambda x, **o: fused_bias_act(x, None, None, 3, 2, 0.2, 1.5, **o),
    "upfirdn2d, nothing": lambda x, **o: upfirdn2d(x, None, **o),
    "upfirdn2d, separable": lambda x, **o: upfirdn2d(
        x, TAPS.to(x.device), 2, [1, 3], [1, 2, -1, 3], **o
    ),
    "upfirdn2d, 2-D": lambda x, **o: upsample2d(x, setup_filter([1, 3, 1], x.device), **o),
}
OPERATORS = {
    **KEEPING,
    "filtered_lrelu": lambda x, **o: filtered_lrelu(
        x, TAPS.to(x.device), TAPS.outer(TAPS).to(x.device), up=2, down=2, padding=3, **o
    ),
    "filtered_lrelu, nothing": lambda x, **o: filtered_lrelu(x, gain=1, slope=1, **o),
}
WAYS = {
    "reference": lambda function, x: function(x, impl="ref"),
    "jvp": lambda function, x: jvp(function, (x,), (x.cos(),))[0],
    "tangent": lambda function, x: jvp(lambda t: function(t), (x.cos(),), (x,))[1],
    "vmap": lambda function, x: vmap(function)(torch.stack([x, -x]))[0],
}


FORMATS = [torch.contiguous_format, torch.channels_last]


def images(device: str, channels_last: bool = True) -> Tensor:
    x = torch.randn(2, 8, 6, 10, device=device)
    return x.to(memory_format=torch.channels_last) if channels_last else x


class Products(TorchDispatchMode):
    """Notes what torch may compute with fewer bits than its operands have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if any(part in name for part in ("conv", "mm", "matmul", "::dot", "::mv", "einsum")):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATORS)
def test_formulas_use_no_product_whose_precision_is_a_setting(name, way):
    with Products() as products:
        x = images("cpu").requires_grad_(way == "reference")
        y = WAYS[way](OPERATORS[name], x)
        if y.requires_grad:
            y.sum().backward()
    assert not products.seen


@needs_gpu
@pytest.mark.parametrize("way", ["reference", "jvp", "vmap"])
@pytest.mark.parametrize("name", OPERATORS)
def test_formulas_are_exact_where_torch_takes_tf32(name, way, monkeypatch):
    x = torch.randn(2, 1, 40, 40, device="cuda")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    exact = OPERATORS[name](x.double(), impl="ref")
    error = (WAYS[way](OPERATORS[name], x).double() - exact).abs().max()
    assert error <= 4e-6 * exact.abs().max()  # TF32 has an error of some 5e-4


@pytest.mark.parametrize(
    "name", ["bias_act", "fused_bias_act", "upfirdn2d, 2-D", "filtered_lrelu", "paddings"]
)
def test_references_compile(name):
    """In one graph, with numbers, sizes and paddings that vary."""

    def reference(x: Tensor, side: int) -> Tensor:
        if name == "paddings":
            return upfirdn2d(x, TAPS, padding=[side, 1, x.shape[2], -1], impl="ref")
        return OPERATORS[name](x, impl="ref")

    compiled = torch.compile(reference, fullgraph=True, backend="eager", dynamic=True)
    x = images("cpu")
    for side in (2, 3, -2):
        torch.testing.assert_close(compiled(x, side), reference(x, side))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KEEPING)
def test_the_memory_format_stays(name, way, channels_last, device):
    x = images(device, channels_last)
    y = KEEPING[name](x)
    assert y.is_contiguous(memory_format=FORMATS[channels_last])
    assert WAYS[way](KEEPING[name], x).stride() == y.stride()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", ["kernel", *WAYS])
@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_no_views(name, way, device):
    x = images(device)
    before = x.clone()

    def changed(x: Tensor, **options: str) -> Tensor:
        return OPERATORS[name](x, **options).add_(1)

    if way == "kernel":
        changed(x)
    else:
        WAYS[way](changed, x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "name", [*OPERATORS, *(f"bias_act {act}" for act in activation_funcs), "grid_sample"]
)
def test_samples_do_not_see_each_other(name, channels_last, device):
    """Bit for bit, in results and gradients, whatever another sample of the batch is."""
    points = 2 * torch.rand(2, 5, 5, 2, device=device) - 1

    def run(x: Tensor) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        if name == "grid_sample":
            y = grid_sample(leaf, points)
        elif name in OPERATORS:
            y = OPERATORS[name](leaf)
        else:
            y = bias_act(leaf, act=name.split()[1], clamp=0.8)
        weight = torch.linspace(-1, 1, y.numel(), device=device).view(y.shape)
        # On a GPU the gradient of grid_sample is summed by atomics.
        if not y.requires_grad or (name == "grid_sample" and device == "cuda"):
            return [y[1]]
        return [y[1], torch.autograd.grad(y, leaf, weight)[0][1]]

    for dtype in (torch.half, torch.bfloat16, torch.float):
        if name == "grid_sample" and dtype != torch.float:
            continue
        x = images(device, channels_last).to(dtype)
        expected = bits(run(x))
        for value in (float("nan"), float("inf"), torch.finfo(dtype).max / 2):
            x[0] = value
            assert bits(run(x)) == expected, (dtype, value)


def lrelu_of_filters(x: Tensor, f: Tensor) -> Tensor:
    return filtered_lrelu(x, f, f, up=2, down=2, padding=11)


@needs_gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("taps", [4, 12])  # of a filter on two axes, and of a separable one
@pytest.mark.parametrize("function", [upsample2d, downsample2d, filter2d, lrelu_of_filters])
def test_cuda_graph_and_a_filter_that_comes_late(function, taps, channels_last):
    x = torch.randn(2, 8, 64, 48, device="cuda").to(memory_format=FORMATS[channels_last])
    f = setup_filter(range(1, taps + 1), "cuda")
    expected = function(x, f)
    torch.testing.assert_close(captured_in_graph(lambda: (function(x, f),))[0], expected)
    late = on_side_stream(lambda f, x: function(x, f), (f, x))
    torch.testing.assert_close(late, expected)
