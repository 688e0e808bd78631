"""The context manager that chooses the implementation of all StyleGAN operators."""

import threading

import pytest
import torch
from op_testing import refusal

from lltm_jit.ops.bias_act import bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.stylegan import implementation
from lltm_jit.ops.stylegan._implementation import takes_formula
from lltm_jit.ops.stylegan2 import fused_leaky_relu
from lltm_jit.ops.upfirdn2d import downsample2d, upsample2d


def test_the_block_goes_before_the_argument_and_ends():
    assert takes_formula("f", "ref")
    with implementation("ref"):
        assert takes_formula("f", "cuda")
        with implementation("cuda"):
            assert not takes_formula("f", "ref")
        assert takes_formula("f", "cuda")
        with pytest.raises(KeyError), implementation("cuda"):
            raise KeyError
        assert takes_formula("f", "cuda")
    assert not takes_formula("f", "cuda")


def test_a_default_device_leaves_the_choice():
    """It is a mode, which sees calls of operators, and makes them."""
    x = torch.zeros(3, requires_grad=True)
    with torch.device("cpu"):
        chosen, usual = (bias_act(x, act="tanh", dim=0, impl=impl) for impl in ("ref", "cuda"))
    assert chosen.grad_fn.name() == bias_act(x, act="tanh", dim=0, impl="ref").grad_fn.name()
    assert chosen.grad_fn.name() != usual.grad_fn.name()


def test_bad_names():
    wanted = "expected impl to be 'cuda' or 'ref', but got"
    said = refusal(ValueError, takes_formula, "bias_act", "gpu")
    assert said == f"bias_act(): {wanted} 'gpu'"
    with implementation("cuda"):
        said = refusal(ValueError, bias_act, torch.zeros(1, 2), impl="gpu")
    assert said == f"bias_act(): {wanted} 'gpu'"
    said = refusal(ValueError, implementation("fast").__enter__)
    assert said == f"implementation(): {wanted} 'fast'"
    assert not takes_formula("f", "cuda")


def test_the_choice_is_for_all_threads():
    """autograd runs a backward in threads of its own."""
    seen = []
    with implementation("ref"):
        thread = threading.Thread(target=lambda: seen.append(takes_formula("f", "cuda")))
        thread.start()
        thread.join()
    assert seen == [True]


X4, F4 = torch.randn(1, 3, 8, 8), torch.tensor([1.0, 3, 3, 1]) / 8
CALLS = {
    "bias_act": lambda x: bias_act(x, act="relu"),
    "upsample2d": lambda x: upsample2d(x, F4),
    "downsample2d": lambda x: downsample2d(x, F4),
    "filtered_lrelu": lambda x: filtered_lrelu(x, F4, F4, None, 2, 2, 3),
    "fused_leaky_relu": fused_leaky_relu,
    "conv2d_resample": lambda x: conv2d_resample(x, torch.ones(2, 3, 3, 3), F4, up=2, padding=1),
}


@pytest.mark.parametrize("impl", ["cuda", "ref"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_both_are_traced(name, layout, impl):
    """As torch.onnx.export(dynamo=False) does; results keep the layout of a call."""
    call, x = CALLS[name], X4.contiguous(memory_format=layout)
    with implementation(impl):
        traced, expected = torch.jit.trace(call, (x,)), call(x)
    assert not any("Python" in node.kind() for node in traced.inlined_graph.nodes())
    assert traced(x).stride() == expected.stride()
    torch.testing.assert_close(traced(x), expected)


@pytest.mark.parametrize("impl", ["cuda", "ref"])
@pytest.mark.parametrize("name", CALLS)
def test_both_are_exported_with_a_range_of_heights(name, impl):
    class Model(torch.nn.Module):
        def forward(self, x):
            return CALLS[name](x)

    shapes = ({2: torch.export.Dim("height", min=8, max=512)},)
    with implementation(impl):
        program = torch.export.export(Model(), (torch.randn(1, 3, 16, 16),), dynamic_shapes=shapes)
        ours = ["lltm_jit" in str(node.target) for node in program.graph.nodes]
        assert any(ours) == (impl == "cuda")  # ONNX has torch's operations alone
        x = torch.randn(1, 3, 22, 16)
        torch.testing.assert_close(program.module()(x), CALLS[name](x))
