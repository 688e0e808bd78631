"""Records the operators that a program calls, and compiles their kernels beforehand."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Keeps the calls of the package's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func.namespace == "lltm_jit":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def compile_variants(steps: Iterable[Callable[[], Any]]) -> None:
    """Compile the kernels that steps need on the GPU in parallel.

    Otherwise the first call that needs a kernel would compile it, and backward passes would compile
    theirs one after another, in autograd's thread. So the operators are called here as the steps
    call them. The steps must have tensors on the meta device.
    """
    recorder = Recorder()
    for step in steps:
        with recorder:
            step()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda call: _call_on_gpu(*call), recorder.calls))


def _call_on_gpu(function: Any, args: tuple) -> None:
    here = [
        torch.zeros_like(value, device="cuda") if isinstance(value, Tensor) else value
        for value in args
    ]
    with torch.no_grad():
        function(*here)
