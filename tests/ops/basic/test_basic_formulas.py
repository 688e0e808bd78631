"""The elementwise operators by their formulas: on a device that has no kernel of ours."""

from __future__ import annotations

import pytest
import test_my_op
import test_sigmoid
import torch

from lltm_jit import native


@pytest.fixture(autouse=True)
def _without_kernels():
    native.basic.register_ops(kernels=False)
    yield
    native.basic.register_ops()


def has_kernel(operator: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"lltm_jit::{operator}", key)


def test_there_is_no_kernel():
    for operator in ("my_op", "my_op_backward", "sigmoid", "sigmoid_backward"):
        assert not has_kernel(operator, "CPU")
        assert has_kernel(operator, "Meta")


@pytest.mark.parametrize("module", [test_my_op, test_sigmoid])
@pytest.mark.parametrize(
    "test",
    [
        "test_gradients",
        "test_undefined_output_gradient",
        "test_opcheck",
        "test_compile_and_transforms",
        "test_compile_with_inductor",
    ],
)
def test_formula(module, test):
    getattr(module, test)("cpu")


def test_formula_keeps_the_memory_format():
    test_my_op.test_channels_last("cpu")


@pytest.mark.parametrize("dtype", test_my_op.INTEGERS)
def test_formula_of_integers(dtype):
    test_my_op.test_integers_wrap_around(dtype, "cpu")
