"""Sequences that go step by step on a GPU, in the types that mostly have one launch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from op_testing import needs_gpu
from sequence_testing import CELLS, inputs_of
from test_sequence import check

from lltm_jit import native

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
@pytest.mark.parametrize("cell", CELLS)
def test_values_and_gradients(cell, dtype, size):
    check(cell, inputs_of(cell, 5, *size, dtype, "cuda", control=True, bias=True))


def test_an_array_that_is_not_aligned():
    inputs = inputs_of("lstm", 5, 18, 40, torch.half, "cuda", bias=True)
    apart = torch.cat([inputs.bias_hh[:1], inputs.bias_hh])[1:]
    assert apart.data_ptr() % 8 != 0
    check("lstm", inputs._replace(bias_hh=apart))
