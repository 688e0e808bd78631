"""The LLTM cell under torch.compile, torch.export, AOTInductor and make_fx."""

import itertools

import pytest
import torch
from layer_testing import derivatives
from lltm_testing import cell_inputs
from op_testing import loaded_package, needs_gpu, refusal, results_and_gradients
from torch import nn

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward


# The last case takes clusters of blocks.
@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "sizes"), [(torch.float, (3, 5, 7)), (torch.half, (64, 256, 512))], ids=str
)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_is_bitwise_eager(mode, dtype, sizes):
    """The second mode replays CUDA graphs from the third call on, backward too."""
    compiled = torch.compile(lambda *args: lltm_cell(*args), fullgraph=True, mode=mode)
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    for _ in range(4):
        inputs = cell_inputs(*sizes, dtype=dtype, device="cuda", requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        actual = results_and_gradients(compiled, inputs)
        torch.testing.assert_close(actual, results_and_gradients(lltm_cell, inputs), rtol=0, atol=0)
    assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == skipped


@pytest.mark.slow
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


def tutorial_calls(*inputs):
    results = lltm_forward(*inputs)
    new_h, new_cell, *saved = results
    return results, lltm_backward(new_h.cos(), new_cell.cos(), new_cell, *saved, inputs[1])


@pytest.mark.slow
def test_tutorial_calls_compiled(device):
    inputs = cell_inputs(dtype=torch.double, device=device, requires_grad=True)
    found = []
    for function in (torch.compile(tutorial_calls, fullgraph=True), tutorial_calls):
        results = list(itertools.chain(*function(*inputs)))
        found.append([*results, *derivatives(results, inputs)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_autocast_leaves_the_tutorial_calls(compiled, device):
    inputs, function = cell_inputs(dtype=torch.float, device=device), tutorial_calls
    if compiled:
        function = torch.compile(tutorial_calls, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        actual = function(*inputs)
    exact = {} if compiled else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(actual, tutorial_calls(*inputs), **exact)


def test_tutorial_calls_compiled_have_the_errors_of_eager_ones():
    inputs = list(cell_inputs())
    inputs[1] = inputs[1][:-1]
    compiled = torch.compile(lltm_forward, fullgraph=True, backend="aot_eager")
    expected = refusal(RuntimeError, lltm_forward, *inputs)
    assert expected in refusal(RuntimeError, compiled, *inputs)
