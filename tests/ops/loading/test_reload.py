"""Builds take turns behind the schemas of operators: no step fails, and no gradient is lost.

RELOAD_SECONDS in the environment is how long to try.
"""

import importlib.util
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import torch
from op_testing import results_and_gradients, run_program

import lltm_jit
from lltm_jit import my_op, native
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


@pytest.fixture
def other(tmp_path) -> ModuleType:
    """The family once more, from a copy of its library, as after a reload."""
    library = shutil.copy(native.basic.__file__, tmp_path)
    spec = importlib.util.spec_from_file_location("other.basic", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module is not native.basic
    yield module
    native.basic.register_ops()
    module.release_ops()


def test_release_of_the_older_build_leaves_the_newer(other):
    x, y = torch.randn(2, 5, requires_grad=True).unbind()
    expected = results_and_gradients(my_op, (x, y))
    other.register_ops()
    native.basic.release_ops()
    for function in (my_op, torch.ops.lltm_jit.my_op, other.my_op):
        torch.testing.assert_close(results_and_gradients(function, (x, y)), expected)
    other.release_ops()
    with pytest.raises(RuntimeError, match=r"lltm_jit::my_op"):
        my_op(x.detach(), y.detach())


# In a process each, for torch warns once.
OVERRIDES = """
import os, sys, torch, lltm_jit
from lltm_jit import native
native.basic.register_ops()
for overridden in ("lltm_jit", "aten"):
    print("next", file=sys.stderr, flush=True)
    if os.fork() == 0:
        library = torch.library.Library(overridden, "IMPL")
        library.impl("sigmoid", torch.sigmoid, "CPU")
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_only_the_override_of_somebody_else_is_warned_of():
    """As torch warns of an override of its own, which not each of its builds does."""
    ours, *theirs = run_program(OVERRIDES).stderr.split("next\n")
    assert "Overriding" not in ours
    warned = ["Overriding a previously registered kernel" in said for said in theirs]
    assert warned[0] == warned[1]
