"""An output depends on its support alone: on the numbers that a tap of the filters meets."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from flr_testing import LIMITS, centred_padding, error, make_filter, make_inputs
from op_testing import for_each, needs_gpu
from torch import Tensor

from lltm_jit.ops.stylegan.bias_act import bias_act
from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.stylegan.upfirdn2d import upfirdn2d

dtype = for_each("dtype", [torch.half, torch.bfloat16, torch.float])
FACTORS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4)]
NOT_FINITE = [float("nan"), float("inf"), -float("inf")]
LARGE = {torch.half: [6e4], torch.bfloat16: [6e4, 1e30], torch.float: [6e4, 1e30]}


# A device, and a size of images; on a GPU large ones take the tensor cores.
SMALL, BIG = (2, 3, 20, 20), (8, 32, 64, 64)
PLACES = [
    ("cpu", SMALL),
    pytest.param("cuda", SMALL, marks=needs_gpu),
    pytest.param("cuda", BIG, marks=needs_gpu),
]
PLANES = (slice(1, 2), slice(3))  # those that have marked numbers, and a neighbour
MARKED = [0, 2]  # channels


class Call:
    """Filters, factors and a padding; and what marked numbers have a part in.

    Masks are of the planes that have such numbers.
    """

    def __init__(self, up: int, down: int, size: int) -> None:
        self.fu, self.fd, self.up, self.down = make_filter(6 * up), make_filter(6 * down), up, down
        self.padding = centred_padding(size, up, down, 6 * up + 6 * down)

    def __call__(self, x: Tensor, b: Tensor, clamp: float | None, impl: str = "cuda") -> Tensor:
        fu, fd = self.fu.to(x.device), self.fd.to(x.device)
        up, down, padding = self.up, self.down, self.padding
        return filtered_lrelu(x, fu, fd, b, up, down, padding, clamp=clamp, impl=impl)

    def _to_v(self, x: Tensor) -> Tensor:
        return upfirdn2d(x, torch.ones_like(self.fu), self.up, 1, self.padding, impl="ref")

    def _to_y(self, v: Tensor) -> Tensor:
        return upfirdn2d(v, torch.ones_like(self.fd), 1, self.down, impl="ref")

    def results(self, marks: Tensor) -> Tensor:
        """Those that the marked numbers of x have a part in."""
        return self._to_y(self._to_v(marks.double())) > 0.5

    def gradients_by_signs(self, marks: Tensor) -> Tensor:
        """The gradients of x that depend on signs of samples that marked numbers of x make."""
        leaf = torch.zeros_like(marks, dtype=torch.double, requires_grad=True)
        touched = (self._to_v(marks.double()) > 0.5).double()
        return torch.autograd.grad(self._to_v(leaf), leaf, touched)[0] > 0.5

    def gradients(self, marks: Tensor, x: Tensor) -> Tensor:
        """The gradients of x that the marked gradients of y have a part in."""
        leaf = torch.zeros_like(x[PLANES], dtype=torch.double, device="cpu", requires_grad=True)
        return torch.autograd.grad(self._to_y(self._to_v(leaf)), leaf, marks.double())[0] > 0.5


def make_marks(plane: torch.Size) -> Tensor:
    """Some pixels of two planes, a corner among them."""
    marks = torch.zeros((1, 3, *plane), dtype=torch.bool)
    for channel in MARKED:
        marks[0, channel].view(-1)[torch.randint(0, plane.numel(), (3,))] = True
    marks[0, 2, -1, -1] = True
    return marks


def filled(tensor: Tensor, marks: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor[PLANES].masked_fill_(marks.to(tensor.device), value)
    return tensor


def with_specials(tensor: Tensor, marks: Tensor) -> Iterator[Tensor]:
    for special in NOT_FINITE + LARGE[tensor.dtype]:
        yield filled(tensor, marks, special)


def assert_same_but(touched: Tensor, actual: Tensor, expected: Tensor) -> None:
    different = actual != expected
    different[PLANES] &= ~touched.to(actual.device)
    assert not different.any(), f"{int(different.sum())} of {different.numel()} differ"


def assert_same_sums(actual: Tensor, expected: Tensor) -> None:
    """Of the channels without marked numbers."""
    others = [c for c in range(len(actual)) if c not in MARKED]
    assert torch.equal(actual[others], expected[others])


def differentiate(
    function: Callable[[Tensor, Tensor], Tensor], x: Tensor, b: Tensor, grad: Tensor | None = None
) -> list[Tensor]:
    """y, and the gradients of x and b."""
    leaves = [x.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()]
    y = function(*leaves)
    grad = torch.ones_like(y) if grad is None else grad
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def check_forward(call: Call, x: Tensor, b: Tensor, clamp: float | None) -> None:
    run, run_exactly = partial(call, clamp=clamp), partial(call, clamp=clamp, impl="ref")
    marks = make_marks(x.shape[2:])
    x = filled(x, marks, 0.25)  # in no case a tile's largest numbers
    results, by_signs = call.results(marks), call.gradients_by_signs(marks)
    plain = differentiate(run, x, b)
    # Without gradients another kernel runs on a GPU, which takes long to compile: for one type.
    without = [run(x, b)] if x.dtype == torch.half else []
    for special in with_specials(x, marks):
        y, grad_x, grad_b = differentiate(run, special, b)
        marked = differentiate(run_exactly, special[PLANES].double(), b[:3].double())
        exact, exact_x = marked[0].cpu().to(x.dtype), marked[1].cpu()
        finite = exact.isfinite()
        for actual, expected in [(y, plain[0]), *((run(special, b), w) for w in without)]:
            assert_same_but(results, actual, expected)
            touched = actual[PLANES].cpu()
            torch.testing.assert_close(
                touched[~finite], exact[~finite], rtol=0, atol=0, equal_nan=True
            )
            if (within := results & finite).any():
                assert error(touched[within], exact[within]) < 2 * LIMITS[x.dtype]
        assert_same_but(by_signs, grad_x, plain[1])
        assert_same_sums(grad_b, plain[2])
        if not special.isnan().any():  # samples next to a kink differ
            assert error(grad_x[PLANES].cpu()[by_signs], exact_x[by_signs]) < 3e-2


def check_backward(call: Call, x: Tensor, b: Tensor) -> None:
    run = partial(call, clamp=None)
    grad = torch.randn(differentiate(run, x, b)[0].shape).to(x)
    marks = make_marks(grad.shape[2:])
    grad = filled(grad, marks, 0.25)
    touched = call.gradients(marks, x)
    _, plain_x, plain_b = differentiate(run, x, b, grad)
    for special in with_specials(grad, marks):
        _, grad_x, grad_b = differentiate(run, x, b, special)
        assert_same_but(touched, grad_x, plain_x)
        assert_same_sums(grad_b, plain_b)
        if not special.isfinite().all():
            assert torch.equal(grad_x[PLANES].isfinite().cpu(), ~touched)
            assert not grad_b[MARKED].isfinite().any()
        else:
            exact = grad_x.sum((0, 2, 3), dtype=torch.double).to(x.dtype)
            finite = exact.isfinite()  # half overflows
            assert error(grad_b[finite], exact[finite]) < 2 * LIMITS[x.dtype]


def check(call: Call, x: Tensor, b: Tensor) -> None:
    for clamp in (None, 0.75):
        check_forward(call, x, b, clamp)
    check_backward(call, x, b)


@pytest.mark.thinned
@pytest.mark.parametrize(("device", "shape"), PLACES, ids=str)
@pytest.mark.parametrize(("up", "down"), FACTORS)
def test_filtered_lrelu(up, down, dtype, device, shape):
    x, b = make_inputs(shape, dtype, device)
    call = Call(up, down, shape[-1])
    check(call, x, b)


def test_filtered_lrelu_in_blocks(dtype, device):
    """Several blocks and parts of a plane, whose rows are no whole tiles."""
    x, b = make_inputs((2, 3, 33, 45) if device == "cpu" else (2, 24, 61, 150), dtype, device)
    call = Call(2, 2, 0)
    call.padding = [13, 9, 8, 14]
    check(call, x, b)


@pytest.mark.parametrize(("device", "shape"), PLACES, ids=str)
def test_a_bias_that_is_not_finite(dtype, device, shape):
    """It has a part in what has a part of the image, not in what lies in the padding."""
    x, b = make_inputs(shape, dtype, device)
    call = Call(2, 2, 0)
    call.padding = [60, 60, 61, 59]
    marks = torch.ones(1, 1, *x.shape[2:])
    plain, touched = call(x, b, None), call.results(marks)[0, 0].to(device)
    for special in NOT_FINITE:
        b[1] = special
        y = call(x, b, None)
        different = y != plain
        assert torch.equal(different[:, 1], touched.expand_as(different[:, 1]))
        assert not y[:, 1, touched].isfinite().any()
        different[:, 1] = False
        assert not different.any()


@needs_gpu
def test_more_planes_than_a_block_has_notes_for():
    call = Call(2, 2, 32)
    x = torch.randn(4400, 32, 32, 32, device="cuda").half()
    b = torch.randn(32, device="cuda").half()
    x.flatten(0, 1)[::13, 3, 5] = float("nan")
    x[-1, -1, 0, 0] = float("inf")
    parts = torch.cat([call(part, b, None) for part in x.split(440)])
    torch.testing.assert_close(call(x, b, None), parts, rtol=0, atol=0, equal_nan=True)
    assert parts.flatten(0, 1)[::13].isnan().any((1, 2)).all()


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float])
@pytest.mark.parametrize(("up", "down"), [(2, 2), (4, 2)])
@pytest.mark.parametrize("flips", [[], [2], [3]], ids=str)
def test_regions_of_other_magnitudes(flips, up, down, dtype):
    """Whatever comes first, the large numbers or the small ones."""
    call = Call(up, down, 64)
    x, b = make_inputs((8, 32, 64, 64), dtype, "cuda")
    b.zero_()
    x[:, ::4] *= torch.logspace(20, -20, 64, device="cuda", dtype=torch.double).to(dtype)[:, None]
    x[:, 1::4, :30] *= 1e9
    x[:, 2::4, :, 30:] *= 1e-9
    for clamp in (None, 0.75):
        y = call(x.flip(flips).requires_grad_(), b, clamp).detach()
        exact = call(x.flip(flips).double(), b.double(), clamp, "ref")
        # What the magnitudes of a support make is what an error may be a part of.
        size = call(x.flip(flips).double().abs(), b.double(), None, "ref")
        part = ((y.double() - exact).abs() / size).max().item()
        assert part < (2**-8 if dtype == torch.bfloat16 else 2**-14), part


def check_local(
    run: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    b: Tensor,
    results: Callable[[Tensor], Tensor],
    gradients: Callable[[Tensor], Tensor],
) -> None:
    """A result and a gradient of x see the numbers alone that they are made of."""
    grad, marks = torch.randn_like(run(x, b)), make_marks(x.shape[2:])
    plain = differentiate(run, x, b, grad)
    for special in with_specials(x, marks):
        y, grad_x, _ = differentiate(run, special, b, grad)
        assert_same_but(results(marks), y, plain[0])
        assert_same_but(marks, grad_x, plain[1])
    marks = make_marks(grad.shape[2:])
    for special in with_specials(grad, marks):
        _, grad_x, grad_b = differentiate(run, x, b, special)
        assert_same_but(gradients(marks), grad_x, plain[1])
        assert_same_sums(grad_b, plain[2])


@pytest.mark.thinned
@pytest.mark.parametrize(("up", "down"), FACTORS)
def test_upfirdn2d(up, down, dtype, device):
    x, b = make_inputs((2, 3, 20, 36), dtype, device)
    call = Call(up, down, 20)
    call.fu, call.fd = make_filter(6 * max(up, down)), torch.ones(1)

    def run(x: Tensor, b: Tensor) -> Tensor:
        return upfirdn2d(x + b[:, None, None], call.fu.to(device), up, down, call.padding)

    check_local(run, x, b, call.results, partial(call.gradients, x=x))


@pytest.mark.parametrize("act", ["linear", "lrelu", "tanh", "swish", "softplus"])
def test_bias_act(act, dtype, device):
    x, b = make_inputs((2, 3, 20, 36), dtype, device)
    run = partial(bias_act, act=act, clamp=2.0)
    check_local(run, x, b, torch.Tensor.bool, torch.Tensor.bool)
