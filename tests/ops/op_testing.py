"""What the tests of every operator share: devices, layouts and the accuracy rule."""

import contextlib
import copy
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev
from torch.fx.experimental import _config as shape_config

from lltm_jit import native

DTYPES = [torch.half, torch.bfloat16, torch.float, torch.double]
LAYOUTS = ["contiguous", "transposed", "expanded", "offset", "strided"]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
# A device that has no kernel of ours runs the formulas.
EVERY_PATH = pytest.mark.parametrize("path", [*DEVICES, "formulas"])
# For torch.compile and make_fx(): sizes that are equal by chance are symbols of their own.
ANY_SIZES = shape_config.patch(use_duck_shape=False)


def for_each(name: str, values: Any) -> Any:
    """A fixture: a test with an argument of this name runs for each of the values."""
    return pytest.fixture(name=name, params=values, ids=str)(lambda request: request.param)


@contextlib.contextmanager
def taken(path: str, family: str | None) -> Iterator[str]:
    """The device to run on; without our kernels where the path is that of the formulas."""
    if path != "formulas":
        yield path
    elif family is None:
        pytest.skip("it consists of torch's operations")
    else:
        module = native.load(family).module
        module.register_ops(kernels=False)
        try:
            yield "cpu"
        finally:
            module.register_ops()


def with_layout(tensor: Tensor, layout: str) -> Tensor:
    """The tensor in another memory layout; an expanded one repeats its first row."""
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded":
        return tensor[:1].expand_as(tensor) if tensor.dim() and tensor.size(0) else tensor
    if layout == "offset":  # one element past an allocation's alignment
        room = tensor.new_empty(tensor.numel() + 1)
        return room[1:].view_as(tensor).copy_(tensor)
    if layout == "strided":
        room = tensor.new_empty(*tensor.shape[:-1], 2 * tensor.shape[-1])
        return room[..., ::2].copy_(tensor)
    return tensor


# For assert_accurate(): what states and gradients are sums of, activations, may be as large as 1.
ACTIVATIONS = 1.0


def assert_accurate(
    actual: Tensor,
    exact: Tensor,
    baseline: Tensor,
    ulps: float = 1,
    *,
    parts: Tensor | float = 0,
    sums: bool = False,
) -> None:
    """Check each element of `actual` by its own size, against the float64 result `exact`.

    Allowed are `ulps` roundings, or twice the error that the element has in `baseline`, the same
    maths in PyTorch in the same dtype. NaN and infinities must be where the exact result has them.
    An element may be small because its parts cancel. Then `parts`, the sum of their sizes, adds
    roundings of the arithmetic, which is float for 16-bit types. Where nobody knows it, an element
    of `sums` counts as no smaller than the usual one, and may also have twice the baseline's worst
    error.
    """
    assert actual.dtype == baseline.dtype
    assert actual.shape == exact.shape
    rounded = exact.to(actual.dtype).double()  # overflows where the dtype does
    finite = rounded.isfinite()
    torch.testing.assert_close(
        actual.double()[~finite], rounded[~finite], rtol=0, atol=0, equal_nan=True
    )
    if not finite.any():
        return
    size = exact[finite].abs()
    if sums:
        size = size.clamp(min=size.square().mean().sqrt().item())
    eps = torch.finfo(actual.dtype).eps
    limit = ulps * eps * size
    arithmetic = torch.promote_types(actual.dtype, torch.float)
    limit += (
        ulps
        * torch.finfo(arithmetic).eps
        * torch.as_tensor(parts).to(exact).expand_as(exact)[finite]
    )
    if actual.dtype == torch.double:  # the exact result is rounded at each step, too
        limit = 1e-12 * (size + 1) if sums else 8 * limit
    plain_error = (baseline.double() - exact)[finite].abs().nan_to_num(0, 0, 0)
    limit = limit + 2 * plain_error.max() if sums else torch.maximum(limit, 2 * plain_error)
    # Numbers below the smallest normal one keep fewer bits, or exp makes zeros of them.
    limit += 2**-24 if actual.dtype == torch.half else torch.finfo(actual.dtype).tiny
    excess = (actual.double() - exact)[finite].abs() - limit
    worst = excess.argmax()
    assert excess[worst] <= 0, (
        f"expected {exact[finite][worst]:.9g}, but got {actual[finite][worst]:.9g}: allowed is an "
        f"error of {limit[worst]:.3g}, which is exceeded by {excess[worst]:.3g}, "
        f"and by {(excess > 0).sum()} of {len(excess)} elements"
    )


def bounds(choice: Callable[[int], Any], sizes: Sequence[int]) -> list[int]:
    """The sizes at which a choice is another one than at the size before."""
    made = [choice(size) for size in sizes]
    return [
        size for size, now, before in zip(sizes[1:], made[1:], made, strict=False) if now != before
    ]


def subsets(count: int) -> list[tuple[bool, ...]]:
    """Every choice of some of `count` inputs."""
    return [choice for choice in itertools.product([True, False], repeat=count) if any(choice)]


class NoGradient(torch.autograd.Function):
    """The identity, whose backward gives no gradient: what lies before it gets an undefined one."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> None:
        return None


def bits(tensors: Sequence[Tensor]) -> list[bytes]:
    """The exact contents of tensors."""
    return [t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for t in tensors]


def assert_threads_change_no_bit(results: Callable[[], Sequence[Tensor]]) -> None:
    """Check it of a function of the CPU, with fewer and more threads than there are processors."""
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            seen.append(bits(results()))
    finally:
        torch.set_num_threads(before)
    assert seen[0] == seen[1] == seen[2]


def warm_up(function: Callable[[], Any]) -> None:
    """Call it on a stream of its own, as torch asks for before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)


def captured_in_graph(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The results of `function` after it was captured in a CUDA graph and replayed."""
    warm_up(function)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    for result in results:
        result.detach().fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return results


def assert_trains_in_graph(layer: torch.nn.Module, loss_of: Callable[[Any], Tensor]) -> None:
    """Check that forward, loss, backward and optimizer in one graph do what they do eagerly.

    `loss_of` gets the layer, or a copy of it.
    """
    eager = copy.deepcopy(layer)

    def step(module, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(module)
        loss.backward()
        optimizer.step()
        return loss

    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (layer, eager)]
    warm_up(lambda: [step(layer, optimizers[0]) for _ in range(3)])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(layer, optimizers[0])  # recorded, not run
    losses = []
    for _ in range(4):
        graph.replay()
        losses.append(loss.item())
    expected = [step(eager, optimizers[1]).item() for _ in range(7)]
    assert losses == expected[3:]
    assert losses[-1] < losses[0]
    assert bits(list(layer.parameters())) == bits(list(eager.parameters()))


def on_side_stream(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """The results of `function` on a stream on which the first input comes late.

    A kernel on another stream would read zeros.
    """
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = [tensor.clone() for tensor in inputs]
        late[0].zero_()
        torch.cuda._sleep(20_000_000)
        late[0].copy_(inputs[0])
        results = function(*late)
    stream.synchronize()
    return results


def differentiated_twice(loss: Callable[[Tensor], Tensor]) -> list[Callable[[Tensor], Tensor]]:
    """Levels of torch.func inside each other, each a function of what the loss is a function of."""
    return [
        hessian(loss),
        jacrev(jacrev(loss)),
        jacfwd(jacfwd(loss)),
        grad(lambda tensor: grad(loss)(tensor).square().sum()),
    ]


def loaded_package(program: torch.export.ExportedProgram, path: Path) -> Callable[..., Any]:
    """An exported program that was compiled ahead of time, and loaded."""
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(path),
            # Only for a quick test: half of the time went into these.
            inductor_configs={
                "aot_inductor.compile_wrapper_opt_level": "O0",
                "aot_inductor.precompile_headers": False,
            },
        )
        return torch._inductor.aoti_load_package(package)


def run_program(program: str, *words: object, **options) -> subprocess.CompletedProcess[str]:
    """What a Python program printed in a process of its own, in which it succeeded."""
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def refusal(error: type[Exception], function: Callable, *args, **named) -> str:
    """What the error of this type says that a call raises."""
    with pytest.raises(error) as raised:
        function(*args, **named)
    return str(raised.value)


def as_tuple(results: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def results_and_gradients(function: Callable, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Copies of the results, since a compiled function may use its memory again, and gradients."""
    results = [t * 1 for t in as_tuple(function(*inputs))]
    return [*results, *torch.autograd.grad(results, inputs, [r.detach().cos() for r in results])]
