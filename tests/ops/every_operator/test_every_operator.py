"""What holds for every operator, by kernels and by formulas: operator_cases.py has the rows."""

import itertools
import re
from collections.abc import Iterator

import pytest
import torch
from op_testing import (
    DEVICES,
    LAYOUTS,
    NoGradient,
    assert_threads_change_no_bit,
    bits,
    refusal,
    results_and_gradients,
    taken,
    with_layout,
)
from operator_cases import CASES, Case
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import jvp, vmap
from torch.library import opcheck

from lltm_jit import native
from lltm_jit._library import OPERATORS

ops = torch.ops.lltm_jit


def one_of_each(cases: list[Case]) -> pytest.MarkDecorator:
    """Of an operator's cases, such as the cells of a sequence, the first; the others are slow."""
    first = {case.operator: case for case in reversed(cases)}.values()
    slow = pytest.mark.slow
    marked = [case if case in first else pytest.param(case, marks=slow) for case in cases]
    return pytest.mark.parametrize("case", marked, ids=str)


def test_every_operator_is_in_the_table():
    checked = {name for case in CASES for name, _ in case.calls(*case.inputs("cpu"))}
    assert checked == {name for names in OPERATORS.values() for name in names}


def with_kernels(family: str) -> set[str]:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return {name for name in OPERATORS[family] if has_kernel(f"lltm_jit::{name}", "CPU")}


@pytest.mark.parametrize("family", OPERATORS)
def test_formulas_run_without_kernels(family):
    native.load(family)
    assert with_kernels(family)
    with taken("formulas", family):
        assert not with_kernels(family)


def test_undefined_gradients(case, path):
    inputs = case.inputs(path)
    found = sum(NoGradient.apply(result).sum() for result in case.results(*inputs))
    gradients = torch.autograd.grad(found, inputs, allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


@one_of_each(CASES)
@pytest.mark.parametrize(
    "path", [*DEVICES, pytest.param("formulas", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize(
    "checks",
    [
        ["test_schema", "test_autograd_registration", "test_faketensor"],
        pytest.param(["test_aot_dispatch_dynamic"], marks=pytest.mark.slow),  # takes most
    ],
    ids=["facts", "dispatch"],
)
def test_opcheck(case, checks, path):
    for name, args in case.calls(*case.inputs(path)):
        opcheck(getattr(ops, name).default, args, test_utils=checks)


def batches(tensors: list[Tensor]) -> Iterator[tuple[list, tuple, list[list[Tensor]]]]:
    """Arguments of which one is a batch, or all are, with the batches' dimensions and the rows."""
    stacked, every = [torch.stack([t, t / 2, -t]) for t in tensors], range(len(tensors))
    for batched in [*([i] for i in every), every]:
        args = [stacked[i] if i in batched else tensors[i] for i in every]
        in_dims = tuple(0 if i in batched else None for i in every)
        rows = [[t[k] if i in batched else t for i, t in enumerate(args)] for k in range(3)]
        yield args, in_dims, rows


@pytest.mark.usefixtures("rules_for_vmap")
def test_vmap(case, path):
    """Over each input, and over all; it runs once for the batch, and not once a row."""
    plain = case.inputs(path)
    for args, in_dims, rows in batches(plain):
        actual = vmap(case.results, in_dims)(*args)
        alone = [case.results(*row) for row in rows]
        expected = tuple(torch.stack(each) for each in zip(*alone, strict=True))
        torch.testing.assert_close(actual, expected)
        found = [
            torch.autograd.grad(sum(r.square().sum() for r in results), plain, retain_graph=True)
            for results in (actual, expected)
        ]
        torch.testing.assert_close(*found)


def test_vmap_over_other_dimensions_and_twice(case, device):
    inputs = case.inputs(device, requires_grad=False)
    args = [
        torch.stack([torch.stack([t, t / 2, -t]), t.cos().expand(3, *t.shape)], -1) for t in inputs
    ]
    over_last = vmap(case.results, in_dims=-1, out_dims=-1)
    found = vmap(over_last, out_dims=1)(*args)
    for n, m in itertools.product(range(3), range(2)):
        expected = case.results(*(t[n, ..., m] for t in args))
        actual = tuple(result[:, n, ..., m] for result in found)
        torch.testing.assert_close(actual, expected)


def test_any_layout(case, path):
    inputs = case.inputs(path, torch.float, requires_grad=False)
    for layout in LAYOUTS[1:]:
        given = [with_layout(tensor, layout).requires_grad_() for tensor in inputs]
        dense = [tensor.detach().clone().contiguous().requires_grad_() for tensor in given]
        found = [results_and_gradients(case.results, tensors) for tensors in (given, dense)]
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.half, torch.double], ids=str)
def test_meta_and_fake_tensors_are_as_real_ones(case, dtype, device):
    """Shapes, strides and dtypes of results and gradients; of transposed inputs, too."""
    # What is not public takes torch's operation for tensors without data.
    for layout in ("contiguous", "transposed") if case.public else ("contiguous",):
        plain = [with_layout(t.detach(), layout) for t in case.inputs(device, dtype)]

        def facts(tensors: list[Tensor]) -> list[tuple]:
            leaves = [tensor.requires_grad_() for tensor in tensors]
            results = case.results(*leaves)
            factors = [result.detach().cos() for result in results]
            found = [*results, *torch.autograd.grad(results, leaves, factors)]
            assert {tensor.device.type for tensor in found} == {leaves[0].device.type}
            return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in found]

        expected = facts(plain)
        assert facts([tensor.to("meta") for tensor in plain]) == expected
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert facts([mode.from_tensor(tensor) for tensor in plain]) == expected


def test_autocast(case, path):
    """It changes neither dtypes nor arithmetic of most, their references included."""
    inputs = case.inputs(path, torch.float, requires_grad=False)

    def found() -> list[tuple[Tensor, ...]]:
        stacked = [torch.stack([tensor, -tensor]) for tensor in inputs]
        tangents = tuple(tensor.cos() for tensor in inputs)
        forward = jvp(case.results, tuple(inputs), tangents)[1]
        return [case.results(*inputs), vmap(case.results)(*stacked), forward]

    expected, reference = found(), case.reference(*inputs)
    with torch.autocast(path, torch.bfloat16):
        actual = found()
        if case.under_autocast is None:
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
            half = case.results(*(tensor.half() for tensor in inputs))
            assert {result.dtype for result in half} == {torch.half}
            if case.sees is None:
                torch.testing.assert_close(case.reference(*inputs), reference, rtol=0, atol=0)
    if case.under_autocast is not None:
        assert tuple(result.dtype for result in actual[0]) == case.under_autocast
        if case.sees is None:  # where torch's operations come first, vmap comes before the cast
            rows = tuple(result[0] for result in actual[1])
            torch.testing.assert_close(rows, actual[0], rtol=2e-2, atol=2e-2)
        if case.public and case.family:  # a mix of dtypes is cast, too
            mixed = [inputs[0].bfloat16(), *inputs[1:]]
            with torch.autocast(path, torch.bfloat16):
                plain = case.results(*mixed)
                batched = vmap(case.results)(*(torch.stack([t, -t]) for t in mixed))
            rows = tuple(result[0] for result in batched)
            assert [r.dtype for r in rows] == [r.dtype for r in plain]
            torch.testing.assert_close(rows, plain, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
def test_same_input_same_bits(case, dtype, device, monkeypatch):
    """Also one element past an alignment, in deterministic mode, and with any number of threads."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which torch demands for products
    inputs = case.inputs(device, dtype, large=True)
    offset = [with_layout(t.detach(), "offset").requires_grad_() for t in inputs]
    if device == "cuda" and not case.exact_on_gpus:
        assert bits(case.results(*inputs)) == bits(case.results(*inputs))
        return
    expected = bits(results_and_gradients(case.results, inputs))
    assert bits(results_and_gradients(case.results, offset)) == expected
    torch.use_deterministic_algorithms(True)
    try:
        assert bits(results_and_gradients(case.results, inputs)) == expected
    finally:
        torch.use_deterministic_algorithms(False)
    if device == "cpu" and not case.library_sums:
        assert_threads_change_no_bit(lambda: results_and_gradients(case.results, inputs))


PUBLIC = pytest.mark.parametrize("case", [case for case in CASES if case.public], ids=str)


@PUBLIC
@pytest.mark.parametrize(("value", "got"), [(None, "None"), (0.5, "float"), ([1.0], "list")])
def test_what_is_no_tensor(case, value, got):
    for i, name in enumerate(case.arguments):
        given: list = case.inputs("cpu", torch.float)
        given[i], optional = value, name in case.optional
        if (value is None and optional) or (got, name) == ("list", "weights"):  # a state pair
            continue
        wanted = "a tensor or None" if optional else "a tensor"
        message = f"{case.operator}(): expected {name} to be {wanted}, but got {got}"
        assert refusal(TypeError, case.function, *given) == message


WRONG = {
    "dtype": lambda t: t.long(),
    "layout": lambda t: t.to_sparse(),
    "rows": lambda t: t.reshape(-1, t.shape[-1]).to_sparse_csr(),
    "blocks": lambda t: t.to_mkldnn(),
    "quantised": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "other dtype": lambda t: t.double(),
    "device": lambda t: t.to("meta"),
    "rank": lambda t: t[None, None, None],
    "size": lambda t: torch.cat([t, t[:1]]),
}
# What no argument may be.
EACH_REFUSES = ("dtype", "layout", "rows", "blocks", "quantised")
# Operators that a function calls, and that check its arguments themselves.
INSIDE = {"lltm_cell": [ops.lltm_cell_aten, ops.lltm_cell_check]}


@PUBLIC
@pytest.mark.parametrize("way", WRONG)
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantize")
def test_bad_input(case, way):
    """Errors name the function, the argument or one that it does not fit, and both values."""
    if case.family is None:
        pytest.skip("torch refuses it, in its own words")
    functions = [case.function, *INSIDE.get(case.operator, [])]

    def refusals(device: str) -> list[str]:
        found = []
        for function, i in itertools.product(functions, range(len(case.arguments))):
            given = case.inputs(device, torch.float, requires_grad=False)
            given[i] = WRONG[way](given[i])
            try:
                function(*given)
            except RuntimeError as error:
                found.append(str(error))
        return found

    errors = refusals("cpu")
    names = "|".join(case.arguments)
    said = re.compile(rf"{case.operator}\(\): expected .*\b({names})\b.* but got ")
    assert [error for error in errors if not said.match(error)] == []
    if way in EACH_REFUSES:
        assert len(errors) == len(functions) * len(case.arguments)
    elif way != "device":
        assert refusals("meta") == errors
    # What is unlike other tensors may be right where there are none.
    assert errors or len(case.arguments) == 1
