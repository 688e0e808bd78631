"""The context manager that chooses the implementation of all StyleGAN operators."""

from __future__ import annotations

import threading

import pytest
import torch

from lltm_jit.ops.stylegan import implementation
from lltm_jit.ops.stylegan._implementation import takes_reference

X = torch.zeros(3)


def test_the_argument_chooses():
    assert takes_reference("f", "ref", X)
    assert not takes_reference("f", "cuda", X)


def test_the_block_goes_before_the_argument_and_ends():
    with implementation("ref"):
        assert takes_reference("f", "cuda", X)
        with implementation("cuda"):
            assert not takes_reference("f", "ref", X)
        assert takes_reference("f", "cuda", X)
    assert not takes_reference("f", "cuda", X)


def test_an_error_ends_the_block():
    with pytest.raises(KeyError), implementation("ref"):
        raise KeyError
    assert not takes_reference("f", "cuda", X)


def test_a_device_without_kernels_takes_the_reference():
    class Elsewhere:
        is_cuda = is_cpu = False
        device = torch.device("xpu")

    assert takes_reference("f", "cuda", Elsewhere())
    assert not takes_reference("f", "cuda", X.to("meta"))


def test_bad_names():
    message = r"^bias_act\(\): expected impl to be 'cuda' or 'ref', but got 'gpu'$"
    with pytest.raises(ValueError, match=message):
        takes_reference("bias_act", "gpu", X)
    message = r"^implementation\(\): expected impl to be 'cuda' or 'ref', but got 'fast'$"
    with pytest.raises(ValueError, match=message), implementation("fast"):
        pytest.fail("the block began")
    assert not takes_reference("f", "cuda", X)


def test_the_choice_is_for_all_threads():
    """autograd runs a backward in threads of its own."""
    seen = []
    with implementation("ref"):
        thread = threading.Thread(target=lambda: seen.append(takes_reference("f", "cuda", X)))
        thread.start()
        thread.join()
    assert seen == [True]
