"""Operators of TORCH_LIBRARY blocks, and classes of pybind11, that newer builds take over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lltm_jit
from lltm_jit import jit
from lltm_jit.jit import torch_api

pytestmark = pytest.mark.slow

HEADERS = "#include <ATen/core/Tensor.h>\n#include <torch/library.h>\n"
TWICE = """
at::Tensor twice(const at::Tensor& x) { return x.mul(2); }
TORCH_LIBRARY(SPACE, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(SPACE, CPU, m) { m.impl("twice", &twice); }
"""


@pytest.fixture
def load(root, tmp_path):
    """Load a text as an extension that is no module."""

    def load(name: str, text: str, **named: object) -> str:
        source = tmp_path / f"{name}.cpp"
        source.write_text(HEADERS + text.replace("SPACE", name))
        given = {"is_python_module": False, "extra_cflags": ["-O0"], **named}
        return torch_api.load(name, source, **given)

    return load


def test_whoever_holds_an_operator_gets_the_new_kernel(load):
    load("held", TWICE)
    x = torch.ones(1)
    packet, overload = torch.ops.held.twice, torch.ops.held.twice.default
    torch.library.register_fake("held::twice")(torch.empty_like)
    compiled = torch.compile(lambda x: packet(x) + 1, backend="aot_eager", fullgraph=True)
    traced = torch.jit.trace(lambda x: packet(x), x)
    assert [f(x).item() for f in (packet, overload, compiled, traced)] == [2, 2, 3, 2]

    load("held", TWICE.replace("mul(2)", "mul(5)"))
    assert [f(x).item() for f in (packet, overload, compiled, traced)] == [5, 5, 6, 5]
    assert torch.ops.held.twice is packet
    assert [*torch.ops.held].count("twice") == 1
    load("held", TWICE)  # which this process has loaded
    assert [f(x).item() for f in (packet, overload, compiled, traced)] == [2, 2, 3, 2]

    more = TWICE.replace(
        'm.def("twice(', 'm.def("other(Tensor x, int n=3) -> Tensor"); m.def("twice('
    )
    load("held", more)
    assert torch.ops.held.other.default._schema.arguments[1].default_value == 3
    load("held", more.replace("n=3", "n=4"))
    assert torch.ops.held.other.default._schema.arguments[1].default_value == 4


WRONG = {
    "a schema that torch does not understand": ("twice(Tensor", "twice(Tensr"),
    "other arguments": ("const at::Tensor& x)", "const at::Tensor& x, int64_t n)"),
    "an operator twice": ("m.def(", 'm.def("twice(Tensor x) -> Tensor"); m.def('),
    "a typo": ("x.mul", "x.mull"),
}


def test_what_cannot_be_registered_leaves_the_old_build_in_force(load):
    load("kept", TWICE)
    x = torch.ones(1)
    for before, after in WRONG.values():
        with pytest.raises(jit.BuildError):
            load("kept", TWICE.replace(before, after))
        assert torch.ops.kept.twice(x).item() == 2
    load("kept", TWICE.replace("mul(2)", "mul(3)"))
    assert torch.ops.kept.twice(x).item() == 3


def test_what_cannot_be_registered_at_first_is_an_error(load):
    """Where torch would abort the process; after a cure it loads."""
    with pytest.raises(jit.BuildError, match=r"(?s)unknown type specifier.*choose another namesp"):
        load("first", TWICE.replace("twice(Tensor", "twice(Tensr"))
    load("first", TWICE)
    with pytest.raises(jit.BuildError, match="Only a single TORCH_LIBRARY"):
        load("second", TWICE.replace("SPACE", "first"))
    assert torch.ops.first.twice(torch.ones(1)).item() == 2
    with pytest.raises(jit.BuildError, match="PyInit_module"):
        load("module", TWICE, is_python_module=True)
    load("module", TWICE)
    assert torch.ops.module.twice(torch.ones(1)).item() == 2


BY_OTHER_MEANS = """
import sys
import torch
_, library, name = sys.argv
torch.ops.load_library(library)
print(getattr(torch.ops, name).twice(torch.ones(1)).item())
"""


def test_an_error_ends_a_process_that_loads_a_library_by_other_means(load, monkeypatch):
    """As torch has it, since nobody there asks for the error; `load` does."""
    library = load("other", TWICE)
    wrong = TWICE.replace("twice(Tensor", "twice(Tensr")
    with pytest.raises(jit.BuildError, match="unknown type specifier") as refused:
        load("wrong", wrong)
    wrong_library = str(refused.value).splitlines()[-1].removeprefix("   = ")
    assert "_LLTM_JIT_LOADS_IN" not in os.environ
    # It may have been started while this one was loading.
    monkeypatch.setenv("_LLTM_JIT_LOADS_IN", str(os.getpid()))
    for path, name, told in ((library, "other", "2.0"), (wrong_library, "wrong", "")):
        words = [sys.executable, "-c", BY_OTHER_MEANS, path, name]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.stdout.strip() == told
        assert done.returncode == (0 if told else -signal.SIGABRT)
        assert ("unknown type specifier" in done.stderr) == (not told)


FRAGMENT = """
TORCH_LIBRARY_FRAGMENT(shared, m) {
  m.def("SPACE(Tensor x) -> Tensor", [](const at::Tensor& x) { return x.add(1); });
}
"""


def test_extensions_that_share_a_namespace_keep_their_own(load):
    load("one", FRAGMENT)
    load("two", FRAGMENT)
    load("two", FRAGMENT.replace("add(1)", "add(2)"))
    x = torch.zeros(1)
    assert [torch.ops.shared.one(x).item(), torch.ops.shared.two(x).item()] == [1, 2]
    gone = torch.ops.shared.two
    load("two", FRAGMENT.replace("SPACE(", "three("))  # and no "two" any more
    assert [torch.ops.shared.one(x).item(), torch.ops.shared.three(x).item()] == [1, 1]
    with pytest.raises(NotImplementedError):
        gone(x)
    with pytest.raises(jit.BuildError):
        load("two", FRAGMENT.replace("Tensor x", "Tensr x"))
    torch.export.default_decompositions().items()  # for which torch looks at all operators
    load("two", FRAGMENT)
    assert gone(x).item() == 1


def test_sources_of_one_name_add_to_a_namespace(load, tmp_path):
    """As two cells of a notebook do; what they define again, they replace."""
    texts = [FRAGMENT.replace("SPACE(", f"{name}(").replace("shared", "cells") for name in "ab"]
    for text in texts:
        torch_api.load_inline("cells", HEADERS + text, is_python_module=False)
    x = torch.zeros(1)
    assert [torch.ops.cells.a(x).item(), torch.ops.cells.b(x).item()] == [1, 1]
    edited = texts[1].replace("add(1)", "add(5)")
    torch_api.load_inline("cells", HEADERS + edited, is_python_module=False)
    assert torch.ops.cells.b(x).item() == 5
    for value in (2, 3, 2):  # a kernel alone, for which torch has a stack
        kernel = f'm.impl("b", [](const at::Tensor& x) {{ return x.add({value}); }});'
        load("kernels", f"TORCH_LIBRARY_IMPL(cells, CPU, m) {{ {kernel} }}")
        assert torch.ops.cells.b(x).item() == value


def test_stable_blocks(load):
    """Those of torch's stable interface, for which torch tells errors in another way."""
    text = (
        "#include <torch/csrc/stable/library.h>\n"
        'STABLE_TORCH_LIBRARY(SPACE, m) { m.def("one(Tensor x, int n=1) -> Tensor"); }\n'
    )
    for name in ("stable", "stable"):
        load(name, text)
        text = text.replace("n=1", "n=2")
    assert torch.ops.stable.one.default._schema.arguments[1].default_value == 2
    with pytest.raises(jit.BuildError, match="there already is a library stable"):
        load("other_stable", text.replace("SPACE", "stable"))


COUNTER = """
#include <pybind11/pybind11.h>
struct Counter { int n = 0; int add(int k) { return n += k; } };
enum class Kind { First, Second };
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  pybind11::class_<Counter>(m, "Counter").def(pybind11::init<>()).def("add", &Counter::add);
  pybind11::enum_<Kind>(m, "Kind").value("First", Kind::First).value("Second", Kind::Second);
  m.def("bump", [](Counter& c) { return c.add(1); });
}
"""


def test_classes_of_pybind11(load, tmp_path):
    """An old object has its old class, also where a new function is to take it."""
    module = load("counters", COUNTER, is_python_module=True)
    old = module.Counter()
    assert [module.bump(old), module.Kind.Second.name] == [1, "Second"]
    source = tmp_path / "counters.cpp"
    source.write_text(
        source.read_text().replace("n += k", "n += 10 * k").replace("int n", "double m = 0; int n")
    )
    lltm_jit.reload(module)
    assert module.bump(module.Counter()) == 10
    assert old.add(1) == 2
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.bump(old)
    other = load("others", COUNTER, is_python_module=True)
    assert other.bump(other.Counter()) == 1
    assert Path(module.__file__) != Path(other.__file__)
