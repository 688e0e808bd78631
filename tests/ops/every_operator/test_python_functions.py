"""The modules' own functions, which core/python/functions.h makes: arguments and results."""

import sys

import pytest
import torch
from subclasses import Logged, Recorder

import lltm_jit.ops.stylegan  # noqa: F401  # its schemas
from lltm_jit import native

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X,), r"my_op\(\): expected 2 positional arguments, but got 1"),
        ((X, X, X), r"my_op\(\): expected 2 positional arguments, but got 3"),
        ((X, None), r"my_op\(\): expected argument 2 to be a tensor, but got NoneType"),
        (("x", 1), r"my_op\(\): expected argument 1 to be a tensor, but got str"),
        ((torch.Tensor, X), r"my_op\(\): expected argument 1 to be a tensor, but got"),
    ],
)
def test_what_is_no_tensor_is_refused(args, message):
    with pytest.raises(TypeError, match=message):
        native.basic.my_op(*args)


def test_arguments_have_no_names():
    with pytest.raises(TypeError, match="keyword"):
        native.basic.my_op(X, y=X)
    with pytest.raises(TypeError, match="no_such"):
        native.basic.register_ops(no_such=True)


def test_errors_of_operators_keep_their_type():
    with pytest.raises(RuntimeError, match=r"my_op\(\): expected y to have"):
        native.basic.my_op(X, X[:1])


def test_subclasses_are_tensors():
    parameter = torch.nn.Parameter(X)
    result = native.basic.my_op(parameter, X)
    assert type(result) is torch.Tensor
    assert result.requires_grad
    assert torch.equal(result, 2 * X)


@pytest.mark.parametrize(
    "tensor",
    [X.as_subclass(Logged), X.to("meta"), [1.0], None],
    ids=["Logged", "meta", "list", "None"],
)
def test_functions_of_plain_tensors_leave_others_to_their_caller(tensor):
    stylegan = native.load("stylegan").module
    rest = 1, 3, 0.2, 1.0, None
    assert stylegan.bias_act(tensor, None, *rest) is NotImplemented
    if tensor is not None:  # which an optional argument may be
        assert stylegan.bias_act(X, tensor, *rest) is NotImplemented
    with Recorder():
        assert stylegan.bias_act(X, None, *rest) is NotImplemented
    parameter = torch.nn.Parameter(torch.ones(3))
    assert torch.equal(stylegan.bias_act(X, parameter, *rest), X + 1)


def test_a_number_is_a_list_of_one():
    resample = native.load("stylegan").module.resample2d
    x = X[None, None]
    expected = resample(x, None, [2, 2], (1, 1), [1, 1, 1, 1], False, 1, False)
    for up, padding in [(2, 1), ([2], [1]), ((2, 2), (1, 1)), (torch.tensor(2), [True, 1])]:
        assert torch.equal(resample(x, None, up, 1, padding, False, 1, False), expected)
    with pytest.raises(TypeError, match=r"resample2d\(\): expected argument 3 to be a sequence"):
        resample(x, None, 2.0, 1, 0, False, 1, False)
    with pytest.raises(RuntimeError, match="padding to be one number, two or four"):
        resample(x, None, 2, 1, [1, 2, 3], False, 1, False)


def test_results_by_their_type():
    """A tuple, a list and nothing; a bias may be None."""
    state, weights = torch.zeros(2, 4), torch.zeros(12, 7)
    for bias in (None, torch.zeros(12)):
        cell = X, weights, bias, state, state
        assert [type(found) for found in native.rnn.lltm_cell(*cell)] == [torch.Tensor] * 2
        assert isinstance(native.rnn.lltm_cell(*cell), tuple)
        assert isinstance(native.rnn.lltm_forward(*cell), list)
        assert native.rnn.lltm_cell_check(*cell) is None


def test_references_are_given_back():
    x = torch.ones(3)
    before = sys.getrefcount(x), x._use_count()
    for _ in range(100):
        native.basic.my_op(x, x)
        with pytest.raises(TypeError):
            native.basic.my_op(x, None)
    assert (sys.getrefcount(x), x._use_count()) == before
