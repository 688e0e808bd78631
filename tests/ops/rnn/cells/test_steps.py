"""Sequences that go step by step on a GPU, in the types that mostly have one launch."""

from collections.abc import Iterator

import pytest
import torch
from op_testing import needs_gpu
from sequence_testing import inputs_of, launched
from test_sequence import check
from torch import Tensor

import lltm_jit
from lltm_jit import native
from lltm_jit.functional import recurrent_sequence

pytestmark = needs_gpu


@pytest.fixture(autouse=True)
def by_steps() -> Iterator[None]:
    native.load("rnn")
    native.rnn.plan_sequences(1)
    yield
    native.rnn.plan_sequences(0)


# Units that a thread takes four at a time, and one at a time; padded gates of both kinds; and the
# product of each gate's gradients for itself.
@pytest.mark.parametrize("size", [(18, 40), (18, 42), (18, 100), (260, 512)], ids=str)
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
def test_values_and_gradients(cell, dtype, size):
    check(cell, inputs_of(cell, 5, *size, dtype, "cuda", control=True, bias=True))


def test_an_array_that_is_not_aligned():
    inputs = inputs_of("lstm", 5, 18, 40, torch.half, "cuda", bias=True)
    apart = torch.cat([inputs.bias_hh[:1], inputs.bias_hh])[1:]
    assert apart.data_ptr() % 8 != 0
    check("lstm", inputs._replace(bias_hh=apart))


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_first_and_last_states(cell, steps, state):
    control = torch.zeros(steps, 5, dtype=torch.uint8, device="cuda")
    control[0, 0] = control[-1, 1] = control[:, 2] = 2
    control[0, 3] = 1
    check(cell, inputs_of(cell, steps, 5, 42, torch.half, "cuda", state=state))
    inputs = inputs_of(cell, steps, 5, 42, torch.half, "cuda", state=state)
    check(cell, inputs._replace(control=control))


def test_nothing_is_filled_or_copied(tmp_path):
    """Absent states are zeros without a fill, and the last ones are written where they belong."""
    inputs = inputs_of("lstm", 3, 18, 40, torch.half, "cuda", state=False).requires_grad()
    grad = torch.randn(3, 18, 40, dtype=torch.half, device="cuda")

    def gates_gradient() -> Tensor:
        output, *_ = recurrent_sequence("lstm", *inputs)
        return torch.autograd.grad(output, inputs.gates, grad)[0]

    names = [each["name"] for each in launched(gates_gradient, tmp_path)]
    assert sum("sequence" in name for name in names) == 6
    assert not any("elementwise" in name for name in names)


def test_products_of_padded_gates_are_aligned(tmp_path):
    """In their depth, too, which is no multiple of eight without padding."""
    layer = lltm_jit.LSTM(516, 516, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(3, 260, 516, device="cuda", dtype=torch.bfloat16)
    work = launched(lambda: layer(x)[0].sum().backward(), tmp_path)
    names = [each["name"] for each in work]
    assert sum("sequence" in name for name in names) == 6
    assert not any(f"align{few}>" in name for name in names for few in (1, 2, 4))
