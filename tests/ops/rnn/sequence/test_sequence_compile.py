"""Whole sequences and their layers under torch.compile, torch.export and make_fx.

test_lltm_compile.py has a layer under AOTInductor.
"""

import copy

import pytest
import torch
from layer_testing import LAYERS, THEIRS, TRACED, assert_alike, tensors, with_gradients
from op_testing import for_each, needs_gpu, refusal, taken
from sequence_testing import inputs_of, saved_and_loaded
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import lltm_jit
from lltm_jit.functional import recurrent_sequence

kind = for_each("kind", TRACED)


def test_compile_once_for_every_batch_and_length(kind, device):
    layer = LAYERS[kind](5, 7, bidirectional=True, device=device)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter, dynamic=True)
    for steps, batch_size in ((4, 3), (9, 2), (3, 40)):
        x = torch.randn(steps, batch_size, 5, device=device)
        lengths = torch.randint(1, steps + 1, (batch_size,), device=device)
        reset = torch.rand(steps, batch_size, device=device) < 0.3
        assert_alike((compiled, layer), x, lengths=lengths, reset=reset)
    assert counter.frame_count == 1


def test_compile_once_by_formulas():
    with taken("formulas", "rnn") as device:
        test_compile_once_for_every_batch_and_length("GRU", device)


def test_lengths_in_a_list_may_change(kind, device):
    """The second list makes the program one for all."""
    layer, counter = LAYERS[kind](5, 7, device=device), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(20, 3, 5, device=device)
    for lengths in (*([20 - i, 10 + i % 7, 5 + i % 3] for i in range(5)), [0, 1, 2]):
        assert_alike((compiled, layer), x, lengths=lengths)
    assert counter.frame_count <= 3  # 0 and 1 may be constants


def test_sizes_that_change_are_noticed(device):
    """Without being told: the second size makes the program one for all."""
    layer = lltm_jit.LSTM(5, 7, batch_first=True, device=device)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)

    def check(batch_size, steps):
        x = torch.randn(batch_size, steps, 5, device=device)
        state = tuple(torch.randn(2, 1, batch_size, 7, device=device))
        assert_alike((compiled, layer), x, state)

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
    layer, x = lltm_jit.GRU(5, 7, device=device), torch.randn(4, 3, 5, device=device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        assert compiled(x)[0].dtype == (torch.float if device == "cpu" else torch.bfloat16)
        assert_alike((compiled, layer), x)


def test_compiled_checkpoints(device):
    layer = lltm_jit.LLTM(5, 7, checkpoint=3, device=device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_alike((compiled, layer), torch.randn(8, 3, 5, device=device))


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


def test_exported_program_takes_any_size_and_is_saved(kind, device):
    layer = LAYERS[kind](5, 7, bidirectional=True, device=device)

    def args(steps, batch_size):
        lengths = torch.randint(1, steps + 1, (batch_size,), device=device)
        return (torch.randn(steps, batch_size, 5, device=device),), {"lengths": lengths}

    positional, named = args(4, 3)
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    shapes = {"input": {0: steps, 1: batch}, "lengths": {0: batch}}
    program = torch.export.export(layer, positional, named, dynamic_shapes=shapes)
    loaded = saved_and_loaded(torch.export, program)
    for sizes in ((2, 9), (17, 2)):
        positional, named = args(*sizes)
        actual = loaded.module()(*positional, **named)
        torch.testing.assert_close(tensors(actual), tensors(layer(*positional, **named)))
    calls = [str(n.target) for n in loaded.graph.nodes if "recurrent" in str(n.target)]
    assert calls == ["lltm_jit.recurrent_sequence.default"] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("module", "sizes", "more", "operator"),
    [
        (lltm_jit.LLTMCell, (3, 5), (6, 5), "lltm_cell"),
        (lltm_jit.LSTM, (4, 3, 5), (9, 6, 5), "recurrent_sequence"),
    ],
)
def test_jit_trace(module, sizes, more, operator, device):
    layer = module(5, 7, device=device)
    traced = torch.jit.trace(layer, (torch.randn(sizes, device=device),))
    assert f"lltm_jit::{operator}(" in str(traced.inlined_graph)
    x, both = torch.randn(more, device=device), (saved_and_loaded(torch.jit, traced), layer)
    exact = {"rtol": 0, "atol": 0} if module is lltm_jit.LLTMCell else {}
    torch.testing.assert_close(*(with_gradients(each, x) for each in both), **exact)


def test_compiled_errors_are_those_of_eager_calls():
    given = inputs_of("lstm", dtype=torch.float)._replace(h_0=torch.zeros(2, 7))
    compiled = torch.compile(recurrent_sequence, fullgraph=True, backend="aot_eager")
    expected = refusal(RuntimeError, recurrent_sequence, "lstm", *given)
    assert expected in refusal(RuntimeError, compiled, "lstm", *given)


def exported(layer: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    """For any batch size."""
    shapes = {"input": {1: torch.export.Dim("batch")}}
    return torch.export.export(layer, (x,), dynamic_shapes=shapes)


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    table = {**torch.export.default_decompositions(), **lltm_jit.decompositions()}
    return program.run_decompositions(table)


def test_a_decomposed_program_has_operations_of_torch_alone(kind):
    layer = LAYERS[kind](3, 4, bidirectional=True, dtype=torch.double)
    program = exported(layer, torch.randn(3, 2, 3, dtype=torch.double))
    assert "lltm_jit" in str(program.graph)
    plain = decomposed(program)
    assert "lltm_jit" not in str(plain.graph)
    more = torch.randn(3, 7, 3, dtype=torch.double)
    torch.testing.assert_close(tensors(plain.module()(more)), tensors(layer(more)))


@pytest.mark.parametrize("kind", THEIRS)
def test_a_reverted_layer_exports_as_one_operation(kind):
    """Of which torch.onnx.export makes ONNX's own."""
    layer = LAYERS[kind](3, 4)
    program = torch.export.export(lltm_jit.revert(copy.deepcopy(layer)), (torch.randn(5, 2, 3),))
    operations = {str(node.target).rpartition("aten.")[2] for node in program.graph.nodes}
    assert f"{layer.mode.lower()}.input" in operations


@pytest.mark.slow  # it needs onnxscript, which torch.onnx.export imports
@pytest.mark.parametrize(
    ("kind", "way", "proj_size"),
    [
        ("GRU", "decomposed", 0),
        ("LSTM", "decomposed", 2),  # ONNX's own operation has no projections
        ("LSTM", "reverted", 0),
    ],
)
def test_onnx_computes_the_same(kind, way, proj_size, tmp_path):
    from onnx.reference import ReferenceEvaluator

    layer = LAYERS[kind](3, 4, proj_size=proj_size)
    x, more = torch.randn(5, 2, 3), torch.randn(5, 7, 3)
    if way == "decomposed":
        program = decomposed(exported(layer, x))
    else:
        program = exported(lltm_jit.revert(copy.deepcopy(layer)), x)
    torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "layer.onnx")
    found = ReferenceEvaluator(str(tmp_path / "layer.onnx")).run(None, {"input": more.numpy()})
    torch.testing.assert_close([*map(torch.from_numpy, found)], tensors(layer(more)))


def test_other_operators_decompose_as_well():
    model = nn.Sequential(lltm_jit.Sigmoid(), lltm_jit.LLTMCell(3, 4))
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,)).run_decompositions(lltm_jit.decompositions())
    assert "lltm_jit" not in str(program.graph)
    torch.testing.assert_close(program.module()(x), model(x))
