"""The real compiler and the real torch: what a second library in one process must not share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_files import MODULE

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.ipython import functions_of
from lltm_jit.jit.loading import reload

# The tens and ones of its value count calls, by statics that gcc would make one in a process.
STATICS = f"""
#include "common.h"
template <typename T> struct Counter {{ static int value; }};
template <typename T> int Counter<T>::value = 0;
inline int& shared() {{ static int value = 0; return value; }}
#define VALUE 100 * VERSION + 10 * ++Counter<int>::value + ++shared()
{MODULE}"""


@pytest.fixture
def root(root, tmp_path):
    """The folder beside an empty cache."""
    return tmp_path


def test_statics_are_not_shared_and_back_again_works(root):
    (root / "common.h").write_text("#define VERSION 1\n")
    (root / "statics.cpp").write_text(STATICS)
    first = torch_api.load("statics", str(root / "statics.cpp"))
    assert [first.value() for _ in range(2)] == [111, 122]
    (root / "common.h").write_text("#define VERSION 2\n")
    value = first.value
    assert reload.reload_module(first).changed == ("common.h changed",)
    assert (first.value(), value()) == (211, 133)
    (root / "common.h").write_text("#define VERSION 1\n")
    reload.reload_module(first)
    assert first.value() == 144


def test_a_sanitized_library_is_built_where_it_could_not_be_loaded(root, monkeypatch):
    """Its runtime must come first in a process, which that of the build does not do."""
    monkeypatch.setenv("LLTM_JIT_SANITIZE", "address")
    (root / "small.cpp").write_text(MODULE)
    info = jit.loading.engine.build(jit.Spec("small", (str(root / "small.cpp"),)))
    assert b"__asan_init" in info.library.read_bytes()


KERNEL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from lltm_jit.jit import ipython
shell = InteractiveShell.instance()
ipython.register(shell, lambda: None)
shell.run_cell_magic("cpp", "cell -O0 -v", sys.argv[1])
shell.run_cell("import torch; print(cell.twice(torch.ones(1)).item())")
"""


@pytest.mark.slow
def test_a_cell_in_a_kernel_that_is_restarted(root):
    def run() -> list[str]:
        words = [sys.executable, "-c", KERNEL, "at::Tensor twice(at::Tensor x) { return x * 2; }"]
        env = {**os.environ, "LLTM_JIT_AT_IMPORT": "0", "IPYTHONDIR": str(root)}
        how = {"env": env, "capture_output": True, "text": True}
        done = subprocess.run(words, cwd=root, check=True, **how)
        return [*done.stderr.splitlines(), *done.stdout.splitlines()]

    for told in ("main.o gets narrow headers", "no work to do"):
        said = run()
        assert said[-1] == "2.0"
        assert [line for line in said if told in line]


@pytest.mark.slow
def test_functions_of_a_cell_are_bound(root):
    cell = """
#define AT_PER_OPERATOR_HEADERS  // none of torch/extension.h, which would take most of a minute
#include <ATen/TensorOperators.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <optional>
#include <vector>

at::Tensor twice(at::Tensor x, double by = 2.0) { return x * by; }
namespace mine {
int three(std::vector<int> of, const char*, std::optional<int> more) {
  return 1 + of.back() + more.value_or(0);
}
}  // namespace mine
at::Tensor same(const at::Tensor& x) { return x; }
template <typename T> at::Tensor of_type(at::Tensor x) { return x; }
"""
    functions, _ = functions_of(cell)
    module = torch_api.load_inline(
        "cell", cell, functions=list(functions), extra_cflags=["-O0"], no_implicit_headers=True
    )
    x = torch.ones(2)
    assert module.twice(x, 3.0).tolist() == [3, 3]
    assert module.same(x) is x
    assert module.three([1, 2], "", None) == 3
    assert module.three([1, 2], "", 4) == 7
    assert not hasattr(module, "of_type")


FORK = """
import os
import lltm_jit
import torch

assert not torch.cuda.is_initialized()
child = os.fork()
if child == 0:
    x = torch.ones(3, device="cuda")
    os._exit(0 if lltm_jit.my_op(x, x).tolist() == [2, 2, 2] else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_can_be_used_in_a_child_forked_after_the_import():
    subprocess.run([sys.executable, "-c", FORK], check=True, cwd=Path(__file__).parents[3])
