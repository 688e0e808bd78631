"""The LLTM cell by its formula: on a device that has no kernel of ours."""

from __future__ import annotations

import pytest
import test_lltm_compile
import test_lltm_gradients
import torch

from lltm_jit import native


@pytest.fixture(autouse=True)
def _without_kernels():
    native.rnn.register_ops(kernels=False)
    yield
    native.rnn.register_ops()


def test_there_is_no_kernel():
    for operator in ("lltm_cell", "lltm_cell_forward", "lltm_cell_backward"):
        name = f"lltm_jit::{operator}"
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")


def test_opcheck():
    test_lltm_compile.test_opcheck("cpu")


def test_compile_fullgraph():
    test_lltm_compile.test_compile_fullgraph("auto", "cpu")


def test_compile_with_inductor():
    test_lltm_compile.test_compile_with_inductor()


def test_compile_once_for_every_batch_size():
    test_lltm_compile.test_compile_once_for_every_batch_size("cpu")


def test_gradcheck():
    test_lltm_gradients.test_gradcheck("auto", "cpu")


@pytest.mark.parametrize("shape", [(21,), (1, 21)])
def test_bias_gradient_has_the_shape_of_bias(shape):
    test_lltm_gradients.test_bias_gradient_has_the_shape_of_bias(shape, "cpu")
