"""How builds put their operators behind the schemas, and take turns."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
from types import ModuleType

import pytest
import torch

from lltm_jit import my_op, native, sigmoid


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


def result_and_gradient(function, *inputs) -> list[torch.Tensor]:
    result = function(*inputs)
    return [result, *torch.autograd.grad(result.sum(), inputs)]


def test_builds_take_turns_under_running_calls(other):
    x = torch.randn(5, requires_grad=True)
    expected = result_and_gradient(sigmoid, x)
    done, right, wrong = threading.Event(), [], []

    def call() -> None:
        while not done.is_set():
            try:
                actual = result_and_gradient(sigmoid, x)
                right.append(all(map(torch.equal, actual, expected)))
            except RuntimeError as error:
                wrong.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for new, old in [(other, native.basic), (native.basic, other)] * 500:
        new.register_ops()
        old.release_ops()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert right
    assert all(right)


def test_release_of_the_older_build_leaves_the_newer(other):
    x, y = torch.randn(2, 5, requires_grad=True).unbind()
    expected = result_and_gradient(my_op, x, y)
    other.register_ops()
    native.basic.release_ops()
    for function in (my_op, torch.ops.lltm_jit.my_op, other.my_op):
        torch.testing.assert_close(result_and_gradient(function, x, y), expected)
    other.release_ops()
    with pytest.raises(RuntimeError, match=r"lltm_jit::my_op"):
        my_op(x.detach(), y.detach())


# In a process each, for torch warns once.
OVERRIDES = """
import os, torch, lltm_jit
from lltm_jit import native
native.basic.register_ops()
for overridden in ("lltm_jit", "aten"):
    print("next", flush=True)
    if os.fork() == 0:
        library = torch.library.Library(overridden, "IMPL")
        library.impl("sigmoid", torch.sigmoid, "CPU")
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_only_the_override_of_somebody_else_is_warned_of():
    """As torch warns of an override of its own, which not each of its builds does."""
    command = [sys.executable, "-c", OVERRIDES]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    run = subprocess.run(command, **options)
    assert run.returncode == 0, run.stdout
    ours, *theirs = run.stdout.split("next\n")
    assert "Overriding" not in ours
    warned = ["Overriding a previously registered kernel" in said for said in theirs]
    assert warned[0] == warned[1]
