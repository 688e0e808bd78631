"""What holds for all StyleGAN operators: kernels, formulas and references are of one kind."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from op_testing import (
    ANY_SIZES,
    captured_in_graph,
    needs_gpu,
    on_side_stream,
    results_and_gradients,
)
from row_testing import assert_rows_independent
from subclasses import Dispatched
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import jvp, vmap

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


# Parts of the names of what torch may compute with fewer bits than its operands have.
PRODUCTS = ("conv", "mm", "matmul", "::dot", "::mv", "einsum")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATORS)
def test_formulas_use_no_product_whose_precision_is_a_setting(name, way):
    with Dispatched() as dispatched:
        x = images("cpu").requires_grad_(way == "reference")
        y = WAYS[way](OPERATORS[name], x)
        if y.requires_grad:
            y.sum().backward()
    assert not [name for name in dispatched.names if any(part in name for part in PRODUCTS)]


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


@pytest.mark.parametrize("name", ["bias_act", "fused_bias_act", "upfirdn2d, 2-D", "filtered_lrelu"])
def test_references_compile(name):
    def reference(x: Tensor) -> Tensor:
        return OPERATORS[name](x, impl="ref")

    compiled = torch.compile(reference, fullgraph=True, backend="eager", dynamic=True)
    x = images("cpu")
    torch.testing.assert_close(compiled(x), reference(x))


@pytest.mark.parametrize("impl", ["cuda", "ref"])
@pytest.mark.parametrize("name", ["upfirdn2d", "filtered_lrelu"])
@ANY_SIZES
def test_sizes_and_paddings_that_are_not_known_are_compiled_once(name, impl, device):
    f = TAPS.to(device)

    def function(x: Tensor, side: int) -> Tensor:
        padding = [side, side + 3, x.shape[2], -1]
        if name == "upfirdn2d":
            return upfirdn2d(x.sin(), f, padding=padding, impl=impl).cos()
        return filtered_lrelu(x, f, f, up=2, down=2, padding=padding, impl=impl)

    counter, counts = CompileCounterWithBackend("aot_eager"), set()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=counter)
    for *shape, side in ((2, 3, 8, 10, 2), (4, 5, 13, 7, 3), (3, 2, 9, 7, 4)):
        x = torch.randn(shape, dtype=torch.double, device=device, requires_grad=True)
        found = [
            results_and_gradients(lambda x, run=run, side=side: run(x, side), [x])
            for run in (compiled, function)
        ]
        torch.testing.assert_close(*found)
        counts.add(counter.frame_count)
    assert len(counts) == 1  # torch may call the backend twice for a graph


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KEEPING)
def test_the_memory_format_stays(name, way, channels_last, device):
    x = images(device, channels_last)
    y = KEEPING[name](x)
    assert y.is_contiguous(memory_format=FORMATS[channels_last])
    assert WAYS[way](KEEPING[name], x).stride() == y.stride()


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


LOCAL = {
    **OPERATORS,
    **{f"bias_act {act}": partial(bias_act, act=act, clamp=0.8) for act in activation_funcs},
    "grid_sample": lambda x: grid_sample(
        x, torch.linspace(-1, 1, 100, device=x.device).view(2, 5, 5, 2)
    ),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", LOCAL)
def test_samples_do_not_see_each_other(name, channels_last, device):
    """Bit for bit, in results and gradients, whatever another sample of the batch is."""

    def run(x: Tensor) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        y = LOCAL[name](leaf)
        weight = torch.linspace(-1, 1, y.numel(), device=device).view(y.shape)
        # On a GPU the gradient of grid_sample is summed by atomics.
        if not y.requires_grad or (name == "grid_sample" and device == "cuda"):
            return [y]
        return [y, *torch.autograd.grad(y, leaf, weight)]

    for dtype in (torch.half, torch.bfloat16, torch.float):
        assert_rows_independent(run, [images(device, channels_last).to(dtype)])


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
