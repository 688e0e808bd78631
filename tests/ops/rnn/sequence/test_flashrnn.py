"""flashrnn() against loops in plain PyTorch: all states of all steps, and their gradients."""

import pytest
import torch
from op_testing import bits, for_each, needs_gpu
from sequence_testing import all_accurate, names_of_launched, peak_of, step_of
from torch import Tensor

from lltm_jit.ops.flashrnn import flashrnn

# Gates of Wx, R and b, and states.
COUNTS = {"elman": (1, 1, 1, 1), "gru": (3, 3, 4, 1), "lstm": (4, 4, 4, 2), "slstm": (4, 4, 4, 4)}


# The cell that has its equations, and the order in which that has the gates of R.
CELLS = {
    "elman": ("rnn_tanh", [0]),
    "gru": ("gru", [1, 2, 0]),
    "lstm": ("lstm", [0, 1, 2, 3]),
    "slstm": ("slstm", [0, 1, 2, 3]),
}
function = for_each("function", COUNTS)


def loop(
    Wx: Tensor, R: Tensor, b: Tensor, states: Tensor | None, function: str
) -> tuple[Tensor, Tensor]:
    cell, order = CELLS[function]
    of_input, of_hidden = b, 0
    if function == "gru":  # whose last bias alone is the input's
        of_input, of_hidden = torch.cat([torch.zeros_like(b[:2]), b[3:]]), b[:3]
    Wx = Wx + of_input
    shape, step = (COUNTS[function][3], len(Wx), *Wx.shape[3:]), step_of(cell)
    now = (Wx.new_zeros(shape) if states is None else states[:, :, 0]).flatten(2)
    found = []
    for x in Wx.unbind(1):
        r = torch.einsum("gndp,bnp->bgnd", R, now[0].view(shape[1:])) + of_hidden
        now = step(x.flatten(1), r[:, order].flatten(1), None, now)
        found.append(torch.stack(now).view(shape))
    return torch.stack(found, 2), found[-1].unsqueeze(2)


def tensors_of(
    function: str, *, dtype=torch.double, device="cpu", state=True, size=(3, 5, 2, 8), most=1.0
) -> list[Tensor]:
    rows, steps, heads, units = size
    x, r, b, count = COUNTS[function]
    shapes = [(rows, steps, x, heads, units), (r, heads, units, units), (b, heads, units)]
    shapes += [(count, rows, 1, heads, units)] if state else []
    tensors = [torch.randn(shape, dtype=torch.double) for shape in shapes]
    tensors[0] *= most
    tensors[1] *= units**-0.5
    if state and function == "slstm":
        tensors[-1][2] = 1 + tensors[-1][2].abs()  # sums of weights
    return [tensor.to(device, dtype) for tensor in tensors]


def run(
    called, function: str, tensors: list[Tensor], order: int = 1, only_h: bool = False
) -> list[Tensor]:
    """Results, and gradients of all of them, or of h, with fixed weights; or second ones, too."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    Wx, R, b, *states = leaves
    results = called(Wx, R, b, states[0] if states else None, function)
    weights = [
        torch.linspace(-1, 1, r.numel(), device=r.device).view(r.shape).to(r) for r in results
    ]
    for weight in weights:
        weight[1:] *= not only_h
    found = list(results)
    loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
    for i in range(order):
        gradients = torch.autograd.grad(loss, leaves, create_graph=i + 1 < order)
        loss = sum(gradient.sin().sum() for gradient in gradients)
        found += gradients
    return found


@pytest.mark.thinned
@pytest.mark.parametrize("size", [(3, 5, 2, 8), (2, 4, 3, 5), (17, 2, 1, 16)], ids=str)
@pytest.mark.parametrize("state", [False, True])
def test_values_and_gradients(function, state, size, device):
    tensors = tensors_of(function, state=state, size=size, device=device)
    torch.testing.assert_close(*(run(called, function, tensors, 2) for called in (flashrnn, loop)))


def check(function: str, tensors: list[Tensor], ulps: float, parts: float) -> None:
    """Against the loop in float64, by that in the same dtype."""
    only_h = function == "slstm" and tensors[0].itemsize == 2  # see the tests' smooth_results()
    actual, usual = (run(f, function, tensors, only_h=only_h) for f in (flashrnn, loop))
    exact = run(loop, function, [tensor.double() for tensor in tensors], only_h=only_h)
    all_accurate(actual, exact, usual, ulps=ulps, sums=True, parts=parts)


@pytest.mark.thinned
@pytest.mark.parametrize("most", [1, 100])
def test_dtypes(function, dtype, most, device):
    tensors = tensors_of(function, dtype=dtype, device=device, most=most, size=(4, 7, 3, 16))
    truncated = dtype == torch.float and device == "cuda"
    check(function, tensors, ulps=8 if truncated else 4, parts=16)


# More than a cluster holds: grids, forward many rows, and step by step.
@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize(
    "size", [(2, 3, 1, 1040), (70, 3, 1, 528), (80, 3, 1, 1152), (3, 3, 1, 2144)], ids=str
)
@pytest.mark.parametrize("function", ["lstm", "slstm"])
def test_large_heads(function, size, dtype, device):
    if device == "cpu":
        size = (*size[:3], size[3] // 16)
    tensors = tensors_of(function, dtype=dtype, device=device, size=size)
    check(function, tensors, ulps=8, parts=32)


@needs_gpu
@pytest.mark.parametrize("function", ["lstm", "slstm"])
def test_all_heads_run_in_one_launch_each_way(function, tmp_path):
    tensors = tensors_of(function, dtype=torch.half, device="cuda", size=(16, 9, 12, 64))
    names = names_of_launched(lambda: run(flashrnn, function, tensors), tmp_path)
    found = [name for name in names if "sequence_" in name]
    assert found == ["sequence_forward", "sequence_backward"]


def test_without_gradients_no_gates_are_kept(device):
    tensors = tensors_of("lstm", dtype=torch.float, device=device, size=(4, 200, 2, 32))
    flashrnn(*tensors)  # on a GPU the first call compiles
    # The results are half as large as the gates, and so are the states that they are made of.
    assert 0 < peak_of(lambda: flashrnn(*tensors)) < 1.4 * tensors[0].nbytes


@pytest.mark.parametrize("function", ["lstm", "slstm"])
def test_each_state_of_each_step_has_its_gradient(function, device):
    tensors = tensors_of(function, device=device, size=(1, 3, 1, 4))
    found = []
    for called in (flashrnn, loop):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        states, _ = called(*leaves, function)
        each = [states[s, :, t].sum() for s in range(len(states)) for t in range(3)]
        args = {"retain_graph": True, "materialize_grads": True}
        found.append([g for one in each for g in torch.autograd.grad(one, leaves, **args)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16], ids=str)
def test_rows_and_heads_are_independent_and_bits_the_same(function, dtype, device):
    tensors = tensors_of(function, dtype=dtype, device=device, size=(5, 6, 3, 16))
    first, again = run(flashrnn, function, tensors), run(flashrnn, function, tensors)
    assert list(map(bits, first)) == list(map(bits, again))
    tensors[0][-1, :, :, -1] = float("nan")  # a row of the last head
    spoilt = run(flashrnn, function, tensors)
    for ours, right in zip(spoilt[:2], first[:2], strict=True):
        assert ours[:, -1, :, -1].isnan().all()
        assert bits(ours[:, :-1]) == bits(right[:, :-1])
        assert bits(ours[:, :, :, :-1]) == bits(right[:, :, :, :-1])
    assert bits(spoilt[2][:-1]) == bits(first[2][:-1])  # the gradient of Wx


@pytest.mark.parametrize("function", ["slstm"])
def test_compiled_and_transformed(function, device):
    tensors = tensors_of(function, device=device)
    compiled = torch.compile(flashrnn, fullgraph=True, backend="aot_eager")
    expected = run(flashrnn, function, tensors)
    torch.testing.assert_close(run(compiled, function, tensors), expected)
    batches = [torch.stack([tensor, tensor.cos()]) for tensor in tensors]
    mapped = torch.func.vmap(lambda *t: flashrnn(*t, function)[0])(*batches)
    torch.testing.assert_close(mapped[0], expected[0])
    forward = [
        torch.func.jvp(lambda x, f=f: f(x, *tensors[1:], function), (x,), (x.cos(),))
        for f, x in ((flashrnn, tensors[0]), (loop, tensors[0]))
    ]
    torch.testing.assert_close(*forward)


def test_under_autocast(device):
    tensors = tensors_of("slstm", dtype=torch.float, device=device, state=False)
    with torch.autocast(device, torch.bfloat16):
        found = run(flashrnn, "slstm", tensors)
    assert [t.dtype for t in found] == [torch.bfloat16] * 2 + [torch.float] * 3
    cast = run(flashrnn, "slstm", [tensor.bfloat16() for tensor in tensors])
    torch.testing.assert_close(found[0], cast[0])


def test_what_the_arguments_ask_for_is_ours_to_choose():
    tensors = tensors_of("lstm", dtype=torch.float)
    expected = flashrnn(*tensors)
    for actual in (
        flashrnn(*tensors, "lstm", "cuda_fused", "bfloat16"),
        flashrnn(*tensors, backend="triton", dtype=torch.bfloat16),
        flashrnn(tensors[0], *(tensor.double() for tensor in tensors[1:])),
    ):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


zeros = torch.zeros
WRONG = [
    ("function", "rnn", ValueError, "one of 'elman', .*, but got 'rnn'"),
    ("function", ["lstm"], ValueError, r"one of 'elman', .*, but got \['lstm'\]"),
    ("b", 1.0, TypeError, "expected b to be a tensor, but got float"),
    (
        "Wx",
        zeros(3, 5, 64),
        ValueError,
        r"Wx to have 5 dimensions \[batch, steps, gates, heads, units\], but got shape \[3, 5, 64",
    ),
    (
        "Wx",
        zeros(3, 0, 4, 2, 8),
        ValueError,
        r"Wx to have at least one step and one head, but got shape \[3, 0, 4, 2, 8\]",
    ),
    (
        "Wx",
        zeros(3, 5, 4, 2, 8).long(),
        RuntimeError,
        "Wx to be half, bfloat16, float or double, but got torch.int64",
    ),
    ("R", zeros(4, 2, 8, 8).to("meta"), RuntimeError, r"R .* device of Wx \(cpu\), but got meta"),
    ("Wx", zeros(3, 5, 3, 2, 8), ValueError, r"Wx .* \[3, 5, 4, 2, 8\], but got \[3, 5, 3, 2, 8\]"),
    (
        "R",
        zeros(4, 2, 8, 9),
        ValueError,
        r"R to have shape \[gates, heads, units, units\] = \[4, 2, 8, 8\], but got \[4, 2, 8, 9\]",
    ),
    ("b", zeros(4, 16), ValueError, r"b .* = \[4, 2, 8\], but got \[4, 16\]"),
    ("states", zeros(2, 3, 2, 8), ValueError, r"states .* \[2, 3, 1, 2, 8\], .* \[2, 3, 2, 8\]"),
]


@pytest.mark.parametrize(
    ("name", "wrong", "error", "message"), WRONG, ids=[f"{row[0]}: {row[3][:30]}" for row in WRONG]
)
def test_errors(name, wrong, error, message):
    right = dict(zip(("Wx", "R", "b"), tensors_of("lstm", dtype=torch.float), strict=False))
    with pytest.raises(error, match=rf"^flashrnn\(\): .*{message}"):
        flashrnn(**right | {name: wrong})
