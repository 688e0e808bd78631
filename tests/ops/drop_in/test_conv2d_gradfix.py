"""conv2d_gradfix: torch's convolutions, whose weights get no gradient where that is asked for."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.func import jvp
from torch.testing import assert_close

from lltm_jit.ops.conv2d_gradfix import conv2d, conv_transpose2d, no_weight_gradients
from lltm_jit.ops.conv2d_resample import conv2d_resample

NAMES = ["grouped", "same", "transposed grouped", "transposed"]
# One of ours, torch's, the weight's shape, and the arguments after the bias, in their order.
CASES = [
    (conv2d, F.conv2d, (4, 3, 3, 2), (2, (1, 0), 1, 2)),
    (conv2d, F.conv2d, (4, 6, 3, 3), (1, "same", (2, 1))),
    (conv_transpose2d, F.conv_transpose2d, (6, 2, 3, 3), (2, (1, 0), 1, 2, 1)),
    (conv_transpose2d, F.conv_transpose2d, (6, 4, 3, 3), ()),
]
both = pytest.mark.parametrize(("ours", "theirs", "shape", "rest"), CASES, ids=NAMES)


def tensors(shape, device="cpu"):
    """An input, the weight and a bias for four channels."""
    options = {"dtype": torch.double, "device": device, "requires_grad": True}
    return [torch.randn(size, **options) for size in ((2, 6, 5, 6), shape, (4,))]


def assert_same(found, expected):
    """To the bit on a CPU; on a GPU cuDNN may add in any order."""
    exactly = {} if expected[0].is_cuda else {"rtol": 0, "atol": 0}
    assert_close(found, expected, **exactly)


@both
def test_values_and_derivatives_are_those_of_torch(ours, theirs, shape, rest):
    """Of a penalty, too, that is made where weights get no gradient."""
    leaves = tensors(shape)

    def derivatives(function):
        def run(*leaves):
            return function(*leaves, *rest)

        found = [run(*leaves), jvp(run, tuple(leaves), tuple(t.cos() for t in leaves))[1]]
        first = grad(run(*leaves).tanh().sum(), leaves, create_graph=True)
        with no_weight_gradients():
            slope = grad(run(*leaves).tanh().sum(), leaves[:1], create_graph=True)
        for slopes in (first, slope):
            found += slopes
            found += grad(sum(s.square().sum() for s in slopes), leaves)
        return found

    assert_same(derivatives(ours), derivatives(theirs))


@both
def test_weights_get_no_gradient_within(ours, theirs, shape, rest, device):
    x, w, b = tensors(shape, device)
    y = ours(x, w, b, *rest).tanh().sum()
    expected = grad(y, (x, w, b), retain_graph=True)
    with no_weight_gradients(disable=False):
        assert_same(grad(y, (x, w, b), retain_graph=True), expected)
    with no_weight_gradients():
        dx, dw, db = grad(y, (x, w, b), retain_graph=True, allow_unused=True)
        assert dw is None
        y.backward(retain_graph=True)
    assert w.grad is None
    for found in ((dx, db), (x.grad, b.grad)):
        assert_same(found, expected[::2])
    y.backward()
    assert_same([w.grad], [expected[1]])


def test_blocks_within_blocks():
    x, w, _ = tensors((4, 6, 3, 3))

    def has_gradient():
        return grad(conv2d(x, w).sum(), w, allow_unused=True)[0] is not None

    with no_weight_gradients():
        with no_weight_gradients(disable=False):
            assert not has_gradient()
        with no_weight_gradients():
            assert not has_gradient()
        assert not has_gradient()
    with pytest.raises(ZeroDivisionError), no_weight_gradients():
        raise ZeroDivisionError
    assert has_gradient()


def test_other_threads_go_on(device):
    x, w, _ = tensors((4, 6, 3, 3), device=device)
    y, found = conv2d(x, w), []

    def elsewhere():
        found.append(grad(y.sum(), w, retain_graph=True)[0])

    with no_weight_gradients():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert grad(y.sum(), w, retain_graph=True, allow_unused=True) == (None,)
    assert_same(found, grad(y.sum(), [w]))


@pytest.mark.parametrize("ours", [conv2d, conv_transpose2d])
def test_a_compiled_graph_looks_when_its_backward_pass_runs(ours):
    x, w, _ = tensors((6, 6, 3, 3))
    b = torch.randn(6, dtype=torch.double, requires_grad=True)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    y = compiled(x, w, b).tanh()
    expected = grad(ours(x, w, b).tanh().sum(), (x, w, b))
    for disabled in (False, True, False):
        with no_weight_gradients(disabled):
            dx, dw, db = grad(y.sum(), (x, w, b), retain_graph=True)
        assert not dw.any() if disabled else torch.equal(dw, expected[1])
        assert all(map(torch.equal, (dx, db), expected[::2]))


def test_a_block_in_a_compiled_function():
    @torch.compile(backend="aot_eager")
    def step(x, w):
        with no_weight_gradients():
            conv2d(x, w).sum().backward()

    x, w, _ = tensors((4, 6, 3, 3))
    step(x, w)
    assert torch.equal(x.grad, grad(F.conv2d(x, w).sum(), x)[0])
    assert w.grad is None or not w.grad.any()


def test_transforms_and_autocast():
    x, w, _ = (tensor.detach() for tensor in tensors((4, 6, 3, 3)))
    weights = torch.stack([w, 2 * w])

    def loss(w, function):
        return function(x, w).square().sum()

    found = torch.vmap(torch.func.grad(loss), (0, None))(weights, conv2d)
    assert_close(found, torch.stack([torch.func.grad(loss)(w, F.conv2d) for w in weights]))
    with no_weight_gradients():
        assert not torch.func.grad(loss)(w, conv2d).any()
    with torch.autocast("cpu", torch.bfloat16):
        assert conv2d(x.float(), w.float().requires_grad_()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "options", [{}, {"up": 2}, {"down": 2}, {"padding": [1, 0, 2, 0]}], ids=str
)
def test_resampled_convolutions_leave_out_gradients_of_weights(options):
    f = torch.ones(4) / 4
    found = []
    for disable in (False, True):
        x, w = (torch.ones(s, requires_grad=True) for s in ((1, 2, 8, 8), (3, 2, 3, 3)))
        with no_weight_gradients(disable):
            conv2d_resample(x, w, f, **options).sum().backward()
        assert (w.grad is None) == disable
        found.append(x.grad)
    torch.testing.assert_close(*found)
