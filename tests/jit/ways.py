"""Ways of using ``load`` and ``load_inline`` that torch documents, each with what must come of it.

A way is a function of a side: a module with the two functions, torch's or ours. It runs in an empty
directory, which is the current one. test_torch_api.py has the test.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

# A Python module as small as can be, without torch's headers.
MODULE = """
#include <Python.h>
#ifndef VALUE
#define VALUE 1
#endif
#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
OF_PART = f"int part();\n#define VALUE part()\n{MODULE}"
OF_HEADER = f'#include "value.h"\n{MODULE}'
PART = "int part() { return 2; }"
PART_CUDA = "#include <cuda_runtime.h>\n#ifndef PART\n#define PART 2\n#endif\n" + PART.replace(
    "2", "PART"
)
INT_CUDA = f"#include <cuda_runtime.h>\n#define VALUE int(sizeof(int))\n{MODULE}"
MARK = '#include <cstdlib>\n__attribute__((constructor)) void mark() { setenv("MARK", "7", 1); }\n'


class Way(NamedTuple):
    name: str
    function: Callable[[Any], Any]
    expected: Any
    kind: str  # "headers" compiles torch's, for half a minute; "cuda"; "quick" is in the quick tier

    @property
    def quick(self) -> bool:
        return self.kind == "quick"


WAYS: list[Way] = []


def way(name: str, expected: Any, kind: str = "") -> Callable:
    def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        WAYS.append(Way(name, function, expected, kind))
        return function

    return register


def loads(
    name: str,
    expected: int,
    text: str = MODULE,
    files: Mapping[str, str] = types.MappingProxyType({}),
    kind: str = "",
    **given: Any,
) -> None:
    """A way of ``load``: a module's value, where headers and other sources are beside it."""

    @way(f"load: {name}", expected, kind)
    def _(side):
        sources = [file(path, text) for path, text in {"main.cpp": text, **files}.items()]
        sources = [source for source in sources if not source.endswith(".h")]
        return side.load("module", sources if len(sources) > 1 else sources[0], **given).value()


def inlines(name: str, expected: Any, text: Any, use: Callable[[Any], Any], **given: Any) -> None:
    """A way of ``load_inline`` with torch's headers: what the use of the module gives."""

    @way(f"load_inline: {name}", expected, "headers")
    def _(side):
        return use(side.load_inline("module", text, **given))


def file(name: str, text: str = MODULE) -> str:
    """Write a file, unless it is as wanted already: torch goes by times."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return name


def error_of(function: Callable, *arguments: Any, **named: Any) -> Exception:
    try:
        function(*arguments, **named)
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller compares it
        return error
    raise AssertionError("expected an error")


HEADER = {"include/value.h": "#define VALUE 7\n"}
loads("one source", 1)
loads("several sources", 2, OF_PART, {"more/part.cc": PART})
loads("extra_cflags", 4, extra_cflags=["-O1", "-DVALUE=4"])
loads("several flags in one string, and blanks", 5, extra_cflags=["-O1 -DVALUE=5\n"])
loads("extra_include_paths", 7, OF_HEADER, HEADER, extra_include_paths=["include"])
loads(
    "an include path with blanks in and around it",
    8,
    OF_HEADER,
    {"with blanks/value.h": "#define VALUE 8\n"},
    extra_include_paths=[" with blanks "],
)
loads("flags that are empty strings", 1, extra_cflags="", extra_cuda_cflags="", extra_ldflags="")
loads(
    "flags with line ends, as torch's own tests have them",
    7,
    OF_HEADER,
    HEADER,
    "quick",
    extra_cflags=["-g\n\n", "-O0 -Wall"],
    extra_include_paths=["    include\n"],
)
loads("C++ and CUDA", 2, OF_PART, {"part.cu": PART_CUDA}, "cuda")
loads(
    "extra_cuda_cflags", 3, OF_PART, {"part.cu": PART_CUDA}, "cuda", extra_cuda_cflags=["-DPART=3"]
)
loads("with_cuda=True", 4, INT_CUDA, kind="cuda", with_cuda=True)


@way("load: all arguments by position", 13, "quick")
def _(side):
    Path("here").mkdir(exist_ok=True)
    flags = (["-DVALUE=13"], None, None, ["-lm"], ["."])
    rest = ("here", False, False, False, True, False, True)
    return side.load("positional", [file("one.cpp")], *flags, *rest).value()


@way("load: is_python_module=False", b"7")
def _(side):
    side.load("library", file("mark.cpp", MARK), is_python_module=False)
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(b"MARK")


@way("load: a second build_directory, and the first is removed", [True], "quick")
def _(side):
    for place in ("first", "second"):
        Path(place).mkdir(exist_ok=True)
        side.load("twice", file("one.cpp"), build_directory=place)
    shutil.rmtree("first")
    return [path.exists() for path in Path("second").glob("twice*.so")]


@way("load: a source behind a link, and the header beside where it leads", 7, "quick")
def _(side):
    file("real/value.h", *HEADER.values())
    file("real/main.cpp", OF_HEADER)
    Path("links").mkdir(exist_ok=True)
    if not Path("links/main.cpp").exists():
        Path("links/main.cpp").symlink_to("../real/main.cpp")
    return side.load("linked", "links/main.cpp", extra_include_paths=["real"]).value()


@way("load: a folder that stays as it is", (1, ["one.cpp"]))
def _(side):
    module = side.load("untouched", file("sources/one.cpp"))
    return module.value(), os.listdir("sources")


@way("load_inline: several strings", 2)
def _(side):
    return side.load_inline("texts", [PART, OF_PART], no_implicit_headers=True).value()


@way("load_inline: flags, include paths and a build directory", (9, True), "quick")
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


@way("load_inline: a header in build_directory", 7)
def _(side):
    file("include/value.h", *HEADER.values())
    arguments = {"build_directory": "include", "no_implicit_headers": True}
    return side.load_inline("of_header", OF_HEADER, **arguments).value()


@way("load_inline: CUDA", 2, "cuda")
def _(side):
    return side.load_inline("texts_cuda", OF_PART, PART_CUDA, no_implicit_headers=True).value()


SIN_ADD = "at::Tensor sin_add(at::Tensor x, at::Tensor y) { return x.sin() + y.sin(); }\n"
REFUSE = 'void refuse() { TORCH_CHECK_INDEX(false, "out of range"); }\n'
WARN = 'void warn() { TORCH_WARN("careful"); }\n'
TWICE = """#include <torch/library.h>
at::Tensor twice(at::Tensor x) { return x * 2; }
TORCH_LIBRARY(ways, m) { m.def("twice", &twice); }
"""
REGISTERED = """#include <torch/script.h>
torch::Tensor func(torch::Tensor x) { return x; }
static torch::RegisterOperators r("ways_registered::func", &func);
"""
EVERY_KIND = """
namespace ns { int three() { return 3; } }
int four() { return 4; }
auto five = []() { return 5; };
"""
KINDS = {"ns::three": "three", "four": None, "five": "says 'five'"}
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


def sin_add(module) -> tuple[float, str]:
    zero = torch.zeros(1)
    return module.sin_add(zero, zero).item(), module.sin_add.__doc__.split("\n")[2]


def warned(module) -> int:
    with warnings.catch_warnings(record=True) as caught:
        module.warn()
    return len(caught)  # C++ writes it to stderr itself


def doubled(module) -> list[float]:
    doubler = module.Doubler(2, 2)
    return [doubler.forward().sum().item(), doubler.tensor.sum().item()]


def called(module) -> list[int]:
    return [getattr(module, name)() for name in KINDS]


inlines("functions by name", (0.0, "sin_add"), [SIN_ADD], sin_add, functions=["sin_add"])
inlines("docstrings", (0.0, "adds sines"), SIN_ADD, sin_add, functions={"sin_add": "adds sines"})
inlines("use_pch", (0.0, "sin_add"), [SIN_ADD], sin_add, functions=["sin_add"], use_pch=True)
inlines(
    "one function, and torch's errors as Python's",
    IndexError,
    REFUSE,
    lambda module: type(error_of(module.refuse)),
    functions="refuse",
)
PLAINLY = {"with_pytorch_error_handling": False}
inlines("with_pytorch_error_handling=False", 0, WARN, warned, functions="warn", **PLAINLY)
inlines(
    "operators for torch.ops",
    2.0,
    TWICE,
    lambda _: torch.ops.ways.twice(torch.zeros(1) + 1).item(),
    is_python_module=False,
)
inlines(
    "a static registration, with functions and without a module",
    1.0,
    REGISTERED,
    lambda _: torch.ops.ways_registered.func(torch.zeros(1) + 1).item(),
    functions="func",
    is_python_module=False,
)
inlines("functions of every kind", [3, 4, 5], EVERY_KIND, called, functions=KINDS)
inlines("the same, plainly", [3, 4, 5], EVERY_KIND, called, functions=[*KINDS], **PLAINLY)
inlines("a class", [8.0, 4.0], DOUBLER, doubled)


@way("load_inline: one name again and again", [123, 456, 456, 789], "headers")
def _(side):
    texts = [f"int f() {{ return {value}; }}" for value in (123, 456, 456, 789)]
    return [side.load_inline("again", text, functions="f").f() for text in texts]
