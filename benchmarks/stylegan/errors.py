"""Errors of the StyleGAN operators: how far results and gradients are from float64."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..shared.gpu_kernels import Recorder
from ..shared.table import Row, type_name
from .cases import Case

# The most that a result may be off, as a multiple of rounding alone: filtered_lrelu multiplies
# halves, and pairs of halves for a float. In double plain PyTorch is the exact result.
_LIMITS = {torch.half: 2.2, torch.bfloat16: 1.1, torch.float: 40.0, torch.double: 0.0}
_LIMIT_OF_DOUBLE = 1e-13


def find_errors(cases: Iterable[Case]) -> Iterator[list[Row]]:
    """The errors of every call, once for all its phases."""
    for case in {case.name: case for case in cases}.values():
        figures = errors(case)
        what = "norm of the difference from float64 over the norm"
        row = Row(f"{case.operator}: {type_name(case.dtype)}, {what}", case.name, "", "kernels")
        yield [replace(row, figures=figures, check=check(case.dtype, **figures))]


def check(
    dtype: torch.dtype,
    result: float,
    plain: float,
    rounding: float,
    gradient: float,
    plain_gradient: float,
) -> str:
    """Whether a result is within the limit of the type; the gradient may be as plain PyTorch's."""
    limit = max(_LIMITS[dtype] * rounding, _LIMIT_OF_DOUBLE)
    gradient_limit = max(limit, 2 * plain_gradient)
    found = {"result": (result, limit), "gradient": (gradient, gradient_limit)}
    wrong = [
        f"{name} {error:.1e}, limit {most:.1e}"
        for name, (error, most) in found.items()
        if not error <= most  # NaN is wrong, too
    ]
    return f"error: {'; '.join(wrong)}" if wrong else "match"


def errors(case: Case) -> dict[str, float]:
    """The errors of results and of x's gradient, also for plain PyTorch and for rounding alone."""
    calls = [Call(case, "ref", torch.double), Call(case, "cuda"), Call(case, "ref")]
    exact, kernels, plain = (call.result.detach() for call in calls)
    weight = weight_of(case, exact)
    with Recorder() as recorder:
        kernels_gradient = calls[1].gradient(weight)
    exact_gradient, plain_gradient = calls[0].gradient(weight), calls[2].gradient(weight)
    kernels_exact = exact_gradient
    if case.operator == "filtered_lrelu":
        # A sample next to 0 or to the clamp may be on the other side of it, where the derivative is
        # another number: the exact gradient is that of the signs that the kernels have written.
        linear, (grad, *others) = recorder.calls[-1]
        kernels_exact = linear(grad.double(), *others)[0]
    return {
        "result": distance(kernels, exact),
        "plain": distance(plain, exact),
        "rounding": distance(exact.to(case.dtype), exact),
        "gradient": distance(kernels_gradient, kernels_exact),
        "plain_gradient": distance(plain_gradient, exact_gradient),
    }


class Call:
    """The result of a case, from inputs of its dtype that are cast to another."""

    def __init__(self, case: Case, impl: str, dtype: torch.dtype | None = None) -> None:
        self.leaves = [t.to(dtype or case.dtype).requires_grad_() for t in case.inputs()]
        self.result = case.run(self.leaves, impl)

    def gradient(self, weight: Tensor) -> Tensor:
        """The gradient of x, from the weighted sum of the result."""
        weight = weight.to(self.result.dtype)
        return torch.autograd.grad(self.result, self.leaves[:1], weight)[0]


def weight_of(case: Case, exact: Tensor) -> Tensor:
    """Random numbers; 0 where rounding decides whether a result is clamped, and has a gradient."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(exact.shape, generator=generator).to(case.device, case.dtype)
    if case.clamp is None:
        return weight
    distances = (exact.abs() - case.clamp).abs()
    return weight.masked_fill(distances < 4 * torch.finfo(case.dtype).eps * case.clamp, 0)


def distance(value: Tensor, exact: Tensor) -> float:
    """Norm of the difference over the norm."""
    return ((value.double() - exact).norm() / exact.norm()).item()
