"""What the LLTM cell refuses, and in which words."""

from functools import partial

import numpy as np
import pytest
import torch
from lltm_testing import IMPLEMENTATIONS, NAMES, cell_inputs
from op_testing import needs_gpu, refusal

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward

ops = torch.ops.lltm_jit
zeros = torch.zeros
FLOATS = "dtype Half, BFloat16, Float or Double"
STATE = "shape [batch_size, hidden_size] = [3, 7]"
WEIGHTS = "shape [3*hidden_size, hidden_size+input_size] = [21, 12]"
# An argument, what it is instead, what it was expected to have, and what it has.
BAD_INPUTS = [
    ("input", zeros(5), "2 dimensions [batch_size, input_size]", "shape [5]"),
    ("old_h", zeros(3, 7, 1), "2 dimensions [batch_size, hidden_size]", "shape [3, 7, 1]"),
    ("old_h", zeros(2, 7), STATE, "[2, 7]"),
    ("old_cell", zeros(3, 8), STATE, "[3, 8]"),
    ("weights", zeros(21, 11), WEIGHTS, "[21, 11]"),
    ("bias", zeros(20), "shape [3*hidden_size] = [21]", "[20]"),
    ("bias", zeros(3, 21), "shape [1, 3*hidden_size] = [1, 21]", "[3, 21]"),
    ("input", zeros(3, 5).long(), FLOATS, "Long"),
    ("weights", zeros(21, 12).double(), "the dtype of input (Float)", "Double"),
    ("old_cell", zeros(3, 7).double(), "the dtype of input (Float)", "Double"),
    ("weights", zeros(21, 12, device="meta"), None, "meta"),
]
OF_TUTORIAL = [
    ("X", zeros(12), "2 dimensions [batch_size, hidden_size+input_size]", "shape [12]"),
    ("X", zeros(3, 12).int(), FLOATS, "Int"),
    ("grad_h", zeros(1, 7), STATE, "[1, 7]"),
    ("grad_cell", zeros(3, 7).double(), "the dtype of new_cell (Float)", "Double"),
    ("new_cell", zeros(1, 7), STATE, "[1, 7]"),
    ("output_gate", zeros(3, 6), STATE, "[3, 6]"),
    ("gate_weights", zeros(3, 7), "shape [batch_size, 3*hidden_size] = [3, 21]", "[3, 7]"),
    ("weights", zeros(21, 2), WEIGHTS, "[21, 2]"),
    ("weights", zeros(21, 12, device="meta"), None, "meta"),
]
OF_BACKWARD = [
    ("grad_h", zeros(1, 1), STATE, "[1, 1]"),
    ("gates", zeros(3, 7), "shape [batch_size, 3*hidden_size] = [3, 21]", "[3, 7]"),
]


def named_inputs() -> dict[str, torch.Tensor]:
    return dict(zip(NAMES, cell_inputs(dtype=torch.float), strict=True))


def assert_refused(function, called, right, name, wrong, expected, got, first="input") -> None:
    """Without an expected value, it is the device of the first argument."""
    wanted = f"have {expected}" if expected else f"be on the device of {first} (cpu)"
    said = refusal(RuntimeError, function, **{**right, name: wrong})
    assert said == f"{called}(): expected {name} to {wanted}, but got {got}"


@pytest.mark.parametrize("impl", [*IMPLEMENTATIONS, "the tutorial's"])
@pytest.mark.parametrize("wrong", BAD_INPUTS, ids=lambda row: f"{row[0]}: {row[3]}")
def test_bad_input(wrong, impl):
    if impl == "the tutorial's":
        assert_refused(lltm_forward, "lltm_forward", named_inputs(), *wrong)
    else:
        assert_refused(partial(lltm_cell, impl=impl), "lltm_cell", named_inputs(), *wrong)


@pytest.mark.parametrize("wrong", OF_TUTORIAL, ids=lambda row: f"{row[0]}: {row[3]}")
def test_bad_input_of_the_tutorials_backward(wrong):
    inputs = named_inputs()
    gates = ["input_gate", "output_gate", "candidate_cell"]
    names = ["grad_h", "new_cell", *gates, "X", "gate_weights"]
    right = dict(zip(names, lltm_forward(**inputs), strict=True))
    right |= {"grad_cell": right["new_cell"], "weights": inputs["weights"]}
    assert_refused(lltm_backward, "lltm_backward", right, *wrong, first="X")


def test_bad_input_of_backward():
    inputs = named_inputs()
    new_h, new_cell, gates = ops.lltm_cell_forward(**inputs)
    right = inputs | {"grad_h": new_h, "grad_cell": new_cell, "new_cell": new_cell, "gates": gates}
    right["output_mask"] = [True] * 5
    for wrong in OF_BACKWARD:
        assert_refused(ops.lltm_cell_backward, "lltm_cell_backward", right, *wrong)
    assert refusal(RuntimeError, ops.lltm_cell_backward, **{**right, "bias": None}) == (
        "lltm_cell_backward(): output_mask asks for the gradient of bias, but bias is None"
    )


@pytest.mark.parametrize("function", [lltm_cell, lltm_forward])
def test_states_of_the_functions(function):
    input, weights, bias, old_h, old_cell = cell_inputs()
    called = function.__name__
    said = refusal(TypeError, function, input, (old_h, old_cell), weights, bias, old_cell)
    assert said.startswith(f"{called}(): got both old_cell and a state pair")
    said = refusal(TypeError, function, input, (old_h,) * 3, weights, None)
    assert said == f"{called}(): expected a state pair, but got a tuple of 3"


def test_bad_input_of_the_module():
    cell = lltm_jit.LLTMCell(5, 7)
    assert refusal(RuntimeError, cell, torch.tensor(1.0)) == (
        "lltm_cell(): expected input to have 2 dimensions [batch_size, input_size], "
        "but got shape []"
    )
    h = zeros(3, 7)
    for state, got in ((h, "Tensor"), ((h,) * 3, "a tuple of 3"), ((h,), "a tuple of 1")):
        said = refusal(TypeError, cell, zeros(3, 5), state)
        assert said == f"LLTMCell(): expected a state pair, but got {got}"


@needs_gpu
def test_bad_device_mix_on_a_gpu():
    inputs = list(cell_inputs(dtype=torch.float))
    inputs[1] = inputs[1].cuda()
    assert refusal(RuntimeError, lltm_cell, *inputs) == (
        "lltm_cell(): expected weights to be on the device of input (cpu), but got cuda:0"
    )


def test_unknown_implementation():
    assert refusal(ValueError, lltm_cell, *cell_inputs(), impl="fast") == (
        "lltm_cell(): expected impl to be one of ('auto', 'reference', 'aten', 'fused'), "
        "but got 'fast'"
    )


NOT_TENSORS = {"None": None, "int": 3, "list": [[1.0]], "ndarray": np.zeros((3, 7))}


@pytest.mark.parametrize("got", NOT_TENSORS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_tensor(name, got):
    """By any implementation; test_every_operator.py has the usual one."""
    if (name, got) in (("bias", "None"), ("weights", "list")):  # right, and a state pair
        return
    wanted = "a tensor or None" if name == "bias" else "a tensor"
    given = named_inputs() | {name: NOT_TENSORS[got]}
    for function in (partial(lltm_cell, impl="reference"), lltm_forward):
        called = "lltm_forward" if function is lltm_forward else "lltm_cell"
        expected = f"{called}(): expected {name} to be {wanted}, but got {got}"
        assert refusal(TypeError, function, **given) == expected
    if got == "None":  # reaches the operator under torch.compile
        said = refusal(RuntimeError, ops.lltm_cell, **given)
        assert said == f"lltm_cell(): expected {name} to be a tensor, but got None"


def test_what_is_no_tensor_in_the_tutorials_backward():
    gradient = zeros(3, 7)
    said = refusal(TypeError, lltm_backward, gradient, None, *[gradient] * 7)
    assert said == "lltm_backward(): expected grad_cell to be a tensor, but got None"


def test_a_type_error_that_is_about_something_else_is_kept():
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'old_h'"):
        lltm_cell(*cell_inputs()[:3])
