"""The LLTM cell at run time: bits, threads, large sizes, what tools see of it."""

import threading
import time
from functools import partial

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import ACTIVATIONS, needs_gpu
from sequence_testing import all_accurate
from subclasses import Logged

from lltm_jit import build_info
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
from lltm_jit.jit import detect
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.half])
def test_batch_past_the_grid_limit(dtype, device):
    inputs = cell_inputs(70_000, 2, 3, dtype=dtype, device=device, requires_grad=True)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    cases = ((lltm_cell, inputs), (lltm_cell_reference, wide), (lltm_cell_reference, inputs))
    found = []
    for function, given in cases:
        results = function(*given)
        # A mean over the batch, so that half does not overflow.
        scale = torch.full_like(results[0], 1 / 64)
        found.append([*results, *torch.autograd.grad(results, given, [scale] * 2)])
    all_accurate(*found, sums=True, parts=ACTIVATIONS)


def inputs_past_two_to_the_31(device):
    """More elements of state than 32 bits count, in little memory: all rows have one state."""
    _, weights, bias, old_h, old_cell = cell_inputs(1, 1, 64, dtype=torch.half, device=device)
    batch_size = 2**25 + 70
    input = torch.rand(batch_size, 1, dtype=torch.half, device=device)
    return input, weights, bias, old_h.expand(batch_size, -1), old_cell.expand(batch_size, -1)


# The ends, and the rows around the 2^31st and 2^32nd byte of a state and element of the gates.
FAR_ROWS = [
    slice(row - 32, row + 32) for row in (32, 2**31 // 192, 2**24, 2**32 // 192, 2**25, 2**25 + 38)
]


@pytest.mark.large
def test_state_past_two_to_the_31_elements(device):
    """On CUDA with the library's product, which is chosen for such a batch."""
    inputs = inputs_past_two_to_the_31(device)
    actual = lltm_cell(*inputs)
    assert actual[0].numel() > 2**31
    for rows in FAR_ROWS:
        few = [t if i in (1, 2) else t[rows] for i, t in enumerate(inputs)]
        expected = lltm_cell_reference(*few)
        torch.testing.assert_close(tuple(t[rows] for t in actual), expected, rtol=4e-3, atol=4e-3)


@pytest.mark.large
@needs_gpu
def test_backward_past_two_to_the_31_elements():
    inputs = inputs_past_two_to_the_31("cuda")
    inputs[0].requires_grad_()
    new_h, new_cell = lltm_cell(*inputs)
    one = new_h.new_ones(1, 1)
    grads = [one.expand_as(new_h), one.expand_as(new_cell)]
    (actual,) = torch.autograd.grad([new_h, new_cell], inputs[:1], grads)
    for rows in FAR_ROWS:
        few = [t if i in (1, 2) else t[rows].detach() for i, t in enumerate(inputs)]
        few[0].requires_grad_()
        results = lltm_cell_reference(*few)
        (expected,) = torch.autograd.grad(results, few[:1], [torch.ones_like(t) for t in results])
        torch.testing.assert_close(actual[rows], expected, rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(detect().cxx_family != "gcc", reason="other compilers' OpenMP is not torch's")
def test_kernels_run_on_the_threads_of_torch():
    """They call OpenMP, and the one that torch has loaded: a build without it has one thread."""
    library = build_info().families["rnn"].library.read_bytes()
    assert b"GOMP_parallel" in library
    assert b"libgomp.so" not in library


@pytest.mark.parametrize("way", ["function", "operator", "backward"])
def test_gil_is_released_around_the_work(way):
    """In the middle of a call another thread runs Python: it notes the time every millisecond.

    Of one of many calls, for a busy machine may leave that thread without a processor.
    """
    inputs = cell_inputs(512, 512, 512, requires_grad=way == "backward")
    call = partial(torch.ops.lltm_jit.lltm_cell if way == "operator" else lltm_cell, *inputs)
    if way == "backward":
        results = call()
        ones = [torch.ones_like(result) for result in results]
        call = partial(torch.autograd.grad, results, inputs, ones, retain_graph=True)
    stamps, done = [], threading.Event()

    def stamp():
        while not done.is_set():
            stamps.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=stamp)
    thread.start()
    for _ in range(50):
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        third = (end - begin) / 3
        if noted := [stamp for stamp in stamps if begin + third < stamp < end - third]:
            break
    done.set()
    thread.join()
    assert noted


def test_subclass_that_overrides_functions_in_the_tutorial_calls():
    inputs = [t.as_subclass(Logged) for t in cell_inputs()]
    Logged.calls.clear()
    results = lltm_forward(*inputs)
    new_h, new_cell, *saved = results
    lltm_backward(new_h, new_cell, new_cell, *saved, inputs[1])
    assert all(type(t) is Logged for t in results)
    assert ["lltm_forward" in call for call in Logged.calls].count(True) == 1
    assert ["lltm_backward" in call for call in Logged.calls].count(True) == 1
