"""The commands about a build: log, timings, flags, compile-commands, archive."""

import json
import os
import subprocess
import sys
import sysconfig

import pytest
from small_checkout import copy_with_small_families, run_in
from small_files import write

import lltm_jit
from lltm_jit import native
from lltm_jit.jit import BuildError
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache
from lltm_jit.jit.user.progress import source_name

KNOWN_TO_CLANG = {"-fPIC", "-fopenmp", "-fdiagnostics-color=never"}


def test_timings_list_every_source_slowest_first(told, builds):
    lines = [line.split(maxsplit=2) for line in told("timings", *native.OWN).splitlines()]
    expected = ["total"]
    for family in native.OWN:
        request = Request(native.spec(family))
        for target, path in request.objects.items():
            expected.append(f"{family}: {source_name(path, target)}")
    assert sorted(line[2] for line in lines) == sorted(expected)
    seconds = [float(line[0]) for line in lines]
    assert seconds[:-1] == sorted(seconds[:-1], reverse=True)
    assert seconds[-1] == pytest.approx(sum(seconds[:-1]), abs=0.1)


def test_timings_name_sources_whatever_their_objects_are_called(told, empty_root, tmp_path, tiny):
    spec = tiny()
    texts = {"other/tiny.cpp": "int a;\n", "a b.cpp": "int b;\n", "c.d.cpp": "int c;\n"}
    paths = [str(write(tmp_path / name, text)) for name, text in texts.items()]
    engine.build(spec._replace(paths=(*spec.paths, *paths)))
    names = {line.partition(" s  ")[2] for line in told("timings", "tiny").splitlines()}
    folders = [f"{tmp_path.name}/other", f"{tmp_path.name}/tiny"]
    assert names == {"tiny: a b.cpp", "tiny: c.d.cpp", "total"} | {
        f"tiny: {folder}/tiny.cpp" for folder in folders
    }
    engine.build(spec)  # whose one object has another name than it had
    names = [line.partition(" s  ")[2] for line in told("timings", "tiny").splitlines()]
    assert names == ["tiny: tiny.cpp", "total"]


def test_flags_build_an_extension_from_a_makefile(told, tmp_path):
    (tmp_path / "flags.mk").write_text(told("flags"))
    (tmp_path / "Makefile").write_text(
        "include flags.mk\n"
        "name.so: name.o\n\t$(CXX) name.o $(LDFLAGS) -o name.so\n"
        "name.o: name.cpp\n\t$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c name.cpp -o name.o\n"
    )
    (tmp_path / "name.cpp").write_text(
        "#include <Python.h>\n#include <torch/headeronly/macros/Macros.h>\n"
        "const char* version() { return PY_VERSION; }\n"
    )
    done = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "name.so").exists()


def test_flags_and_commands_need_no_build(told, empty_root, tmp_path):
    flags = json.loads(told("flags", "rnn", "--json"))
    assert "-DTORCH_EXTENSION_NAME=rnn" in flags["CPPFLAGS"]
    assert sysconfig.get_path("include") in flags["CPPFLAGS"]
    assert "-O3" in flags["CXXFLAGS"]
    assert "-ltorch_python" in flags["LDFLAGS"]
    assert not [word for word in flags["LDFLAGS"] if "dependency-file" in word]
    assert ("NVCC" in flags) == Request(native.spec("rnn")).with_cuda
    output = tmp_path / "compile_commands.json"
    told("compile-commands", "-o", output)
    entries = json.loads(output.read_text())
    requests = [Request(native.spec(family)) for family in native.families()]
    # Those of core/ are compiled for several families.
    sources = sorted({source for request in requests for source in request.sources})
    assert sorted(entry["file"] for entry in entries) == sources
    for entry in entries:
        words = entry["arguments"]
        assert sysconfig.get_path("include") in words
        assert os.path.isdir(entry["directory"])  # else clangd tells an error
        words = [word for word in words if not word.startswith("--cuda-path=")]
        features = {word for word in words if word.startswith(("-f", "--"))}
        assert features <= KNOWN_TO_CLANG, "clangd refuses what clang does not know"
        if entry["file"].endswith(".cu"):
            assert words[:3] == ["clang++", "-x", "cuda"]
            assert "-gencode" not in " ".join(words)
    assert not list(empty_root.rglob(cache.RECORD))


def test_nvccs_flags_and_commands(told, tmp_path, monkeypatch):
    """With the commands that a toolkit which is not here would get."""
    from lltm_jit.cli.export import compile_commands, flags

    words = "nvcc -MD -MF x.o.d -DA=1 -isystem /include -O3 -std=c++20 --expt-relaxed-constexpr"
    assert flags.split(words.split()[4:]) == (
        ["-DA=1", "-isystem", "/include"],
        ["-O3", "-std=c++20", "--expt-relaxed-constexpr"],
    )
    expected = "clang++ -x cuda --cuda-path=/cuda -DA=1 -isystem /include -std=c++20 -c x.cu"
    assert compile_commands._clang_words(words.split(), "x.cu", "/cuda") == expected.split()


def test_archives_hold_every_object(told, builds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time they are written anew
        told("archive")
    told("archive", "rnn", "-o", "other.a")
    assert (tmp_path / "other.a").read_bytes() == (tmp_path / "liblltm_jit_rnn.a").read_bytes()
    for family in native.OWN:
        members = subprocess.check_output(["ar", "t", f"liblltm_jit_{family}.a"], text=True)
        assert sorted(members.split()) == sorted(Request(native.spec(family)).objects)
    said = "error: expected one extension with --output, but got 2: basic, rnn\n"
    assert told("archive", "-o", tmp_path / "both.a", code=1) == said


def test_an_archive_is_of_the_sources_as_they_are(told, empty_root, tiny, tmp_path, monkeypatch):
    """Also after the objects of another build were compiled there, or the store has lost them."""
    monkeypatch.chdir(tmp_path)
    engine.build(tiny())
    told("archive", "tiny")
    first = (tmp_path / "liblltm_jit_tiny.a").read_bytes()
    engine.build(tiny("int another() { return 43; }\n"))
    for path in (cache.builds_directory() / "objects").rglob("*.o"):
        path.unlink()
    tiny()
    assert told("archive", "tiny") == "liblltm_jit_tiny.a: 1 object\n"
    assert (tmp_path / "liblltm_jit_tiny.a").read_bytes() == first


@pytest.mark.parametrize(
    "words",
    [["info"], ["build"], ["cache", "why"], ["timings"], ["flags"], ["archive"]],
    ids=lambda words: words[0],
)
def test_an_unknown_name_is_told_which_there_are(told, empty_root, words):
    families = f"neither a path, nor a family ({', '.join(native.families())}), "
    named = f"nor the name of an extension that was built; {empty_root} has none"
    assert told(*words, "lstm", code=1) == f"error: 'lstm' is {families}{named}\n"
    assert told(*words, "styleganz", code=1).endswith("; did you mean stylegan?\n")


@pytest.mark.parametrize("command", ["archive", "compile-commands"])
@pytest.mark.parametrize(
    ("output", "said"), [("", "Is a directory"), ("nowhere/file", "No such file or directory")]
)
def test_an_output_that_cannot_be_written_is_an_error(
    told, builds, tmp_path, command, output, said
):
    path = tmp_path / output
    assert told(command, "basic", "-o", path, code=1) == f"error: {path}: {said}\n"


def test_a_build_directory_is_meant_by_its_path(told, empty_root, tiny, tmp_path):
    spec, place = tiny(), tmp_path / "place"
    arguments = {"build_directory": place, "is_python_module": False}
    info = lltm_jit.build("tiny", spec.paths, **arguments)
    families = json.loads(told("info", place, "--json"))["families"]
    assert families["tiny"]["directory"] == str(info.directory)
    assert "tiny: tiny.cpp" in told("timings", place)
    assert "# extension: tiny" in told("log", place)
    assert told("build", place) == f"{info.library}\n"
    assert f"tiny: lltm_jit.load loads {info.library}, made " in told("cache", "why", place)
    said = f"no build of its sources in {empty_root} yet; lltm_jit.load makes one"
    assert said in told("info", spec.paths[0])  # which may have been built anywhere


def test_log_shows_the_build_that_failed_last(told, empty_root, tiny, monkeypatch):
    assert "nothing was built yet" in told("log", code=1)
    engine.load(tiny())
    assert "tiny.cpp" in told("log")
    with pytest.raises(BuildError):
        engine.load(tiny("int answer() { return fourty_two; }\n"))
    for words in ([], ["tiny"]):
        assert "fourty_two" in told("log", *words)
    assert "/work/" in told("log", "--path")
    assert told("log", "rnn", code=1).endswith("; there are logs for tiny\n")
    monkeypatch.setattr(sys, "stdout", None)  # as where it was closed
    assert lltm_jit.cli.main(["log"]) == 0


@pytest.mark.slow
def test_a_build_of_another_checkout_is_told_with_the_paths_of_this_one(small_checkout, tmp_path):
    """The key is made of contents: the second copy finds what the first one, or another, built."""
    run_in(small_checkout, "-m", "lltm_jit", "build", "all")
    second = copy_with_small_families(tmp_path / "second")
    done = run_in(second, "-m", "lltm_jit", "cache", "why", "all")
    assert done.stdout.count(" loads ") == 2
    run_in(second, "-m", "lltm_jit", "compile-commands")
    entries = json.loads((second / "compile_commands.json").read_text())
    names = ("tiny/bindings.cpp", "other/bindings.cpp", "core/twice.cpp")
    assert {entry["file"] for entry in entries} == {f"{second}/kernels/{name}" for name in names}
    for entry in entries:
        assert f"-I{second / 'kernels'}" in entry["arguments"]
        assert str(small_checkout) not in " ".join(entry["arguments"])


@pytest.mark.slow
def test_an_operator_that_does_not_fit_its_schema_is_an_import_error(checkout):
    described = checkout / "lltm_jit" / "ops" / "basic.py"
    text = described.read_text().replace("def my_op(x: Tensor, y: Tensor)", "def my_op(x: Tensor)")
    described.write_text(text)
    program = "try:\n    import lltm_jit\nexcept ImportError as error:\n    print(error)\n"
    # Else the first use raises it.
    out = run_in(checkout, "-c", program, LLTM_JIT_AT_IMPORT="1", LLTM_JIT_BACKGROUND="0").stdout
    assert out.startswith("error: the operators of the built library cannot be registered: ")
    assert "expected schema: lltm_jit::my_op(Tensor x) -> Tensor" in out
