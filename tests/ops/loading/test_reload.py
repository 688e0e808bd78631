"""Kernels are swapped while others use them: no step fails, and no gradient is lost.

RELOAD_SECONDS in the environment is how long to try.
"""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import lltm_jit
from lltm_jit import native
from lltm_jit.jit import Build
from lltm_jit.jit.loading.build import import_library

SECONDS = float(os.environ.get("RELOAD_SECONDS", "1"))


@pytest.fixture
def two_builds(tmp_path):
    """Each family's build, and a second library of the same kernels."""
    pairs = []
    for family in native.OWN:
        build = native.load(family)
        library = shutil.copy(build.info.library, tmp_path / build.info.library.name)
        record = build.record._replace(key=f"copy_{family}", folder=Path(library).parent)
        module = import_library(build.request, record)
        pairs.append((build, Build(module, record, build.request, build.info)))
    yield pairs
    for build, _ in pairs:
        native.use(build)


def test_training_beside_reloads(two_builds, device):
    cell = lltm_jit.LLTMCell(8, 16, device=device)
    x = torch.randn(4, 8, device=device)
    state = torch.randn(4, 16, device=device), torch.randn(4, 16, device=device)

    def gradients() -> tuple[torch.Tensor, ...]:
        h, c = cell(x, state)
        result = lltm_jit.sigmoid(h) + lltm_jit.my_op(h, c)
        return torch.autograd.grad(result.sum(), list(cell.parameters()))

    expected, swaps, stop = gradients(), 0, threading.Event()

    def train() -> int:
        steps = 0
        while not stop.is_set():
            torch.testing.assert_close(gradients(), expected, rtol=0, atol=0)
            steps += 1
        return steps

    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(2) as pool:
        training = [pool.submit(train) for _ in range(2)]
        try:
            while time.monotonic() < until and not any(each.done() for each in training):
                for pair in two_builds:
                    native.use(pair[swaps % 2])
                swaps += 1
        finally:
            stop.set()
        steps = [each.result() for each in training]
    print(f"{steps} steps beside {swaps} reloads of {len(two_builds)} families")
    assert min(steps) > 0
    assert swaps > 10
