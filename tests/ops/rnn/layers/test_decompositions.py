"""Exported programs in operations of ATen alone."""

from __future__ import annotations

import pytest
import torch
from sequence_testing import LAYERS, tensors
from torch import nn

import lltm_jit


@pytest.mark.parametrize("kind", LAYERS)
def test_a_decomposed_program_has_operations_of_torch_alone(kind):
    """For any batch size; the steps are unrolled."""
    layer = LAYERS[kind](3, 4, 2, bidirectional=True, dtype=torch.double)
    x = torch.randn(5, 2, 3, dtype=torch.double)
    shapes = {"input": {1: torch.export.Dim("batch")}}
    program = torch.export.export(layer, (x,), dynamic_shapes=shapes)
    assert "lltm_jit" in str(program.graph)
    table = {**torch.export.default_decompositions(), **lltm_jit.decompositions()}
    plain = program.run_decompositions(table)
    assert "lltm_jit" not in str(plain.graph)
    more = torch.randn(5, 7, 3, dtype=torch.double)
    torch.testing.assert_close(tensors(plain.module()(more)), tensors(layer(more)))


def test_other_operators_decompose_as_well():
    model = nn.Sequential(lltm_jit.Sigmoid(), lltm_jit.LLTMCell(3, 4))
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,)).run_decompositions(lltm_jit.decompositions())
    assert "lltm_jit" not in str(program.graph)
    torch.testing.assert_close(program.module()(x), model(x))
