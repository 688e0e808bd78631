"""filtered_lrelu on sizes that take the tensor cores; signs of one kernel for another."""

import pytest
import torch
from flr_testing import (
    LIMITS,
    call_of,
    centred_padding,
    check_with_signs,
    error,
    kept,
    make_filter,
    make_inputs,
    results,
)
from op_testing import bits, for_each, needs_gpu, run_program

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu

pytestmark = needs_gpu
dtype = for_each("dtype", [torch.half, torch.bfloat16, torch.float])


@pytest.mark.parametrize(
    "padding", [[11, 10, 10, 11], [13, 9, 8, 14], [3, 20, 17, -4], [20, 20, 27, 9]]
)
def test_up_2_down_2(padding, dtype):
    x, b = make_inputs((4, 64, 61, 75), dtype, "cuda")
    for clamp in (None, 0.75):
        check_with_signs(x, b, padding=padding, clamp=clamp)


@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2), (4, 2), (2, 4), (4, 4)])
def test_other_factors(up, down, dtype):
    x, b = make_inputs((4, 48, 64, 64), dtype, "cuda")
    padding = centred_padding(64, up, down, 6 * up + 6 * down)
    check_with_signs(x, b, fu=6 * up, fd=6 * down, up=up, down=down, padding=padding, clamp=0.75)


@pytest.mark.parametrize("before", [0, 9])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_paddings_that_move_the_sign_map(up, down, before):
    """By half a tile, and by tiles that are no whole ones of the map."""
    x, b = make_inputs((4, 64, 80, 72), torch.half, "cuda")
    call = {"fu": 6 * up, "fd": 6 * down, "up": up, "down": down, "clamp": 0.75}
    for more in (7, 24):
        check_with_signs(x, b, padding=[before + more, 30, before, 40], **call)


def test_words_of_tiles_without_clamped_samples_are_not_read():
    """Nor are they written: neighbouring blocks differ, and the memory has been used before."""
    x, b = make_inputs((4, 64, 64, 160), torch.half, "cuda")
    x[..., :60] *= 8
    x[..., 60:] /= 32
    used_before = torch.full((1 << 26,), -1, dtype=torch.int, device="cuda")
    del used_before
    check_with_signs(x, b / 32, padding=11, clamp=0.75)


def test_signs_of_one_kernel_are_read_by_another(dtype):
    """Written on tensor cores and on the CPU, read by both."""
    f = make_filter(12)
    x, b = make_inputs((4, 64, 61, 75), dtype)
    calls = []
    for device in ("cpu", "cuda"):
        leaf, taps = x.to(device).requires_grad_(), f.to(device)
        y = filtered_lrelu(leaf, taps, taps, b.to(device), 2, 2, [13, 9, 8, 14], clamp=0.75)
        weight = torch.ones_like(y)
        calls.append(kept(lambda y=y, leaf=leaf, w=weight: torch.autograd.grad(y, leaf, w)))
    grads = []
    for _, signs, *_ in calls:
        for device in ("cpu", "cuda"):
            _, _, *rest = calls[0]
            args = [t.to(device) if isinstance(t, torch.Tensor) else t for t in rest]
            ones = calls[0][0].to(device)
            grads.append(torch.ops.lltm_jit.filtered_lrelu_linear(ones, signs.to(device), *args)[0])
    for signs in (0, 2):  # written by one, read by both
        assert error(grads[signs + 1].cpu(), grads[signs]) < 2 * LIMITS[dtype]
    assert error(grads[2], grads[0]) < 1e-2  # samples next to a kink differ


def test_a_steep_slope():
    """Whose derivative at 0 is 1, as that of others."""
    x = torch.zeros(4, 64, 64, 64, device="cuda", requires_grad=True)
    y = filtered_lrelu(x, gain=1.0, slope=2.0)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.ones_like(x))


WITHOUT_COMPILER = """
import torch
from lltm_jit.jit import ToolchainError, variants
from lltm_jit.ops.filtered_lrelu import filtered_lrelu

def builds_of(variants):
    raise ToolchainError("nvcc was not found")

variants.builds_of = builds_of
x, f = torch.randn(4, 64, 64, 64, device="cuda"), torch.full((12,), 1 / 12, device="cuda")
for _ in range(2):
    y = filtered_lrelu(x, f, f, up=2, down=2, padding=11)
torch.testing.assert_close(y, filtered_lrelu(x, f, f, up=2, down=2, padding=11, impl="ref"))
"""


def test_without_a_compiler_another_kernel_runs():
    words = "stylegan.filtered_lrelu: nvcc was not found; a slower kernel runs instead"
    assert run_program(WITHOUT_COMPILER).stderr.count(words) == 1


def test_same_input_same_bits(dtype):
    x, b = make_inputs((4, 64, 61, 75), dtype, "cuda")
    call = call_of(x, padding=11, clamp=0.75)
    assert bits(results(x, b, **call)) == bits(results(x, b, **call))


@pytest.mark.large
@pytest.mark.parametrize("taps", [12, (12, 12)])  # on tensor cores, and not
@pytest.mark.parametrize("shape", [(4100, 8, 256, 256), (1, 8, 16400, 16400)])
def test_beyond_31_bits(shape, taps):
    """Of the whole tensor, and of one image: the last plane against the same one alone."""
    fu, fd = make_filter(taps, "cuda"), make_filter(taps, "cuda")
    x = torch.randn(shape, device="cuda", dtype=torch.half, requires_grad=True)
    b = torch.randn(shape[1], device="cuda", dtype=torch.half, requires_grad=True)

    def results(x, b):
        y = filtered_lrelu(x, fu, fd, b, up=2, down=2, padding=[11, 10, 11, 10])
        return y.detach()[-1:, -1:], torch.autograd.grad(y, x, y.detach())[0][-1:, -1:]

    last, bias = (part.detach().requires_grad_() for part in (x[-1:, -1:], b[-1:]))
    (y, grad), (alone, grad_alone) = results(x, b), results(last, bias)
    assert error(y, alone) < 2 * LIMITS[torch.half]
    assert error(grad, grad_alone) < 1e-2  # a sample next to 0 may have another sign
