"""load_inline: the files it makes of strings, and the bindings."""

from __future__ import annotations

import re

import pytest
from engine_bench import payload

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.request.functions import arguments_of


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


def test_functions_in_namespaces_go_by_torchs_name_and_by_a_short_one(bench):
    functions = {"a::f": None, "b::f": "of b", "b::g": 5}
    arguments = {"functions": functions, "with_pytorch_error_handling": False}
    lines = payload(torch_api.load_inline("_C", "text", **arguments)).splitlines()
    assert [line.strip() for line in lines if "m.def" in line] == [
        'm.def("a::f", a::f, "");',  # f would be an overload
        'm.def("b::f", b::f, "of b");',
        'm.def("b::g", b::g, "5");',
        'm.def("g", b::g, "5");',
    ]


PARAMETERS = {
    "const at::Tensor& x, std::optional<at::Tensor> y = std::nullopt": "x, y = std::nullopt",
    "at::Tensor x, std::optional<int> y = {}, int64_t n = -1": "x, y = std::nullopt, n = -1",
    'std::string s = "a, (b", bool b = true, double d = 1e-5f': 's = "a, (b", b = true, d = 1e-5f',
    "std::vector<std::vector<int>> of = {{1, 2}}, unsigned long n = 5": "of, n = 5",
    "int whole = 1e3, int64_t size = kSize, at::Tensor t = {}": "whole, size, t",
    "unsigned int, const int, at::Tensor&& x, float *p": ", , x, p",
    "const float, const bool": ", ",
    "int n = 1'000, int m = 2'000 /* or less */": "n, m",
    r'std::string s = "\xff", std::string t = "\n"': r's, t = "\n"',
    "std::vector<int> of = std::vector<int>(), int n = 1": "of, n = 1",
    "void": "",
    "ARGUMENTS": None,
    "int n\n#ifdef MANY\n, int m = 1\n#endif\n": None,
    "int n = 1 << 2, int m = 4 >> 1": None,
    "std::function<int(int, int)> f, int x": None,
    "py::args args, int x": None,
}


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_names_and_defaults_of_arguments(parameters):
    """Those that mean the same in Python; a function that is not understood is left out."""
    found = arguments_of([f"namespace mine {{ int f({parameters}) {{ return 1; }} }}"])
    arguments = [
        f"{name}{default and f' = {default}'}" for name, default in found.get("mine::f", [])
    ]
    expected = PARAMETERS[parameters]
    assert (", ".join(arguments) if "mine::f" in found else None) == expected


def test_a_declaration_has_what_the_definition_has_not():
    declared, defined = (
        "double f(at::Tensor, double by = 2);",
        "double f(at::Tensor x, double b) {}",
    )
    assert arguments_of([declared, defined]) == {"f": [("x", ""), ("b", "2")]}
    assert arguments_of([declared, "double f(at::Tensor x) {}"]) == {}  # overloaded


def test_digits_that_quotes_separate_hide_no_function():
    source = "#include <new>\nconst int N = 1'000; // one's\nint f(int a) {} const int M = 2'000;"
    assert arguments_of([source]) == {"f": [("a", "")]}


def test_arguments_are_bound_with_their_names(bench):
    cuda = {"with_cuda": False, "functions": "f"}
    module = torch_api.load_inline("_C", "int f(int x, int = 2);", **cuda)
    assert ', "f", pybind11::arg("x"), pybind11::arg() = 2);' in payload(module)


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
    assert 'm.def("f", f, "f");' in payload(module)


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
    assert lines[3] == '5 |   m.def("forward", forward, "forward");'
    assert "it is one of the functions to bind: declare it in the C++ source" in lines[5]


def test_inline_cached_and_changed(bench):
    first = torch_api.load_inline("_C", "PyInit")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", ["PyInit"]) is first
    second = torch_api.load_inline("_C", "PyInit, edited")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", "PyInit") is first
    assert second is not first


def test_inline_sources_without_a_module_are_refused(bench):
    with pytest.raises(jit.BuildError, match=r"define no Python module\n   = name the functions"):
        torch_api.load_inline("_C", "torch::Tensor f(torch::Tensor x) { return x; }")
    assert bench.counts == []
    torch_api.load_inline("_C", "text", is_python_module=False)
    torch_api.load_inline("_C", '#include "defines_the_module.h"')
