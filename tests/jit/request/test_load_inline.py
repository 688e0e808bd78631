"""load_inline: the files it makes of strings, and the bindings."""

from __future__ import annotations

import re

import pytest
from engine_bench import payload

from lltm_jit import jit
from lltm_jit.jit import torch_api


@pytest.mark.parametrize(
    ("functions", "docstring"), [("f", "f"), (["f"], "f"), ({"f": 'says "x"'}, 'says \\"x\\"')]
)
def test_inline_bindings(bench, functions, docstring):
    """Arguments are bound by their places, as torch does it."""
    module = torch_api.load_inline("_C", ["first", "second"], functions=functions)
    lines = [line.strip() for line in payload(module).splitlines()]
    assert lines[:5] == [
        "#include <torch/extension.h>",
        '#line 1 "cpp_sources[0]"',
        "first",
        '#line 1 "cpp_sources[1]"',
        "second",
    ]
    called = "torch::wrap_pybind_function(f)"
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
    assert lines[1].startswith("  --> bindings:2:")
    assert lines[3] == '2 |   m.def("forward", forward, "forward");'
    assert "it is one of the functions to bind: declare it in the C++ source" in lines[5]


def test_inline_cached_and_changed(bench):
    first = torch_api.load_inline("_C", "PyInit")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", ["PyInit"]) is first
    second = torch_api.load_inline("_C", "PyInit, edited")
    assert bench.counts == ["compile main.cpp", "link"]
    assert torch_api.load_inline("_C", "PyInit") is first
    assert second is not first
