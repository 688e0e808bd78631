"""load with torch's signature: its arguments, where it puts what it builds, what it refuses."""

from __future__ import annotations

import ctypes
import inspect
import subprocess
from pathlib import Path

import pytest
from engine_bench import payload, text_of
from torch.utils import cpp_extension

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import reload


@pytest.mark.parametrize("name", ["load", "load_inline"])
def test_signature_is_torchs(name):
    ours = inspect.signature(getattr(torch_api, name)).parameters
    torchs = inspect.signature(getattr(cpp_extension, name)).parameters
    assert list(ours) == list(torchs)
    assert [p.default for p in ours.values()] == [p.default for p in torchs.values()]


def test_load_positional_and_again(bench):
    arguments = ("_C", [str(bench.sources / "one/one.cpp"), bench.sources / "two/two.cpp"])
    arguments += (["-DA"], None, None, ["-lm"], [str(bench.sources)])
    module = torch_api.load(*arguments)
    assert payload(module) == "shared header\none\ntwo"
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]
    assert torch_api.load(*arguments) is module
    assert bench.counts == []


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


def test_load_takes_a_directory_and_relative_paths(bench, monkeypatch):
    assert payload(torch_api.load("_C", bench.sources)) == "shared header\none\ntwo"
    monkeypatch.chdir(bench.sources)
    assert payload(torch_api.load("_C", "two/two.cpp")) == "two"


def test_a_string_in_place_of_a_list_is_refused(bench):
    source = bench.sources / "two/two.cpp"
    for name in ("cflags", "cuda_cflags", "ldflags", "include_paths"):
        with pytest.raises(TypeError, match=f"expected extra_{name} to be a list, but got '-O2'"):
            torch_api.load("_C", source, **{f"extra_{name}": "-O2"})
        with pytest.raises(TypeError, match=f"expected extra_{name} to be a list, but got '-O2'"):
            torch_api.load_inline(
                "_C", "", functions=[], build_directory=bench.directory, **{f"extra_{name}": "-O2"}
            )
    assert bench.counts == []


@pytest.mark.parametrize("sources", [3, None])
def test_sources_that_are_no_paths_are_refused(bench, sources):
    message = f"expected sources to be a path or a list of paths, but got {sources}"
    with pytest.raises(TypeError, match=message):
        torch_api.load("_C", sources)


def test_a_name_that_is_no_string_is_refused(bench):
    with pytest.raises(TypeError, match="expected name to be a string, but got None"):
        torch_api.load(None, bench.sources)


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
    assert payload(str(tmp_path / "first" / "_C.so")) == "deux"


def test_a_build_without_an_import_has_the_library_there_too(bench, tmp_path):
    torch_api.build("_C", bench.sources / "two/two.cpp", build_directory=tmp_path / "place")
    assert payload(str(tmp_path / "place" / "_C.so")) == "two"


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


def test_paths_that_a_build_file_cannot_contain(bench):
    source = bench.write("pi|pe/three.cpp", "three\n")
    with pytest.raises(jit.BuildError, match="move the sources to a directory without"):
        torch_api.load("_C", source)
    source = bench.sources / "two/two.cpp"
    with pytest.raises(jit.BuildError, match=r"because of the '\$' in it"):
        torch_api.load("_C", source, extra_include_paths=[str(bench.sources / "dol$lar")])
    assert bench.counts == []


def test_sycl_and_hip_are_refused(bench):
    for source, options in (("x.cpp", {"with_sycl": True}), ("x.sycl", {}), ("x.hip", {})):
        with pytest.raises(jit.ToolchainError, match="HIP and SYCL are not supported here"):
            torch_api.load("_C", source, **options)
    with pytest.raises(jit.ToolchainError, match="HIP and SYCL are not supported here"):
        torch_api.load_inline("_C", "", sycl_sources="x")
    bench.write("two/x.hip", "x\n")
    with pytest.raises(jit.ToolchainError, match="HIP and SYCL are not supported here"):
        torch_api.load("_C", bench.sources / "two")


@pytest.mark.parametrize(
    ("name", "told"), [("x.txt", "x.txt$"), ("x", "x$"), ("x.cu", "x.cu without CUDA$")]
)
def test_a_source_that_no_compiler_takes_is_refused(bench, name, told):
    source = bench.write(name, "x\n")
    with pytest.raises(jit.BuildError, match=rf"end in \.cpp, \.cc, \.cxx, \.cu, but got .*{told}"):
        torch_api.load("_C", [bench.sources / "two/two.cpp", source], with_cuda=False)
    assert bench.counts == []


def test_a_directory_that_is_not_there_is_told(bench):
    with pytest.raises(FileNotFoundError, match=r"no file and no directory .*/kernel$"):
        torch_api.load("_C", bench.sources / "kernel")


def test_cuda_without_nvcc_is_refused_in_words(bench, monkeypatch):
    source = bench.write("three.cu", "three\n")
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(jit.ToolchainError, match=r"_C needs CUDA, but torch .* has no CUDA; ins"):
        torch_api.load("_C", str(source))


def test_build_without_import(bench):
    info = jit.loading.engine.build(bench.spec())
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]
    assert not info.cached
    assert jit.loading.engine.build(bench.spec()).cached
    assert bench.counts == []
    assert not jit.loading.engine.build(bench.spec(), force=True).cached
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
