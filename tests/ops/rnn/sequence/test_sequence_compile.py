"""Whole sequences and their layers under torch.compile, torch.export and make_fx.

test_lltm_compile.py has a layer under AOTInductor.
"""

from __future__ import annotations

import io

import pytest
import torch
from op_testing import needs_gpu, refusal
from sequence_testing import LAYERS, TRACED, inputs_of, tensors, with_gradients
from torch._dynamo.testing import CompileCounterWithBackend

import lltm_jit
from lltm_jit.functional import recurrent_sequence

ops = torch.ops.lltm_jit


@pytest.mark.parametrize("kind", TRACED)
def test_compile_once_for_every_batch_and_length(kind, device):
    """In both directions, with lengths and resets."""
    layer = LAYERS[kind](5, 7, bidirectional=True, device=device)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter, dynamic=True)
    for steps, batch_size in ((4, 3), (9, 2), (3, 40)):
        x = torch.randn(steps, batch_size, 5, device=device)
        lengths = torch.randint(1, steps + 1, (batch_size,), device=device)
        reset = torch.rand(steps, batch_size, device=device) < 0.3
        found = [
            with_gradients(function, x, lengths=lengths, reset=reset)
            for function in (compiled, layer)
        ]
        torch.testing.assert_close(*found)
    assert counter.frame_count == 1


@pytest.mark.parametrize("kind", TRACED)
def test_lengths_in_a_list_may_change(kind, device):
    """The second list makes the program one for all."""
    layer, counter = LAYERS[kind](5, 7, device=device), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(20, 3, 5, device=device)
    for lengths in (
        [20, 10, 5],
        *([20 - i, 10 + i % 7, 5 + i % 3] for i in range(1, 5)),
        [0, 1, 2],
    ):
        found = [with_gradients(run, x, lengths=lengths) for run in (compiled, layer)]
        torch.testing.assert_close(*found)
    assert counter.frame_count <= 3  # 0 and 1 may be constants


def test_sizes_that_change_are_noticed(device):
    """Without being told: the second size makes the program one for all."""
    layer = lltm_jit.LSTM(5, 7, batch_first=True, device=device)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)

    def check(batch_size, steps):
        x = torch.randn(batch_size, steps, 5, device=device)
        state = tuple(torch.randn(2, 1, batch_size, 7, device=device))
        found = [with_gradients(function, x, state) for function in (compiled, layer)]
        torch.testing.assert_close(*found)

    check(3, 4)
    check(5, 6)
    with torch.compiler.set_stance("fail_on_recompile"):
        check(2, 9)
        check(40, 17)
    assert counter.frame_count == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "mode"),
    [
        ("cpu", "default"),
        pytest.param("cuda", "default", marks=needs_gpu),
        pytest.param("cuda", "reduce-overhead", marks=needs_gpu),
    ],
)
def test_compiled_by_inductor(device, mode):
    """The last mode replays CUDA graphs from the third call on, backward too."""
    layer = lltm_jit.LSTM(5, 16, 2, device=device)
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(4):
        x = torch.randn(6, 3, 5, device=device)
        torch.compiler.cudagraph_mark_step_begin()
        actual = [tensor.clone() for tensor in with_gradients(compiled, x)]
        torch.testing.assert_close(actual, with_gradients(layer, x))


def test_compiled_under_autocast(device):
    layer = lltm_jit.GRU(5, 7, device=device)
    x = torch.randn(4, 3, 5, device=device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        actual, expected = (with_gradients(function, x) for function in (compiled, layer))
    assert actual[0].dtype == (torch.float if device == "cpu" else torch.bfloat16)
    torch.testing.assert_close(actual, expected)


def test_compiled_checkpoints(device):
    layer = lltm_jit.LLTM(5, 7, checkpoint=3, device=device)
    x = torch.randn(8, 3, 5, device=device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    actual, expected = (with_gradients(function, x) for function in (compiled, layer))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("module", "sizes", "backward"),
    [
        (lltm_jit.LLTMCell, (3, 5), "LltmCellBackward"),
        (lltm_jit.LSTM, (4, 3, 5), "RecurrentSequenceBackward"),
    ],
)
def test_compiled_autograd(module, sizes, backward, device):
    """It takes the backward of a compiled forward pass; of another it says what to do."""
    layer = module(5, 7, device=device)
    x = torch.randn(sizes, device=device)

    def step():
        sum(result.square().sum() for result in tensors(layer(x))).backward()
        gradients = [parameter.grad for parameter in layer.parameters()]
        layer.zero_grad()
        return gradients

    expected = step()
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.testing.assert_close(torch.compile(step, backend="aot_eager")(), expected)
    message = f"{backward}: compiled autograd supports .* use torch.compile for it"
    with (
        torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")),
        pytest.raises(NotImplementedError, match=message),
    ):
        step()
    torch.testing.assert_close(step(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", TRACED)
def test_exported_program_takes_any_size_and_is_saved(kind, device):
    layer = LAYERS[kind](5, 7, bidirectional=True, device=device)

    def args(steps, batch_size):
        lengths = torch.randint(1, steps + 1, (batch_size,), device=device)
        return (torch.randn(steps, batch_size, 5, device=device),), {"lengths": lengths}

    positional, named = args(4, 3)
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    shapes = {"input": {0: steps, 1: batch}, "lengths": {0: batch}}
    program = torch.export.export(layer, positional, named, dynamic_shapes=shapes)
    with io.BytesIO() as file:
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file)
    for sizes in ((2, 9), (17, 2)):
        positional, named = args(*sizes)
        actual = loaded.module()(*positional, **named)
        torch.testing.assert_close(tensors(actual), tensors(layer(*positional, **named)))
    calls = [str(n.target) for n in loaded.graph.nodes if "recurrent" in str(n.target)]
    assert calls == ["lltm_jit.recurrent_sequence.default"] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace(device):
    """The traced layer takes other batch sizes, and may be saved and loaded."""
    layer = lltm_jit.LSTM(5, 7, device=device)
    traced = torch.jit.trace(layer, (torch.randn(4, 3, 5, device=device),))
    with io.BytesIO() as file:
        torch.jit.save(traced, file)
        file.seek(0)
        loaded = torch.jit.load(file)
    x = torch.randn(9, 6, 5, device=device)
    torch.testing.assert_close(with_gradients(loaded, x), with_gradients(layer, x))


def test_compiled_errors_are_those_of_eager_calls():
    given = inputs_of("lstm", dtype=torch.float)._replace(h_0=torch.zeros(2, 7))
    compiled = torch.compile(recurrent_sequence, fullgraph=True, backend="aot_eager")
    expected = refusal(RuntimeError, recurrent_sequence, "lstm", *given)
    assert expected in refusal(RuntimeError, compiled, "lstm", *given)
