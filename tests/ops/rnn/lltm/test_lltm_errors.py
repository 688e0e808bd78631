"""What the LLTM cell refuses, and in which words."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from lltm_testing import IMPLEMENTATIONS, NAMES, cell_inputs
from op_testing import needs_gpu, refusal

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward

ops = torch.ops.lltm_jit


SHAPED = "lltm_cell(): expected {} to have shape {} = {}, but got {}"


BAD_INPUTS = {
    "input rank": (
        {"input": torch.zeros(5)},
        "lltm_cell(): expected input to have 2 dimensions [batch_size, input_size], "
        "but got shape [5]",
    ),
    "old_h rank": (
        {"old_h": torch.zeros(3, 7, 1)},
        "lltm_cell(): expected old_h to have 2 dimensions [batch_size, hidden_size], "
        "but got shape [3, 7, 1]",
    ),
    "old_h batch": (
        {"old_h": torch.zeros(2, 7)},
        SHAPED.format("old_h", "[batch_size, hidden_size]", "[3, 7]", "[2, 7]"),
    ),
    "old_cell size": (
        {"old_cell": torch.zeros(3, 8)},
        SHAPED.format("old_cell", "[batch_size, hidden_size]", "[3, 7]", "[3, 8]"),
    ),
    "weights size": (
        {"weights": torch.zeros(21, 11)},
        SHAPED.format("weights", "[3*hidden_size, hidden_size+input_size]", "[21, 12]", "[21, 11]"),
    ),
    "bias size": (
        {"bias": torch.zeros(20)},
        SHAPED.format("bias", "[3*hidden_size]", "[21]", "[20]"),
    ),
    "bias rows": (
        {"bias": torch.zeros(3, 21)},
        SHAPED.format("bias", "[1, 3*hidden_size]", "[1, 21]", "[3, 21]"),
    ),
    "integer dtype": (
        {"input": torch.zeros(3, 5, dtype=torch.long)},
        "lltm_cell(): expected input to have dtype Half, BFloat16, Float or Double, but got Long",
    ),
    "dtype mix": (
        {"weights": torch.zeros(21, 12, dtype=torch.double)},
        "lltm_cell(): expected weights to have the dtype of input (Float), but got Double",
    ),
    "cell dtype": (
        {"old_cell": torch.zeros(3, 7, dtype=torch.double)},
        "lltm_cell(): expected old_cell to have the dtype of input (Float), but got Double",
    ),
    "device mix": (
        {"weights": torch.zeros(21, 12, device="meta")},
        "lltm_cell(): expected weights to be on the device of input (cpu), but got meta",
    ),
}


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input(case, impl):
    changes, message = BAD_INPUTS[case]
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float), strict=True))
    assert refusal(RuntimeError, lltm_cell, **{**inputs, **changes}, impl=impl) == message


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_of_the_tutorials_forward(case):
    changes, message = BAD_INPUTS[case]
    inputs = dict(zip(NAMES, cell_inputs(dtype=torch.float), strict=True))
    message = message.replace("lltm_cell", "lltm_forward")
    assert refusal(RuntimeError, lltm_forward, **{**inputs, **changes}) == message


STATE = "[batch_size, hidden_size] = [3, 7]"
BAD_TUTORIAL_BACKWARD = {
    "X rank": (
        {"X": torch.zeros(12)},
        "X to have 2 dimensions [batch_size, hidden_size+input_size], but got shape [12]",
    ),
    "X dtype": (
        {"X": torch.zeros(3, 12, dtype=torch.int)},
        "X to have dtype Half, BFloat16, Float or Double, but got Int",
    ),
    "grad_h": ({"grad_h": torch.zeros(1, 7)}, f"grad_h to have shape {STATE}, but got [1, 7]"),
    "grad_cell": (
        {"grad_cell": torch.zeros(3, 7, dtype=torch.double)},
        "grad_cell to have the dtype of new_cell (Float), but got Double",
    ),
    "new_cell batch": (
        {"new_cell": torch.zeros(1, 7)},
        f"new_cell to have shape {STATE}, but got [1, 7]",
    ),
    "gate": (
        {"output_gate": torch.zeros(3, 6)},
        f"output_gate to have shape {STATE}, but got [3, 6]",
    ),
    "gate_weights": (
        {"gate_weights": torch.zeros(3, 7)},
        "gate_weights to have shape [batch_size, 3*hidden_size] = [3, 21], but got [3, 7]",
    ),
    "weights": (
        {"weights": torch.zeros(21, 2)},
        "weights to have shape [3*hidden_size, hidden_size+input_size] = [21, 12], but got [21, 2]",
    ),
    "device": (
        {"weights": torch.zeros(21, 12, device="meta")},
        "weights to be on the device of X (cpu), but got meta",
    ),
}


@pytest.mark.parametrize("case", BAD_TUTORIAL_BACKWARD)
def test_bad_input_of_the_tutorials_backward(case):
    changes, message = BAD_TUTORIAL_BACKWARD[case]
    inputs = cell_inputs(dtype=torch.float)
    gates = ["input_gate", "output_gate", "candidate_cell"]
    names = ["grad_h", "new_cell", *gates, "X", "gate_weights"]
    args = dict(zip(names, lltm_forward(*inputs), strict=True))
    args |= {"grad_cell": args["new_cell"], "weights": inputs[1]}
    said = refusal(RuntimeError, lltm_backward, **{**args, **changes})
    assert said == f"lltm_backward(): expected {message}"


@pytest.mark.parametrize("function", [lltm_cell, lltm_forward])
def test_state_given_twice(function):
    input, weights, bias, old_h, old_cell = cell_inputs()
    message = rf"^{function.__name__}\(\): got both old_cell and a state pair"
    with pytest.raises(TypeError, match=message):
        function(input, (old_h, old_cell), weights, bias, old_cell)


def test_bad_input_of_the_module():
    assert refusal(RuntimeError, lltm_jit.LLTMCell(5, 7), torch.tensor(1.0)) == (
        "lltm_cell(): expected input to have 2 dimensions [batch_size, input_size], "
        "but got shape []"
    )


@needs_gpu
def test_bad_device_mix_on_a_gpu():
    inputs = list(cell_inputs(dtype=torch.float))
    inputs[1] = inputs[1].cuda()
    assert refusal(RuntimeError, lltm_cell, *inputs) == (
        "lltm_cell(): expected weights to be on the device of input (cpu), but got cuda:0"
    )


BAD_BACKWARD = {
    "grad_h": (
        {"grad_h": torch.zeros(1, 1)},
        "lltm_cell_backward(): expected grad_h to have shape [batch_size, hidden_size] = [3, 7], "
        "but got [1, 1]",
    ),
    "gates": (
        {"gates": torch.zeros(3, 7)},
        "lltm_cell_backward(): expected gates to have shape [batch_size, 3*hidden_size] = [3, 21], "
        "but got [3, 7]",
    ),
    "no bias": (
        {"bias": None},
        "lltm_cell_backward(): output_mask asks for the gradient of bias, but bias is None",
    ),
}


@pytest.mark.parametrize("case", BAD_BACKWARD)
def test_bad_input_of_backward(case):
    changes, message = BAD_BACKWARD[case]
    inputs = cell_inputs(dtype=torch.float)
    new_h, new_cell, gates = ops.lltm_cell_forward(*inputs)
    args = dict(zip(NAMES, inputs, strict=True)) | {"new_cell": new_cell, "gates": gates}
    args |= {"grad_h": new_h, "grad_cell": new_cell, "output_mask": [True] * 5}
    assert refusal(RuntimeError, ops.lltm_cell_backward, **{**args, **changes}) == message


@pytest.mark.parametrize(
    ("state", "got"),
    [
        (torch.zeros(3, 7), "Tensor"),
        ((torch.zeros(3, 7),) * 3, "a tuple of 3"),
        ((torch.zeros(3, 7),), "a tuple of 1"),
    ],
)
def test_a_state_of_the_module_that_is_no_pair(state, got):
    said = refusal(TypeError, lltm_jit.LLTMCell(5, 7), torch.zeros(3, 5), state)
    assert said == f"LLTMCell(): expected a state pair, but got {got}"


def test_unknown_implementation():
    with pytest.raises(ValueError, match="expected impl to be one of") as raised:
        lltm_cell(*cell_inputs(), impl="fast")
    assert str(raised.value) == (
        "lltm_cell(): expected impl to be one of ('auto', 'reference', 'aten', 'fused'), "
        "but got 'fast'"
    )


NOT_TENSORS = {"None": None, "int": 3, "list": [[1.0]], "ndarray": np.zeros((3, 7))}
# No bias is right, and a list in the place of the weights is a state pair.
REFUSED = {*itertools.product(NAMES, NOT_TENSORS)} - {("bias", "None"), ("weights", "list")}


@pytest.mark.parametrize(("name", "type_name"), sorted(REFUSED))
def test_what_is_no_tensor(name, type_name):
    """By any implementation; test_every_operator.py has the usual one."""
    inputs = dict(zip(NAMES, cell_inputs(), strict=True))
    inputs[name] = NOT_TENSORS[type_name]
    wanted = "a tensor or None" if name == "bias" else "a tensor"
    for function in (partial(lltm_cell, impl="reference"), lltm_forward):
        called = "lltm_forward" if function is lltm_forward else "lltm_cell"
        expected = f"{called}(): expected {name} to be {wanted}, but got {type_name}"
        assert refusal(TypeError, function, **inputs) == expected


@pytest.mark.parametrize("name", ["input", "weights", "old_h", "old_cell"])
def test_none_reaches_the_operator(name):
    """As it does under torch.compile."""
    inputs = dict(zip(NAMES, cell_inputs(), strict=True))
    said = refusal(RuntimeError, ops.lltm_cell, **{**inputs, name: None})
    assert said == f"lltm_cell(): expected {name} to be a tensor, but got None"


def test_what_is_no_tensor_in_the_tutorials_backward():
    gradient = torch.zeros(3, 7)
    said = refusal(TypeError, lltm_backward, gradient, None, *[gradient] * 7)
    assert said == "lltm_backward(): expected grad_cell to be a tensor, but got None"


def test_a_type_error_that_is_about_something_else_is_kept():
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'old_h'"):
        lltm_cell(*cell_inputs()[:3])
    for function in (lltm_cell, lltm_forward):
        called = function.__name__
        args = (torch.zeros(3, 5), (torch.zeros(3, 7),) * 3, torch.zeros(21, 12), None)
        expected = f"{called}(): expected a state pair, but got a tuple of 3"
        assert refusal(TypeError, function, *args) == expected
