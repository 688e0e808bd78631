"""load and load_inline: torch's signature, what they make of it, what they refuse, their errors."""

import inspect
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from harness import text_of
from small_files import write
from torch.utils import cpp_extension

import lltm_jit
from lltm_jit import jit
from lltm_jit.jit import BuildError, BuildTimeout, CacheError, ToolchainError, torch_api
from lltm_jit.jit.loading import reload
from lltm_jit.jit.torch_api import load, load_inline
from lltm_jit.jit.user.errors import SourceMissing


@pytest.mark.parametrize("name", ["load", "load_inline"])
def test_signature_is_torchs(name):
    *ours, narrow, timeout = inspect.signature(getattr(torch_api, name)).parameters.values()
    torchs = inspect.signature(getattr(cpp_extension, name)).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in torchs]
    assert (narrow.name, timeout.name) == ("narrow", "timeout")
    assert {narrow.kind, timeout.kind} == {inspect.Parameter.KEYWORD_ONLY}


REFUSED = {  # from the arguments of load to the error
    "expected sources to be a path or a list of paths, but got 3": {"sources": 3},
    "expected sources to be a path or a list of paths, but got None": {"sources": None},
    "expected name to be a string, but got None": {"name": None},
    "SYCL is not supported here; use torch": {"with_sycl": True},
    r"end in \.cpp, \.cc, \.cxx, \.cu, but got .*x\.hip$": {"sources": "x.hip"},
    r"has no sources; give it files that end in \.cpp": {"sources": "hip"},
    r"no file and no directory .*/kernel$": {"sources": "kernel"},
    r"end in \.cpp, \.cc, \.cxx, \.cu, but got .*x.txt$": {"sources": ["one/one.cpp", "x.txt"]},
    r"\.cu, but got .*x.cu without CUDA$": {"sources": "x.cu", "with_cuda": False},
    r"_C needs CUDA, but torch .* has no CUDA; ins": {"sources": "x.cu"},
} | {
    f"expected extra_{name} to be a list, but got '-O2'": {f"extra_{name}": "-O2"}
    for name in ("cflags", "cuda_cflags", "ldflags", "include_paths")
}


@pytest.mark.parametrize("said", REFUSED)
def test_arguments_that_are_refused(bench, monkeypatch, said):
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.chdir(bench.write("x.cu", "x\n").parent)
    bench.write("hip/x.hip", "x\n")
    given = {"name": "_C", "sources": "one/one.cpp", **REFUSED[said]}
    with pytest.raises((TypeError, jit.LltmJitError, FileNotFoundError), match=said):
        load(**given)
    if "sources" not in REFUSED[said]:
        more = {"build_directory": bench.directory, "cpp_sources": "", "functions": []}
        del given["sources"]
        with pytest.raises((TypeError, jit.LltmJitError), match=said):
            load_inline(**given, **more)
    assert bench.counts == []


def test_a_directory_without_its_cuda_files(bench):
    bench.write("three.cu", "three\n")
    assert text_of(load("_C", bench.sources, with_cuda=False)) == "shared header\none\ntwo"


def test_build_directory_has_the_library_where_torch_puts_it(bench, tmp_path):
    write(tmp_path / "first" / "_C.so", "a library that torch built\n")
    source = bench.sources / "two/two.cpp"

    def placed(name):
        return text_of(str(tmp_path / name / "_C.so"))

    for place in ("first", "second"):  # one build, which the second call finds loaded
        module = load("_C", source, build_directory=tmp_path / place)
        assert placed(place) == "two"
        assert Path(module.__file__).is_relative_to(tmp_path / "first")
    assert bench.records == []
    torch_api.build("_C", source, build_directory=tmp_path / "third")
    assert placed("third") == "two"
    bench.write("two/two.cpp", "deux\n")
    reload.reload_module(module)
    assert placed("first") == "deux"


def test_what_stands_where_the_link_would_does_no_harm(bench, tmp_path):
    (tmp_path / "_C.so" / "folder").mkdir(parents=True)
    source = bench.sources / "two/two.cpp"
    assert text_of(load("_C", source, build_directory=tmp_path)) == "two"
    assert not list(tmp_path.glob("*.partial"))


def test_library_that_is_no_module(bench):
    source = str(bench.sources / "two/two.cpp")
    path = load("plain-library", source, is_python_module=False)
    assert Path(path).name == "plain-library.so"
    assert text_of(path) == "two"
    library = load("_C", source, is_python_module=False)
    module = load("_C", source)
    assert module.__name__ == "_C"
    assert module.__file__ != library  # a module of the same content is another build


def test_callers_lists_are_left_alone(bench):
    flags, sources, texts = ["-DA"], [str(bench.sources / "two/two.cpp")], ["PyInit"]
    load("_C", sources, extra_cflags=flags)
    load_inline("_C", texts, extra_cflags=flags)
    assert (flags, len(sources), texts) == (["-DA"], 1, ["PyInit"])


def test_executable(root, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "env FLAG=1 c++ -DVALUE")
    texts = {"the main.cpp": "const char* f(); int g(); int main() { return g() - f()[0]; }"}
    texts |= {"f.cpp": 'const char* f() { return "x"; }', "more/f.cpp": "int g() { return 'x'; }"}
    sources = [str(write(tmp_path / name, text)) for name, text in texts.items()]
    place = tmp_path / "place"
    kind = {"is_python_module": False, "is_standalone": True}
    path = load("tool", sources, build_directory=place, **kind)
    assert path == str(place / "tool")
    assert subprocess.run([path]).returncode == 0
    with pytest.raises(ValueError, match="is_python_module"):
        load("tool", sources, is_standalone=True)


def lines_of(module) -> list[str]:
    return [line.strip() for line in text_of(module).splitlines()]


@pytest.mark.parametrize(
    ("functions", "docstring"), [("f", "f"), (["f"], "f"), ({"f": 'says "x"'}, 'says \\"x\\"')]
)
def test_inline_bindings(bench, functions, docstring):
    """Arguments are bound by their places, as torch does it."""
    lines = lines_of(load_inline("_C", ["first", "second"], functions=functions))
    assert lines[:5] == [
        "#include <torch/extension.h>",
        '#line 1 "cpp_sources[0]"',
        "first",
        '#line 1 "cpp_sources[1]"',
        "second",
    ]
    assert f'm.def("f", torch::wrap_pybind_function(f), "{docstring}");' in lines


PLAINLY = {"no_implicit_headers": True, "with_pytorch_error_handling": False}


def test_functions_in_namespaces_go_by_torchs_name_and_by_a_short_one(bench):
    """Here without headers of torch's, and without what makes Python's errors of its own."""
    functions = {"a::f": None, "b::f": "of b", "b::g": 5}
    lines = lines_of(load_inline("_C", "text", functions=functions, **PLAINLY))
    assert not [line for line in lines if "torch" in line]
    assert [line for line in lines if "m.def" in line] == [
        'm.def("a::f", a::f, "");',  # f would be an overload
        'm.def("b::f", b::f, "of b");',
        'm.def("b::g", b::g, "5");',
        'm.def("g", b::g, "5");',
    ]


@pytest.mark.parametrize("functions", [5, ["f", 5]])
def test_functions_that_are_no_names_are_torchs_error(bench, functions):
    told = re.escape(f"functions to be names, but got {functions}")
    with pytest.raises(ValueError, match=told):
        load_inline("_C", "text", functions=functions)
    assert bench.counts == []


def test_a_function_that_nobody_declares_is_told(root):
    module = "struct M { template <class F> void def(const char*, F, const char*); };\n"
    module += "#define PYBIND11_MODULE(name, m) void bind(M& m)\n"
    with pytest.raises(BuildError) as caught:
        load_inline("_C", module, functions=["forward"], **PLAINLY)
    lines = str(caught.value).splitlines()
    assert "forward" in lines[0]
    assert lines[1].startswith("  --> bindings:2:")
    assert lines[3] == '2 |   m.def("forward", forward, "forward");'
    assert "it is one of the functions to bind: declare it in the C++ source" in lines[5]


def test_inline_cached_and_changed(bench):
    first = load_inline("_C", "PyInit")
    assert bench.counts == ["compile main.cpp", "link"]
    assert load_inline("_C", ["PyInit"]) is first
    second = load_inline("_C", "PyInit, edited")
    assert bench.counts == ["compile main.cpp", "link"]
    assert load_inline("_C", "PyInit") is first
    assert second is not first


def fails(bench, **arguments) -> BuildError:
    with pytest.raises(BuildError) as caught:
        load("_C", bench.sources, **arguments)
    return caught.value


def test_the_parts_of_an_error(bench):
    file = bench.write("one/one.cpp", "one\n//! error wrong\n")
    error = fails(bench)
    assert (error.file, error.line, error.column) == (str(file), 2, 5)
    assert error.message == "wrong"
    assert "error: wrong" in Path(error.log).read_text()
    bench.write("one/one.cpp", "//! signal SIGKILL\n")
    error = fails(bench)
    assert (error.line, error.column) == (None, None)
    unknown = dict.fromkeys(("file", "line", "column", "log"))
    assert vars(BuildError("error: x\n   = cure")) == {**unknown, "message": "x"}


def test_the_parts_of_an_error_in_a_string(root):
    texts = ["int x;", "int y;\nint z = zero;"]
    with pytest.raises(BuildError) as caught:
        load_inline("_C", texts, functions=[], no_implicit_headers=True)
    error = caught.value
    assert (error.file, error.line, error.column) == ("cpp_sources[1]", 2, 9)
    shown = ["  --> cpp_sources[1]:2:9", "  |", "2 | int z = zero;", "  |         ^"]
    assert str(error).splitlines()[1:5] == shown


def test_errors_are_pickled(bench):
    """As a pool of processes does it."""
    bench.write("one/one.cpp", "//! error wrong\n")
    errors = [fails(bench), fails(bench, timeout=0)]
    assert [type(error) for error in errors] == [BuildError, BuildTimeout]
    errors += [kind("text") for kind in (CacheError, ToolchainError, SourceMissing)]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


CALLS = {
    "load": lambda sources: lltm_jit.load("_C", sources),
    "build": lambda sources: lltm_jit.build("_C", sources),
    "several": lambda sources: lltm_jit.build([{"name": n, "sources": sources} for n in "ab"]),
    "load_inline": lambda sources: lltm_jit.load_inline("_C", "//! error wrong", functions="f"),
    "missing": lambda sources: lltm_jit.load("_C", [sources / "none.cpp"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_ends_at_the_callers_line(bench, name):
    bench.write("one/one.cpp", "//! error wrong\n")
    with pytest.raises(lltm_jit.LltmJitError) as caught:
        CALLS[name](bench.sources)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    kept = 1 if sys.version_info < (3, 11) else 0
    assert files[: len(files) - kept] == [__file__] * 2
    told = "".join(traceback.format_exception(caught.value))
    assert "\nDuring handling" not in told
    assert "\nThe above" not in told
