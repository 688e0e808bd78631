"""What tools of torch see of every operator: subclasses, modes, tracers, hooks, graphs, streams."""

import contextlib
import io

import pytest
import torch
from elementwise_cases import normal
from op_testing import (
    ANY_SIZES,
    bits,
    captured_in_graph,
    needs_gpu,
    on_side_stream,
    results_and_gradients,
    taken,
)
from operator_cases import CASES, Case
from subclasses import Logged, Recorder, Wrapped
from test_every_operator import one_of_each
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

import lltm_jit

HERE = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
# Callers of the others have handled these tools before.
PUBLIC = [case for case in CASES if case.public]
EVERY_PUBLIC = pytest.mark.parametrize("case", PUBLIC, ids=str)
# Those of a family, which are operators of ours, and no compositions of torch's.
OF_FAMILIES = [case for case in PUBLIC if case.family]
OURS = pytest.mark.parametrize("case", OF_FAMILIES, ids=str)
ONE_OF_OURS = one_of_each(OF_FAMILIES)


def seen_of(case: Case) -> str:
    return case.sees or case.operator


def of_ours(calls: list[str]) -> list[str]:
    return [call for call in calls if "lltm_jit" in call]


@EVERY_PUBLIC
@pytest.mark.parametrize("subclass", [Logged, Wrapped])
def test_subclasses(case, subclass, device):
    """Each sees the operators whole, in any argument, and has what plain tensors have."""
    inputs = case.inputs(device)
    expected = results_and_gradients(case.results, inputs)
    for position, plain in enumerate(inputs):
        given, leaf = list(inputs), plain.detach()
        leaf = leaf.as_subclass(Logged) if subclass is Logged else Wrapped(leaf)
        given[position] = leaf.requires_grad_()
        subclass.calls.clear()
        found = results_and_gradients(case.results, given)
        assert {type(tensor) for tensor in found[: len(found) - len(inputs)]} == {subclass}
        if subclass is Logged:
            assert any(seen_of(case) in call for call in subclass.calls)
        elif case.family:
            assert 1 <= len(of_ours(subclass.calls)) <= 2  # a forward and a backward pass
        found = tree_map_only(Wrapped, lambda tensor: tensor.inner, found)
        found = [tensor.as_subclass(Tensor) for tensor in found]
        torch.testing.assert_close(found, expected, **case.near(device))


def test_modes(case, device):
    inputs = case.inputs(device)
    with Recorder() as recorder:
        found = case.results(*inputs)
    assert [seen_of(case) in call for call in recorder.calls].count(True) == 1
    torch.testing.assert_close(found, case.results(*inputs))


@EVERY_PUBLIC
def test_lazy_negation_and_zeros(case):
    """Views whose sign is a flag, and tensors of zeros without memory, are read as they are."""
    inputs = case.inputs("cpu", requires_grad=False)
    for position, plain in enumerate(inputs):
        negative = torch.complex(plain, plain).conj().imag
        assert negative.is_neg()
        zeros = torch._efficientzerotensor(plain.shape, dtype=plain.dtype)
        for pair in ((negative, -plain), (zeros, 0 * plain)):
            found = [
                case.results(*inputs[:position], given, *inputs[position + 1 :]) for given in pair
            ]
            torch.testing.assert_close(*found, equal_nan=True)


@OURS
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:.*nested")
def test_nested_tensors_are_refused(case, layout, device):
    """By the operator, or in torch's words, which name one."""
    rows = [torch.zeros(2, 5, device=device), torch.zeros(3, 5, device=device)]
    said = rf"lltm_jit(::|[.])|{case.operator}\(\): expected |irregular|Nested"
    for position in range(len(case.arguments)):
        inputs = case.inputs(device, torch.float, requires_grad=False)
        inputs[position] = torch.nested.nested_tensor(rows, layout=layout)
        with pytest.raises(RuntimeError, match=said):
            case.results(*inputs)


@ONE_OF_OURS
@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
@ANY_SIZES
def test_make_fx(case, tracing_mode, device):
    """A graph has the operators whole; one of symbolic sizes is one of all sizes."""

    def run(*tensors: Tensor) -> list[Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        return results_and_gradients(case.results, leaves)

    trace = make_fx(run, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)
    graph = trace(*case.inputs(device))
    calls = [str(node.target) for node in graph.graph.nodes]
    assert 1 <= len(of_ours(calls)) <= 2
    others = case.inputs(device, large=tracing_mode == "symbolic")
    torch.testing.assert_close(graph(*others), run(*others))


LAYERS = {device: lltm_jit.LLTM(3, 4, dtype=torch.double, device=device) for device in HERE}


def run_layer(x: Tensor) -> Tensor:
    return LAYERS[x.device.type](x)[0]


def draw_sequences(large: bool) -> list[Tensor]:
    return normal((6, 40, 3) if large else (3, 2, 3))


LAYER = Case("layer", ["input"], run_layer, run_layer, draw_sequences, family="rnn")
SLOW = pytest.mark.slow
# Formulas run inside of operators, which inductor leaves whole.
COMPILED = [
    ("aot_eager", "cpu"),
    pytest.param("aot_eager", "cuda", marks=needs_gpu),
    pytest.param("aot_eager", "formulas", marks=SLOW),
    pytest.param("inductor", "cpu", marks=SLOW),
    pytest.param("inductor", "cuda", marks=[SLOW, needs_gpu]),
]


@one_of_each([*CASES, LAYER])
@pytest.mark.parametrize(("backend", "path"), COMPILED)
@ANY_SIZES
def test_compiled(case, backend, path):
    """Between operations that torch compiles itself; for known sizes, and once for all sizes."""

    def around(*inputs: Tensor) -> list[Tensor]:
        return [r.cos() for r in case.results(*(tensor.sin() for tensor in inputs))]

    with taken(path, case.family) as device:
        # What consists of torch's operations is torch's to compile.
        for dynamic in (False, True) if case.family else (False,):
            torch._dynamo.reset()
            counter, counts = CompileCounterWithBackend(backend), set()
            compiled = torch.compile(around, fullgraph=True, dynamic=dynamic, backend=counter)
            for large in (False, True) if dynamic else (False,):
                inputs = case.inputs(device, large=large)
                found = [results_and_gradients(run, inputs) for run in (compiled, around)]
                torch.testing.assert_close(*found)
                counts.add(counter.frame_count)
            # Torch may call the backend twice for a graph, but no oftener for a second size.
            assert len(counts) == 1
            assert min(counts) >= 1


class Called(nn.Module):
    """An operator as a module."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.results = case.results

    def forward(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        return self.results(*tensors)


@ONE_OF_OURS
def test_exported_program_is_saved(case, device):
    program = torch.export.export(Called(case), (case.inputs(device, requires_grad=False),))
    with io.BytesIO() as file:
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file)
    others = case.inputs(device, requires_grad=False)
    torch.testing.assert_close(loaded.module()(others), case.results(*others))
    calls = [str(node.target) for node in loaded.run_decompositions().graph.nodes]
    assert len(of_ours(calls)) == 1


@EVERY_PUBLIC
def test_saved_tensors_hooks(case, device):
    """What is saved can be packed, or wait on the CPU; the gradients have nothing beside it."""
    inputs, store = case.inputs(device), []
    hooks = torch.autograd.graph.saved_tensors_hooks

    def gradients(context: contextlib.AbstractContextManager[None]) -> list[Tensor]:
        with context:
            results = case.results(*inputs)
        return list(torch.autograd.grad(results, inputs, [r.detach().cos() for r in results]))

    def pack(tensor: Tensor) -> int:
        store.append(tensor.detach().clone())
        return len(store) - 1

    expected = gradients(contextlib.nullcontext())
    for context in (torch.autograd.graph.save_on_cpu(), hooks(pack, store.__getitem__)):
        torch.testing.assert_close(gradients(context), expected, **case.near(device))
    zeros = gradients(hooks(lambda tensor: tensor, torch.zeros_like))
    assert not store or bits(zeros) != bits(expected)


@OURS
def test_backward_inside_autocast_stays_in_the_dtype_of_the_forward(case, device):
    inputs = case.inputs(device, torch.float)
    loss = sum(result.sin().sum() for result in case.results(*inputs))
    expected = torch.autograd.grad(loss, inputs, retain_graph=True)
    with torch.autocast(device, torch.bfloat16):
        actual = torch.autograd.grad(loss, inputs, retain_graph=True)
        to_differentiate = torch.autograd.grad(loss, inputs, create_graph=True)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(to_differentiate, expected)


@OURS
def test_profiler_shows_readable_names(case, device):
    inputs = case.inputs(device)
    with torch.profiler.profile() as profile:
        results_and_gradients(case.results, inputs)
    names = {event.key for event in profile.key_averages()}
    assert any(f"lltm_jit::{case.operator}" in name for name in names)
    node = case.results(*inputs)[0].grad_fn.name()
    assert node in names
    words = case.operator.removeprefix("fused_").split("_")
    if words[0] != "d":  # a derivative that is an operator consists of torch's operations
        assert node == f"{''.join(map(str.capitalize, words))}Backward"


@needs_gpu
def test_cuda_graph_and_side_stream(case):
    inputs = case.inputs("cuda", torch.float, large=True)
    near = case.near("cuda")

    def step() -> tuple[Tensor, ...]:
        return tuple(results_and_gradients(case.results, inputs))

    torch.testing.assert_close(captured_in_graph(step), step(), **near)
    plain = [tensor.detach() for tensor in inputs]
    for i in range(len(plain)):  # each may come late

        def late(*tensors: Tensor, i: int = i) -> tuple[Tensor, ...]:
            return case.results(*tensors[1 : i + 1], tensors[0], *tensors[i + 1 :])

        moved = [plain[i], *plain[:i], *plain[i + 1 :]]
        torch.testing.assert_close(on_side_stream(late, moved), case.results(*plain), **near)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current_one(case):
    there = case.inputs("cuda:1", torch.float)
    actual = results_and_gradients(case.results, there)
    assert torch.cuda.current_device() == 0
    here = [tensor.detach().to("cuda:0").requires_grad_() for tensor in there]
    torch.testing.assert_close(
        actual, results_and_gradients(case.results, here), check_device=False
    )
