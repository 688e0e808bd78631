"""What the tests of every operator share: devices, layouts and the accuracy rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

DTYPES = [torch.half, torch.bfloat16, torch.float, torch.double]
LAYOUTS = ["contiguous", "transposed", "expanded", "offset", "strided"]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


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


def assert_accurate(actual: Tensor, exact: Tensor, baseline: Tensor, ulps: int = 1) -> None:
    """Check `actual` against the float64 result `exact`.

    Allowed is twice the error of `baseline`, the same maths in PyTorch in the same dtype, plus
    `ulps` roundings. NaN and infinities must be where the exact result has them.
    """
    assert actual.dtype == baseline.dtype
    assert actual.shape == exact.shape
    if actual.dtype == torch.double:  # the baseline is the exact result itself
        torch.testing.assert_close(actual, exact, rtol=1e-12, atol=1e-12, equal_nan=True)
        return
    rounded = exact.to(actual.dtype).double()  # overflows where the dtype does
    finite = rounded.isfinite()
    torch.testing.assert_close(
        actual.double()[~finite], rounded[~finite], rtol=0, atol=0, equal_nan=True
    )
    if not finite.any():
        return
    error = (actual.double() - exact)[finite].abs()
    baseline_error = (baseline.double() - exact)[finite].abs()
    baseline_error = baseline_error[baseline_error.isfinite()]
    scale = exact[finite].abs().clamp(min=1.0)
    worst = baseline_error.max() if baseline_error.numel() else 0.0
    limit = 2 * worst + ulps * torch.finfo(actual.dtype).eps * scale
    assert (error <= limit).all(), f"error {error.max():.3g}, allowed {limit.min():.3g}"


def subsets(count: int) -> list[tuple[bool, ...]]:
    """Every choice of some of `count` inputs."""
    return [choice for choice in itertools.product([True, False], repeat=count) if any(choice)]


def bits(tensors: Sequence[Tensor]) -> list[bytes]:
    """The exact contents of tensors."""
    return [t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for t in tensors]


def captured_in_graph(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The results of `function` after it was captured in a CUDA graph and replayed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    for result in results:
        result.detach().fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return results
