"""How builds put their operators behind the schemas; test_reload.py has builds that take turns."""

import importlib.util
import shutil
from types import ModuleType

import pytest
import torch
from op_testing import results_and_gradients, run_program

from lltm_jit import my_op, native


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
