"""The LLTM cell under torch.compile, torch.export, AOTInductor and make_fx."""

from __future__ import annotations

import io

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import (
    DEVICES,
    EVERY_BACKEND,
    loaded_package,
    needs_gpu,
    refusal,
    results_and_gradients,
)
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.library import opcheck

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward

ops = torch.ops.lltm_jit


# The last case takes clusters of blocks.
@pytest.mark.parametrize(
    ("device", "dtype", "sizes"),
    [
        ("cpu", torch.float, (3, 5, 7)),
        pytest.param("cuda", torch.float, (3, 5, 7), marks=needs_gpu),
        pytest.param("cuda", torch.half, (64, 256, 512), marks=needs_gpu),
    ],
)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_is_bitwise_eager(mode, device, dtype, sizes):
    """On a GPU the second mode replays CUDA graphs from the third call on, backward too."""
    compiled = torch.compile(lambda *args: lltm_cell(*args), fullgraph=True, mode=mode)
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    for _ in range(4):
        inputs = cell_inputs(*sizes, dtype=dtype, device=device, requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        actual = results_and_gradients(compiled, inputs)
        torch.testing.assert_close(actual, results_and_gradients(lltm_cell, inputs), rtol=0, atol=0)
    if device == "cuda":
        assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == skipped


@pytest.mark.parametrize("device", DEVICES)
@EVERY_BACKEND
def test_compile_once_for_every_batch_size(backend, device):
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(cell, fullgraph=True, backend=counter)

    def run(function, batch_size):
        torch.manual_seed(batch_size)
        input = torch.randn(batch_size, 5, device=device)
        state = (torch.randn(batch_size, 7, device=device),) * 2
        results = function(input, state)
        return [*results, *torch.autograd.grad(sum(r.square().sum() for r in results), parameters)]

    parameters = list(cell.parameters())
    for batch_size in (3, 5):  # at the second size the compiler sees that the size changes
        torch.testing.assert_close(run(compiled, batch_size), run(cell, batch_size))
    assert counter.frame_count == 2
    with torch.compiler.set_stance("fail_on_recompile"):
        for batch_size in (2, 8, 33, 700):
            torch.testing.assert_close(run(compiled, batch_size), run(cell, batch_size))
    assert counter.frame_count == 2


@pytest.mark.parametrize("device", DEVICES)
def test_exported_program_takes_any_batch_and_is_saved(device):
    cell = lltm_jit.LLTMCell(5, 7, device=device)

    def args(batch_size):
        states = tuple(torch.randn(2, batch_size, 7, device=device))
        return torch.randn(batch_size, 5, device=device), states

    batch = torch.export.Dim("batch")
    shapes = ({0: batch}, ({0: batch}, {0: batch}))
    program = torch.export.export(cell, args(3), dynamic_shapes=shapes)
    with io.BytesIO() as file:
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file)
    for batch_size in (2, 9):
        new = args(batch_size)
        torch.testing.assert_close(loaded.module()(*new), cell(*new), rtol=0, atol=0)
    calls = [
        str(n.target) for n in loaded.run_decompositions().graph.nodes if "lltm" in str(n.target)
    ]
    assert calls == ["lltm_jit.lltm_cell.default"]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_aot_inductor_calls_the_ops_whole(device, tmp_path):
    """Those of layers over sequences, too, in one package, which takes ten seconds to compile."""

    class Several(nn.Module):
        """With and without the optional bias."""

        def __init__(self):
            super().__init__()
            self.first = lltm_jit.LLTMCell(5, 7, device=device)
            self.second = lltm_jit.LLTMCell(7, 4, bias=False, device=device)
            self.layer = lltm_jit.GRU(5, 7, bidirectional=True, device=device)

        def forward(self, input, h, c, sequence):
            h, c = self.first(input, (h, c))
            return (h, c, *self.second(h, (h[:, :4], c[:, :4])), *self.layer(sequence))

    def args(batch_size, steps, rows):
        shapes = ((batch_size, 5), (batch_size, 7), (batch_size, 7), (steps, rows, 5))
        return tuple(torch.randn(shape, device=device) for shape in shapes)

    module, names = Several(), ("batch", "steps", "rows")
    batch, steps, rows = (torch.export.Dim(name, min=2, max=1024) for name in names)
    shapes = [{0: batch}] * 3 + [{0: steps, 1: rows}]
    program = torch.export.export(module, args(3, 4, 5), dynamic_shapes=shapes)
    loaded = loaded_package(program, tmp_path / "several.pt2")
    error = 0 if device == "cpu" else 1e-6  # a GPU's products for both directions may differ
    with torch.no_grad():
        for sizes in ((2, 2, 9), (3, 7, 2), (9, 4, 5)):
            new = args(*sizes)
            torch.testing.assert_close(tuple(loaded(*new)), module(*new), rtol=0, atol=error)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace(device):
    """The traced cell takes other batch sizes, and may be saved and loaded."""
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    traced = torch.jit.trace(cell, (torch.randn(3, 5, device=device),))
    assert "lltm_jit::lltm_cell(" in str(traced.graph)
    with io.BytesIO() as file:
        torch.jit.save(traced, file)
        file.seek(0)
        loaded = torch.jit.load(file)
    input = torch.randn(6, 5, device=device)

    def run(module):
        results = module(input)
        parameters = [module.weights, module.bias]
        return [*results, *torch.autograd.grad(sum(r.square().sum() for r in results), parameters)]

    torch.testing.assert_close(run(loaded), run(cell), rtol=0, atol=0)


def tutorial_calls(*inputs):
    results = lltm_forward(*inputs)
    new_h, new_cell, *saved = results
    return results, lltm_backward(new_h.cos(), new_cell.cos(), new_cell, *saved, inputs[1])


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_tutorial_calls_compiled(device):
    inputs = cell_inputs(dtype=torch.double, device=device, requires_grad=True)
    actual, expected = (
        [tensor for results in function(*inputs) for tensor in results]
        for function in (torch.compile(tutorial_calls, fullgraph=True), tutorial_calls)
    )
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(sum(t.square().sum() for t in actual), inputs),
        torch.autograd.grad(sum(t.square().sum() for t in expected), inputs),
    )
    plain = [t.detach() for t in inputs]
    opcheck(ops.lltm_forward.default, plain)
    new_h, new_cell, *saved = lltm_forward(*plain)
    opcheck(ops.lltm_backward.default, (new_h, new_cell, new_cell, *saved, plain[1]))


@pytest.mark.parametrize("device", DEVICES)
@EVERY_BACKEND
def test_autocast_leaves_the_compiled_tutorial_calls(backend, device):
    inputs = cell_inputs(dtype=torch.float, device=device)
    with torch.autocast(device, torch.bfloat16):
        actual = torch.compile(tutorial_calls, fullgraph=True, backend=backend)(*inputs)
    torch.testing.assert_close(actual, tutorial_calls(*inputs))


def test_tutorial_calls_compiled_have_the_errors_of_eager_ones():
    inputs = list(cell_inputs())
    inputs[1] = inputs[1][:-1]
    compiled = torch.compile(lltm_forward, fullgraph=True, backend="aot_eager")
    expected = refusal(RuntimeError, lltm_forward, *inputs)
    assert expected in refusal(RuntimeError, compiled, *inputs)
