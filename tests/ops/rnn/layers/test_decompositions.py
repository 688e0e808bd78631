"""Exported programs in operations of ATen alone."""

from __future__ import annotations

import copy

import pytest
import torch
from sequence_testing import LAYERS, THEIRS, TRACED, tensors
from torch import nn

import lltm_jit


@pytest.mark.parametrize("kind", TRACED)
def test_a_decomposed_program_has_operations_of_torch_alone(kind):
    """For any batch size; the steps are unrolled."""
    layer = LAYERS[kind](3, 4, bidirectional=True, dtype=torch.double)
    x = torch.randn(3, 2, 3, dtype=torch.double)
    shapes = {"input": {1: torch.export.Dim("batch")}}
    program = torch.export.export(layer, (x,), dynamic_shapes=shapes)
    assert "lltm_jit" in str(program.graph)
    table = {**torch.export.default_decompositions(), **lltm_jit.decompositions()}
    plain = program.run_decompositions(table)
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
    exported = layer if way == "decomposed" else lltm_jit.revert(copy.deepcopy(layer))
    shapes = {"input": {1: torch.export.Dim("batch")}}
    program = torch.export.export(exported, (x,), dynamic_shapes=shapes)
    table = {**torch.export.default_decompositions(), **lltm_jit.decompositions()}
    program = program.run_decompositions(table) if way == "decomposed" else program
    torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "layer.onnx")
    found = ReferenceEvaluator(str(tmp_path / "layer.onnx")).run(None, {"input": more.numpy()})
    torch.testing.assert_close([*map(torch.from_numpy, found)], tensors(layer(more)))


def test_other_operators_decompose_as_well():
    model = nn.Sequential(lltm_jit.Sigmoid(), lltm_jit.LLTMCell(3, 4))
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,)).run_decompositions(lltm_jit.decompositions())
    assert "lltm_jit" not in str(program.graph)
    torch.testing.assert_close(program.module()(x), model(x))
