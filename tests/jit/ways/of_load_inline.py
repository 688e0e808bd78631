"""Ways of using ``load_inline``."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from . import LOADED, MODULE, OF_HEADER, OF_PART, PART_CUDA, error_of, file, mark, way

SIN_ADD = "at::Tensor sin_add(at::Tensor x, at::Tensor y) { return x.sin() + y.sin(); }\n"
REFUSE = 'void refuse() { TORCH_CHECK_INDEX(false, "out of range"); }\n'
WARN = 'void warn() { TORCH_WARN("careful"); }\n'
TWICE = """#include <torch/library.h>
at::Tensor twice(at::Tensor x) { return x * 2; }
TORCH_LIBRARY(ways, m) { m.def("twice", &twice); }
"""


@way("load_inline: without headers, with a module of its own", 1, tested=True)
def _(side):
    return side.load_inline("plain", MODULE, no_implicit_headers=True).value()


@way("load_inline: several strings", 2)
def _(side):
    texts = ["int part() { return 2; }", OF_PART]
    return side.load_inline("texts", texts, no_implicit_headers=True).value()


@way("load_inline: flags, include paths and a build directory", (9, True), quick=True)
def _(side):
    file("include/value.h", "#define VALUE 4 + PLUS\n")
    Path("here").mkdir(exist_ok=True)
    module = side.load_inline(
        name="flagged",
        cpp_sources=[OF_HEADER],
        extra_cflags=["-DPLUS=5"],
        extra_ldflags=["-lm"],
        extra_include_paths=["include"],
        build_directory=os.path.abspath("here"),
        keep_intermediates=False,
        no_implicit_headers=True,
    )
    return module.value(), Path("here/flagged.so").exists()


@way("load_inline: an edited string", [1, 2, 1], tested=True)
def _(side):
    texts = [f"#define VALUE {value}\n{MODULE}" for value in (1, 2, 1)]
    return [side.load_inline("retold", text, no_implicit_headers=True).value() for text in texts]


@way("load_inline: is_python_module=False", "7", tested=True)
def _(side):
    side.load_inline("mark", LOADED, is_python_module=False, no_implicit_headers=True)
    return mark()


@way("load_inline: functions that are no names", ValueError)
def _(side):
    return type(error_of(side.load_inline, "invalid", "", functions=5))


@way("load_inline: functions by name", (0.0, "sin_add"), headers=True)
def _(side):
    function = side.load_inline("by_name", [SIN_ADD], functions=["sin_add"]).sin_add
    return function(side.zeros(1), side.zeros(1)).item(), function.__doc__.split("\n")[2]


@way("load_inline: functions with docstrings", "adds sines", headers=True)
def _(side):
    module = side.load_inline("documented", SIN_ADD, functions={"sin_add": "adds sines"})
    return module.sin_add.__doc__.split("\n")[2]


@way("load_inline: one function, and torch's errors as Python's", IndexError, headers=True)
def _(side):
    return type(error_of(side.load_inline("translated", REFUSE, functions="refuse").refuse))


@way("load_inline: with_pytorch_error_handling=False", 0, headers=True)
def _(side):
    arguments = {"functions": "warn", "with_pytorch_error_handling": False}
    module = side.load_inline("plainly", WARN, **arguments)
    with warnings.catch_warnings(record=True) as caught:
        module.warn()
    return len(caught)  # C++ writes it to stderr itself


@way("load_inline: operators for torch.ops", 2.0, headers=True)
def _(side):
    side.load_inline("operators", TWICE, is_python_module=False)
    return side.ops.ways.twice(side.zeros(1) + 1).item()


@way("load_inline: use_pch", 0.0, headers=True)
def _(side):
    module = side.load_inline("precompiled", [SIN_ADD], functions=["sin_add"], use_pch=True)
    return module.sin_add(side.zeros(1), side.zeros(1)).item()


@way("load_inline: CUDA", 2, cuda=True)
def _(side):
    return side.load_inline("texts_cuda", OF_PART, PART_CUDA, no_implicit_headers=True).value()


@way("load_inline: a header in build_directory", 3)
def _(side):
    file("here/value.h", "#define VALUE 3\n")
    arguments = {"build_directory": "here", "no_implicit_headers": True}
    return side.load_inline("of_header", OF_HEADER, **arguments).value()


EVERY_KIND = """
namespace ns { int three() { return 3; } }
int four() { return 4; }
auto five = []() { return 5; };
"""


@way("load_inline: functions of every kind", [3, 4, 5], headers=True)
def _(side):
    functions = {"ns::three": "three", "four": None, "five": "says 'five'"}
    module = side.load_inline("kinds", EVERY_KIND, functions=functions)
    return [getattr(module, name)() for name in functions]


@way("load_inline: functions of every kind without error handling", [3, 4, 5], headers=True)
def _(side):
    names = ["ns::three", "four", "five"]
    arguments = {"functions": names, "with_pytorch_error_handling": False}
    module = side.load_inline("kinds_plainly", EVERY_KIND, **arguments)
    return [getattr(module, name)() for name in names]


@way("load_inline: one name again and again", [123, 456, 456, 789], headers=True)
def _(side):
    texts = [f"int f() {{ return {value}; }}" for value in (123, 456, 456, 789)]
    return [side.load_inline("again", text, functions="f").f() for text in texts]


REGISTERED = """#include <torch/script.h>
torch::Tensor func(torch::Tensor x) { return x; }
static torch::RegisterOperators r("ways_registered::func", &func);
"""


@way("load_inline: a static registration, with functions and without a module", 1.0, headers=True)
def _(side):
    side.load_inline("registered", REGISTERED, functions="func", is_python_module=False)
    return side.ops.ways_registered.func(side.zeros(1) + 1).item()


DOUBLER = """
struct Doubler {
  Doubler(int64_t a, int64_t b) : tensor_(torch::ones({a, b})) {}
  torch::Tensor forward() { return tensor_ * 2; }
  torch::Tensor get() const { return tensor_; }
  torch::Tensor tensor_;
};
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Doubler>(m, "Doubler")
      .def(py::init<int, int>())
      .def("forward", &Doubler::forward)
      .def_property_readonly("tensor", &Doubler::get);
}
"""


@way("load_inline: a class", [8.0, 4.0], headers=True)
def _(side):
    doubler = side.load_inline("doubler", DOUBLER).Doubler(2, 2)
    return [doubler.forward().sum().item(), doubler.tensor.sum().item()]
