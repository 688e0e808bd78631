"""Ways of using ``load`` and ``load_inline`` that torch documents, each with what must come of it.

A way is a function of a side, which has the two functions of torch or ours. It runs in an empty
directory, which is the current one. Those that no other test has are tested.

    python tests/jit/ways.py [PART OF A NAME]

prints results and seconds, ours beside torch's. Every way runs twice a side, each time in a process
of its own, on a cache of its own that is empty the first time. The sides take turns. What they
import is imported before the clock starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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


def inlines(
    name: str, expected: Any, text: Any, use: Callable[[Any, Any], Any], **given: Any
) -> None:
    """A way of ``load_inline`` with torch's headers: what the use of a side's module gives."""

    @way(f"load_inline: {name}", expected, "headers")
    def _(side):
        return use(side, side.load_inline("module", text, **given))


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


@way("load: extra_ldflags", 2)
def _(side):
    if not Path("libpart.a").exists():
        subprocess.run(["c++", "-fPIC", "-c", file("part.cpp", PART), "-o", "part.o"], check=True)
        subprocess.run(["ar", "rc", "libpart.a", "part.o"], check=True)
    flags = [f"-L{os.getcwd()}", "-lpart"]
    return side.load("ldflags", file("main.cpp", OF_PART), extra_ldflags=flags).value()


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


@way("load: is_standalone=True", 15, "quick")
def _(side):
    source = file("main.cpp", "int main() { return 15; }")
    program = side.load("program", source, is_python_module=False, is_standalone=True)
    return subprocess.run([program]).returncode


@way("load: a module and a program", ValueError)
def _(side):
    return type(error_of(side.load, "both", file("one.cpp"), is_standalone=True))


@way("load: a source that does not compile", True)
def _(side):
    error = error_of(side.load, "wrong", file("wrong.cpp", "int x = nonsense;"))
    return isinstance(error, RuntimeError) and "Error building extension 'wrong'" in str(error)


@way("load: a source that is not there", True)
def _(side):
    error = error_of(side.load, "missing", "nothing.cpp")
    return isinstance(error, FileNotFoundError) and "nothing.cpp" in str(error)


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


@way("load: names in Unicode", 7, "quick")
def _(side):
    file("größe 漢字/värde.h", *HEADER.values())
    return side.load("u", file("größe 漢字/ünï.cpp", f'#include "värde.h"\n{MODULE}')).value()


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


@way("load_inline: functions that are no names", ValueError)
def _(side):
    return type(error_of(side.load_inline, "invalid", "", functions=5))


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


def sin_add(side, module) -> tuple[float, str]:
    zero = side.zeros(1)
    return module.sin_add(zero, zero).item(), module.sin_add.__doc__.split("\n")[2]


def warned(_, module) -> int:
    with warnings.catch_warnings(record=True) as caught:
        module.warn()
    return len(caught)  # C++ writes it to stderr itself


def doubled(_, module) -> list[float]:
    doubler = module.Doubler(2, 2)
    return [doubler.forward().sum().item(), doubler.tensor.sum().item()]


def called(_, module) -> list[int]:
    return [getattr(module, name)() for name in KINDS]


inlines("functions by name", (0.0, "sin_add"), [SIN_ADD], sin_add, functions=["sin_add"])
inlines("docstrings", (0.0, "adds sines"), SIN_ADD, sin_add, functions={"sin_add": "adds sines"})
inlines("use_pch", (0.0, "sin_add"), [SIN_ADD], sin_add, functions=["sin_add"], use_pch=True)
inlines(
    "one function, and torch's errors as Python's",
    IndexError,
    REFUSE,
    lambda _, module: type(error_of(module.refuse)),
    functions="refuse",
)
PLAINLY = {"with_pytorch_error_handling": False}
inlines("with_pytorch_error_handling=False", 0, WARN, warned, functions="warn", **PLAINLY)
inlines(
    "operators for torch.ops",
    2.0,
    TWICE,
    lambda side, _: side.ops.ways.twice(side.zeros(1) + 1).item(),
    is_python_module=False,
)
inlines(
    "a static registration, with functions and without a module",
    1.0,
    REGISTERED,
    lambda side, _: side.ops.ways_registered.func(side.zeros(1) + 1).item(),
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


def run(way: Way, side: Any, folder: Path) -> dict[str, Any]:
    """One way in a process of its own: whether it went well, the seconds and the result."""
    work, answer = folder / "work", folder / "answer.json"
    work.mkdir(parents=True, exist_ok=True)
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.chdir(work)
        with (folder / "said.txt").open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "cache")
        answer.write_text(json.dumps(result_of(way, side)))
        os._exit(0)
    os.waitpid(child, 0)
    if not answer.exists():
        return {"good": False, "seconds": float("nan"), "result": "an end without a word"}
    return json.loads(answer.read_text())


def result_of(way: Way, side: Any) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        result = way.function(side)
    except Exception as error:  # noqa: BLE001  # it is a result, and stands in the table
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    seconds = time.perf_counter() - began
    return {"good": result == way.expected, "seconds": seconds, "result": repr(result)}


def main(part: str) -> int:
    os.environ["LLTM_JIT_AT_IMPORT"] = "0"
    import torch
    from torch.utils import cpp_extension

    from lltm_jit.jit import torch_api
    from lltm_jit.jit.compile import builder  # noqa: F401  # what a build imports

    sides = {
        name: types.SimpleNamespace(
            load=api.load, load_inline=api.load_inline, zeros=torch.zeros, ops=torch.ops
        )
        for name, api in {"ours": torch_api, "torch": cpp_extension}.items()
    }
    cuda = torch.version.cuda is not None and cpp_extension.CUDA_HOME is not None
    chosen = [way for way in WAYS if part in way.name and (cuda or way.kind != "cuda")]
    print(f"{'':62} {'ours: first':>12} {'again':>8} {'torch: first':>13} {'again':>8}  ratio")
    good, total = dict.fromkeys(sides, 0), dict.fromkeys(sides, 0.0)
    with tempfile.TemporaryDirectory(prefix="lltm_jit-ways-") as place:
        os.chmod(place, 0o700)
        for number, way in enumerate(chosen):
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
            for _ in range(2):
                for side, results in found.items():
                    results.append(run(way, sides[side], Path(place) / f"{number}-{side}"))
            for side, results in found.items():
                good[side] += all(each["good"] for each in results)
                total[side] += results[0]["seconds"]
            (a, b), (c, d) = ([each["seconds"] for each in results] for results in found.values())
            times = f"{a:10.2f} s {b:6.2f} s {c:11.2f} s {d:6.2f} s"
            print(f"{way.name:62} {times}  {a / c:5.2f}", flush=True)
            for side, results in found.items():
                for each in results:
                    if not each["good"]:
                        print(f"    {side}: expected {way.expected!r}, got {each['result']}")
    cpp_extension.remove_extension_h_precompiler_headers()
    if not cuda:
        print("without the ways with CUDA: there is none here")
    for side in sides:
        seconds = f"{total[side]:.0f} s for the first"
        print(f"{side}: {good[side]} of {len(chosen)} as expected, {seconds}")
    return 0 if good["ours"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
