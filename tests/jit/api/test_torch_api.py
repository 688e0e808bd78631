"""load with torch's signature: its arguments, where it puts what it builds, what it refuses."""

from __future__ import annotations

import ctypes
import inspect
import subprocess
from pathlib import Path

import pytest
from engine_bench import payload
from torch.utils import cpp_extension

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import reload


@pytest.mark.parametrize("name", ["load", "load_inline"])
def test_signature_is_torchs(name):
    *ours, narrow, timeout = inspect.signature(getattr(torch_api, name)).parameters.values()
    torchs = inspect.signature(getattr(cpp_extension, name)).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in torchs]
    assert (narrow.name, timeout.name) == ("narrow", "timeout")
    assert {narrow.kind, timeout.kind} == {inspect.Parameter.KEYWORD_ONLY}


def test_sources_are_optimised_unless_flags_say_otherwise(real, monkeypatch):
    text = (
        'extern "C" int optimised() {\n#ifdef __OPTIMIZE__\n  return 1;\n#endif\n  return 0;\n}\n'
    )
    source = real.write("level.cpp", text)

    def is_optimised(*flags):
        path = torch_api.load("level", source, extra_cflags=flags, is_python_module=False)
        return ctypes.CDLL(path).optimised()

    assert is_optimised()
    assert not is_optimised("-O0")
    monkeypatch.setenv("LLTM_JIT_DEBUG", "1")
    assert not is_optimised()


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
        torch_api.load(**given)
    if "sources" not in REFUSED[said]:
        more = {"build_directory": bench.directory, "cpp_sources": "", "functions": []}
        del given["sources"]
        with pytest.raises((TypeError, jit.LltmJitError), match=said):
            torch_api.load_inline(**given, **more)
    assert bench.counts == []


def test_a_directory_without_its_cuda_files(bench):
    bench.write("three.cu", "three\n")
    assert payload(torch_api.load("_C", bench.sources, with_cuda=False)) == (
        "shared header\none\ntwo"
    )


def test_build_directory_has_the_library_where_torch_puts_it(bench, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "_C.so").write_text("a library that torch built\n")
    source = bench.sources / "two/two.cpp"
    for place in ("first", "second"):  # one build, which the second call finds loaded
        module = torch_api.load("_C", source, build_directory=tmp_path / place)
        assert payload(str(tmp_path / place / "_C.so")) == "two"
        assert Path(module.__file__).is_relative_to(tmp_path / "first")
    assert not bench.builds.exists() or not list(bench.builds.glob("*/ok.json"))
    torch_api.build("_C", source, build_directory=tmp_path / "third")
    assert payload(str(tmp_path / "third" / "_C.so")) == "two"
    bench.write("two/two.cpp", "deux\n")
    reload.reload_module(module)
    assert payload(str(tmp_path / "first" / "_C.so")) == "deux"


def test_what_stands_where_the_link_would_does_no_harm(bench, tmp_path):
    (tmp_path / "_C.so" / "folder").mkdir(parents=True)
    source = bench.sources / "two/two.cpp"
    assert payload(torch_api.load("_C", source, build_directory=tmp_path)) == "two"
    assert not list(tmp_path.glob("*.partial"))


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


@pytest.mark.parametrize("name", ["dol$lar", "co:lon", "bla nk"])
def test_a_root_and_sources_with_marks_that_a_build_file_escapes(bench, tmp_path, name):
    root = tmp_path / name
    source = bench.write(f"{name}/three.cpp", "three\n")
    assert payload(torch_api.load("_C", source, build_directory=root)) == "three"
    assert payload(torch_api.load_inline("_C", "PyInit", build_directory=root))


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
