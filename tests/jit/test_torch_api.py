"""load and load_inline with torch's signatures, and reload of what they gave."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_bench import text_of
from torch.utils import cpp_extension

import lltm_jit
from lltm_jit import jit
from lltm_jit.jit import reload, torch_api


@pytest.mark.parametrize("name", ["load", "load_inline"])
def test_signature_is_torchs(name):
    ours = inspect.signature(getattr(torch_api, name)).parameters
    torchs = inspect.signature(getattr(cpp_extension, name)).parameters
    assert list(ours) == list(torchs)
    assert [p.default for p in ours.values()] == [p.default for p in torchs.values()]


def payload(module_or_path) -> str:
    path = module_or_path if isinstance(module_or_path, str) else module_or_path.__file__
    return Path(path).read_bytes().rpartition(b"#FAKE\n")[2].decode()


def test_load_positional_and_again(bench):
    arguments = ("_C", [str(bench.sources / "one/one.cpp"), bench.sources / "two/two.cpp"])
    arguments += (["-DA"], None, None, ["-lm"], [str(bench.sources)])
    module = torch_api.load(*arguments)
    assert payload(module) == "shared header\none\ntwo"
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]
    assert torch_api.load(*arguments) is module
    assert bench.counts == []


def test_load_sees_headers_that_nobody_named(bench):
    bench.write("one/one.cpp", '#include "../far/a.h"\none\n')
    bench.write("far/a.h", '#include "b.h"\n')
    bench.write("far/b.h", "first\n")
    source = str(bench.sources / "one/one.cpp")
    assert payload(torch_api.load("_C", source)) == "first\none"
    bench.write("far/b.h", "second\n")
    assert payload(torch_api.load("_C", source)) == "second\none"


def test_load_finds_headers_by_flags(bench):
    source = bench.write("one/one.cpp", '#include "a.h"\none\n')
    bench.write("far/a.h", "first\n")
    flags = [f"-I{bench.sources / 'far'}"]
    assert payload(torch_api.load("_C", str(source), extra_cflags=flags)) == "first\none"
    bench.write("far/a.h", "second\n")
    assert payload(torch_api.load("_C", str(source), extra_cflags=flags)) == "second\none"


def test_load_takes_a_directory_and_relative_paths(bench, monkeypatch):
    assert payload(torch_api.load("_C", bench.sources)) == "shared header\none\ntwo"
    monkeypatch.chdir(bench.sources)
    assert payload(torch_api.load("_C", "two/two.cpp")) == "two"


def test_a_reload_takes_what_was_given(bench, monkeypatch):
    source = bench.write("one/one.cpp", '#include "shared.h"\none\n')
    monkeypatch.chdir(bench.sources)
    flags, include_paths = ["-DA"], ["core"]
    arguments = {"extra_cflags": flags, "extra_include_paths": include_paths}
    module = torch_api.load("_C", [source], **arguments, build_directory="builds")
    monkeypatch.chdir(bench.directory)
    flags.append("-DB")
    include_paths.clear()
    assert reload.reload_module(module).changed == ()
    bench.write("one/one.cpp", '#include "shared.h"\nuno\n')
    assert Path(lltm_jit.reload(module).__file__).is_relative_to(bench.sources / "builds")


def test_a_string_in_place_of_a_list_is_refused(bench):
    source = bench.sources / "two/two.cpp"
    for name in ("cflags", "cuda_cflags", "ldflags", "include_paths"):
        with pytest.raises(TypeError, match=f"expected extra_{name} to be a list, but got '-O2'"):
            torch_api.load("_C", source, **{f"extra_{name}": "-O2"})
    assert bench.counts == []


def test_a_directory_without_its_cuda_files(bench):
    bench.write("three.cu", "three\n")
    assert payload(torch_api.load("_C", bench.sources, with_cuda=False)) == (
        "shared header\none\ntwo"
    )


def test_build_directory_holds_the_build(bench, tmp_path):
    place = tmp_path / "here"
    module = torch_api.load(
        "_C", str(bench.sources / "two/two.cpp"), build_directory=str(place), verbose=False
    )
    assert Path(module.__file__).is_relative_to(place)
    assert not bench.builds.exists() or not list(bench.builds.glob("*/ok.json"))


def test_build_directory_has_the_library_where_torch_puts_it(bench, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "_C.so").write_text("a library that torch built\n")
    source = bench.sources / "two/two.cpp"
    for place in ("first", "second"):  # one build, which the second call finds loaded
        module = torch_api.load("_C", source, build_directory=tmp_path / place)
        assert payload(str(tmp_path / place / "_C.so")) == "two"
    bench.write("two/two.cpp", "deux\n")
    reload.reload_module(module)
    assert payload(str(tmp_path / "second" / "_C.so")) == "deux"


def test_what_stands_where_the_link_would_does_no_harm(bench, tmp_path):
    (tmp_path / "_C.so" / "folder").mkdir(parents=True)
    source = bench.sources / "two/two.cpp"
    assert payload(torch_api.load("_C", source, build_directory=tmp_path)) == "two"
    assert not list(tmp_path.glob("*.partial"))


def test_blanks_around_an_include_path_are_stripped(bench):
    source = bench.write("one/one.cpp", '#include "shared.h"\none\n')
    include_paths = [f" {bench.sources / 'core'} "]
    module = torch_api.load("_C", source, extra_include_paths=include_paths)
    assert payload(module) == "shared header\none"


@pytest.fixture
def imported():
    """The modules as they were, afterwards."""
    before = dict(sys.modules)
    yield sys.modules
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def test_a_loaded_module_can_be_imported(bench, imported):
    source = bench.write("two/two.cpp", "first\n")
    module = torch_api.load("basic", source)
    assert module.__name__ == "basic"
    assert importlib.import_module("basic") is module
    before = module.__spec__.name
    bench.write("two/two.cpp", "second\n")
    assert lltm_jit.reload(module) is module
    assert module.__spec__.name != before  # by which pybind11 tells modules apart
    assert importlib.import_module("basic") is module
    assert torch_api.load_inline("basic", "PyInit_basic") is importlib.import_module("basic")


def test_a_name_that_is_anothers_stays_his(bench, imported, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "_C", os)  # imported already
    assert torch_api.load("_C", bench.sources / "two/two.cpp") is not os
    assert importlib.import_module("_C") is os
    (tmp_path / "rnn.py").write_text("VALUE = 1\n")  # or not yet
    (tmp_path / "basic").mkdir()  # which is a package too, but has nothing in it
    sys.path.insert(0, str(tmp_path))  # a list of the bench
    torch_api.load("rnn", bench.sources / "two/two.cpp")
    assert importlib.import_module("rnn").VALUE == 1
    module = torch_api.load("basic", bench.sources / "two/two.cpp")
    assert importlib.import_module("basic") is module


CLASS = """
#include <Python.h>
#include "value.h"
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, nullptr}, {}};
static PyType_Slot slots_of_thing[] = {{Py_tp_methods, methods}, {0, nullptr}};
static PyType_Spec thing = {"Thing", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots_of_thing};
static int fill(PyObject* module) {
  PyObject* type = PyType_FromSpec(&thing);  // as pybind11 does it
  PyObject_SetAttrString(type, "__module__", PyObject_GetAttrString(module, "__name__"));
  PyModule_AddIntConstant(module, NAME, VALUE);
  PyModule_AddObject(module, "value", PyCFunction_New(methods, nullptr));
  return PyModule_AddObject(module, "Thing", type);
}
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void*)fill}, {0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "things", nullptr, 0, nullptr, slots};
PyMODINIT_FUNC PyInit_things() { return PyModuleDef_Init(&definition); }
"""


def test_a_reload_fills_the_module_anew_and_leaves_what_it_gave(tmp_path, monkeypatch, imported):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "value.h").write_text('#define VALUE 1\n#define NAME "first"\n')
    (tmp_path / "things.cpp").write_text(CLASS)
    module = torch_api.load("things", tmp_path / "things.cpp")
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)
    function, thing = module.value, module.Thing()
    module.mine = "kept"
    (tmp_path / "value.h").write_text('#define VALUE 2\n#define NAME "second"\n')
    assert lltm_jit.reload(module) is module is sys.modules["things"]
    assert (module.value(), module.Thing().value(), module.second, module.mine) == (2, 2, 2, "kept")
    assert not hasattr(module, "first")
    assert (function(), thing.value(), type(thing)().value()) == (1, 1, 1)
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)


def test_library_that_is_no_module(bench):
    source = str(bench.sources / "two/two.cpp")
    path = torch_api.load("plain-library", source, is_python_module=False)
    assert Path(path).name == "plain-library.so"
    assert payload(path) == "two"
    library = torch_api.load("_C", source, is_python_module=False)
    module = torch_api.load("_C", source)
    assert module.__name__ == "_C"
    assert module.__file__ != library  # a module of the same content is another build


def test_callers_lists_are_left_alone(bench):
    flags, sources, texts = ["-DA"], [str(bench.sources / "two/two.cpp")], ["PyInit"]
    torch_api.load("_C", sources, extra_cflags=flags)
    torch_api.load_inline("_C", texts, extra_cflags=flags)
    assert (flags, len(sources), texts) == (["-DA"], 1, ["PyInit"])


@pytest.mark.parametrize(
    ("functions", "docstring"), [("f", "f"), (["f"], "f"), ({"f": 'says "x"'}, 'says \\"x\\"')]
)
def test_inline_bindings(bench, functions, docstring):
    module = torch_api.load_inline("_C", ["first", "second"], functions=functions)
    lines = [line.strip() for line in payload(module).splitlines()]
    assert lines[:5] == [
        "#include <torch/extension.h>",
        '#line 1 "cpp_sources[0]"',
        "first",
        '#line 1 "cpp_sources[1]"',
        "second",
    ]
    called = "torch::wrap_pybind_function(lltm_jit_callable(f))"
    assert f'm.def("f", {called}, "{docstring}");' in lines


def test_functions_that_are_no_names_are_torchs_error(bench):
    for functions in (5, ["f", 5]):
        with pytest.raises(
            ValueError, match=re.escape(f"functions to be names, but got {functions}")
        ):
            torch_api.load_inline("_C", "text", functions=functions)
    assert bench.counts == []


def test_inline_without_headers_and_error_handling(bench):
    module = torch_api.load_inline(
        "_C", "text", functions=["f"], no_implicit_headers=True, with_pytorch_error_handling=False
    )
    assert "torch" not in payload(module)
    assert 'm.def("f", &f, "f");' in payload(module)


def test_a_function_that_nobody_declares_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    module = "struct M { template <class F> void def(const char*, F, const char*); };\n"
    module += "#define PYBIND11_MODULE(name, m) void bind(M& m)\n"
    with pytest.raises(jit.BuildError) as caught:
        torch_api.load_inline(
            "_C",
            module,
            functions=["forward"],
            no_implicit_headers=True,
            with_pytorch_error_handling=False,
        )
    lines = str(caught.value).splitlines()
    assert "forward" in lines[0]
    assert lines[1].startswith("  --> bindings:5:")
    assert lines[3] == '5 |   m.def("forward", &forward, "forward");'
    assert "it is one of the functions to bind: declare it in the C++ source" in lines[5]


def test_inline_cached_and_changed(bench):
    first = torch_api.load_inline("_C", "PyInit")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", ["PyInit"]) is first
    second = torch_api.load_inline("_C", "PyInit, edited")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", "PyInit") is first
    assert second is not first


@pytest.mark.parametrize(("name", "mark"), [("dol$lar", r"\$"), ("co:lon", ":")])
def test_root_that_a_build_file_cannot_name(bench, tmp_path, name, mark):
    root = tmp_path / name
    source = str(bench.sources / "two/two.cpp")
    assert payload(torch_api.load("_C", source, build_directory=root)) == "two"
    bench.write("two/two.cpp", "deux\n")
    assert payload(torch_api.load("_C", source, build_directory=root)) == "deux"
    assert bench.counts
    with pytest.raises(jit.BuildError, match=f"'{mark}' in it; set TORCH_EXTENSIONS_DIR"):
        torch_api.load_inline("_C", "PyInit", build_directory=root)
    assert bench.counts == []


def test_sources_that_a_build_file_cannot_name(bench):
    source = bench.write("co:lon/three.cpp", "three\n")
    with pytest.raises(jit.BuildError, match="move the sources to a directory without"):
        torch_api.load("_C", source)
    include = str(bench.sources / "dol$lar")
    source = bench.sources / "two/two.cpp"
    with pytest.raises(jit.BuildError, match=r"there is '\$'"):
        torch_api.load("_C", source, extra_include_paths=[include])
    assert bench.counts == []


def test_sycl_and_hip_are_refused(bench):
    for source, options in (("x.cpp", {"with_sycl": True}), ("x.sycl", {}), ("x.hip", {})):
        with pytest.raises(jit.ToolchainError, match="HIP and SYCL are not supported here"):
            torch_api.load("_C", source, **options)


@pytest.mark.parametrize(
    ("name", "told"), [("x.txt", "x.txt$"), ("x", "x$"), ("x.cu", "x.cu without CUDA$")]
)
def test_a_source_that_no_compiler_takes_is_refused(bench, name, told):
    source = bench.write(name, "x\n")
    with pytest.raises(jit.BuildError, match=rf"end in \.cpp, \.cc, \.cxx, \.cu, but got .*{told}"):
        torch_api.load("_C", [bench.sources / "two/two.cpp", source], with_cuda=False)
    assert bench.counts == []


def test_inline_sources_without_a_module_are_refused(bench):
    with pytest.raises(jit.BuildError, match=r"define no Python module\n   = name the functions"):
        torch_api.load_inline("_C", "torch::Tensor f(torch::Tensor x) { return x; }")
    assert bench.counts == []
    torch_api.load_inline("_C", "text", is_python_module=False)
    torch_api.load_inline("_C", '#include "defines_the_module.h"')


def test_cuda_without_nvcc_is_refused_in_words(bench, monkeypatch):
    source = bench.write("three.cu", "three\n")
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(jit.ToolchainError, match=r"_C needs CUDA, but torch .* has no CUDA; ins"):
        torch_api.load("_C", str(source))


def test_reload_of_a_module(bench):
    module = torch_api.load("_C", bench.sources)
    assert reload.reload_module(module).changed == ()
    assert "compile two.cpp" in bench.counts
    bench.write("two/two.cpp", "deux\n")
    done = reload.reload_module(module)
    assert bench.counts == ["compile two.cpp", "link"]
    assert done.changed == ("kernels/two/two.cpp changed",)
    assert payload(module).endswith("deux")
    assert torch_api.load("_C", bench.sources) is module
    bench.write("two/two.cpp", "//! error broken\n")
    with pytest.raises(jit.BuildError, match="error: broken"):
        lltm_jit.reload(module)
    assert payload(module).endswith("deux")
    bench.write("two/two.cpp", "two\n")
    first = torch_api.load("_C", bench.sources)  # while the module shows the second build
    assert first is not module
    assert [payload(first)[-3:], payload(module)[-4:]] == ["two", "deux"]
    assert lltm_jit.reload(module) is module
    assert payload(module).endswith("two")
    assert lltm_jit.build_info(module) == lltm_jit.build_info(first)


def test_operators_that_torch_refuses_leave_the_old_ones_in_force():
    calls = []

    def refuse():
        raise RuntimeError("the schemas differ\n  expected: f(Tensor x)")

    old = SimpleNamespace(release_ops=lambda: calls.append("release old"))
    new = SimpleNamespace(register_ops=refuse, __file__="/cache/_C.so")
    with pytest.raises(jit.BuildError) as caught:
        reload.swap_ops(old, new)
    assert calls == []
    new.register_ops = lambda: calls.append("register new")
    reload.swap_ops(old, new)
    assert calls == ["register new", "release old"]
    assert str(caught.value).splitlines() == [
        "error: the operators of the built library cannot be registered: the schemas differ",
        "  expected: f(Tensor x)",
        "   = make each schema and the C++ function that implements it fit together",
        "   = /cache/_C.so",
    ]
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_reload_of_a_stranger(bench):
    for ask in (lltm_jit.reload, lltm_jit.build_info):
        for stranger in (os, "a path"):
            with pytest.raises(
                jit.LltmJitError, match=r"was not loaded by lltm_jit\.load as a mod"
            ):
                ask(stranger)


@pytest.mark.parametrize(
    ("block", "named"),  # each a namespace of its own: registrations last as long as the process
    [
        ("TORCH_LIBRARY(plain, m) {}", "TORCH_LIBRARY(plain)"),
        ("TORCH_LIBRARY\n(next_line, m) {}", "TORCH_LIBRARY(next_line)"),
        ("namespace z { TORCH_LIBRARY(same_line, m) {} }", "TORCH_LIBRARY(same_line)"),
        ("STABLE_TORCH_LIBRARY(stable, m) {}", "STABLE_TORCH_LIBRARY(stable)"),
        ("#define REGISTER(name) TORCH_LIBRARY(name, m)", "TORCH_LIBRARY(name) of _C"),
    ],
)
def test_second_static_registration_is_refused_before_it_is_built(bench, block, named):
    source = bench.write("two/two.cpp", f"// TORCH_LIBRARY(not_this, m)\n{block}\n")
    torch_api.load("_C", str(source))
    bench.write("two/two.cpp", f"{block} // edited\n")
    assert bench.counts
    with pytest.raises(jit.BuildError, match=rf"(?s)in {re.escape(named)},.*restart Python"):
        torch_api.load("_C", str(source))
    assert bench.counts == []


def test_two_extensions_may_register_through_the_same_macro(bench):
    bench.write("core/register.h", "#define IN(NAME, m) \\\n  TORCH_LIBRARY(NAME, m)\n")
    for name in ("first", "second"):
        source = bench.write(f"{name}.cpp", f'#include "core/register.h"\nIN({name}, m) {{}}\n')
        arguments = {"extra_include_paths": [bench.sources], "is_python_module": False}
        assert name in payload(torch_api.load(name, source, **arguments))
    bench.write("second.cpp", '#include "core/register.h"\nIN(second, m) { }\n')
    with pytest.raises(jit.BuildError, match=r"in TORCH_LIBRARY\(NAME\) of second, and"):
        torch_api.load("second", source, **arguments)


def test_build_without_import(bench):
    info = jit.engine.build(bench.spec(), jit.detect())
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]
    assert not info.cached
    assert jit.engine.build(bench.spec(), jit.detect()).cached
    assert bench.counts == []
    assert not jit.engine.build(bench.spec(), jit.detect(), force=True).cached
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]
    assert text_of(bench.load()) == "shared header\none\ntwo"


def test_executable(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "env FLAG=1 c++ -DVALUE")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    texts = {"the main.cpp": "const char* f(); int g(); int main() { return g() - f()[0]; }"}
    texts |= {"f.cpp": 'const char* f() { return "x"; }', "more/f.cpp": "int g() { return 'x'; }"}
    (tmp_path / "more").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    sources = [str(tmp_path / name) for name in texts]
    place = tmp_path / "place"
    kind = {"is_python_module": False, "is_standalone": True}
    path = torch_api.load("tool", sources, build_directory=place, **kind)
    assert path == str(place / "tool")
    assert subprocess.run([path]).returncode == 0
