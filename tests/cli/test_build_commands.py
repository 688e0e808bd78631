"""The commands about a build: log, timings, flags, compile-commands, archive."""

import json
import shutil
import subprocess
import sys
import sysconfig

import pytest
from small_checkout import run_in
from tiny_builds import builds, tiny_spec

import lltm_jit
from lltm_jit import native
from lltm_jit.cli import main, timings
from lltm_jit.jit import BuildError, detect
from lltm_jit.jit.loading import engine
from lltm_jit.jit.user.progress import source_name


@pytest.mark.parametrize("families", [[], ["rnn"]])
def test_timings_lists_every_source_slowest_first(capsys, families):
    assert main(["timings", *families]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    names = {line[2] for line in lines}
    expected = {"total"}
    for family in families or native.OWN:
        spec = native.spec(family, detect())
        for path, target in zip(spec.sources, spec.objects, strict=True):
            expected.add(f"{family}: {source_name(str(path), target)}")
        expected.add(f"{family}: link {builds()[family].library.name}")
    assert names == expected
    assert len(names) == len(lines)
    seconds = [float(line[0]) for line in lines]
    assert seconds[:-1] == sorted(seconds[:-1], reverse=True)
    assert seconds[-1] == pytest.approx(sum(seconds[:-1]), abs=0.1)


def test_timings_leave_out_a_source_that_is_gone(empty_root, tmp_path):
    spec, toolchain = tiny_spec(tmp_path)
    gone = tmp_path / "gone.cpp"
    gone.write_text("int question() { return 0; }\n")
    engine.build(spec._replace(sources=(*spec.sources, gone)), toolchain)
    info = engine.build(spec, toolchain)
    assert info.reused == 1
    names = {name for _, name in timings.collect(info)}
    assert names == {"tiny: tiny.cpp", f"tiny: link {info.library.name}"}


def test_timings_name_sources_whatever_their_objects_are_called(empty_root, tmp_path):
    spec, toolchain = tiny_spec(tmp_path)
    texts = {"other/tiny.cpp": "int a;\n", "a b.cpp": "int b;\n", "c.d.cpp": "int c;\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    sources = (*spec.sources, *(tmp_path / name for name in texts))
    info = engine.build(spec._replace(sources=sources), toolchain)
    assert {name for _, name in timings.collect(info)} == {
        "tiny: a b.cpp",
        "tiny: c.d.cpp",
        f"tiny: link {info.library.name}",
        f"tiny: {tmp_path.name}/other/tiny.cpp",
        f"tiny: {tmp_path.name}/tiny/tiny.cpp",
    }
    info = engine.build(spec, toolchain)  # whose one object has another name than it had
    names = sorted(name for _, name in timings.collect(info))
    assert names == [f"tiny: link {info.library.name}", "tiny: tiny.cpp"]
    assert len(list(info.directory.glob("*.o"))) == 1


def test_flags_build_an_extension_from_a_makefile(capsys, tmp_path):
    assert main(["flags"]) == 0
    (tmp_path / "flags.mk").write_text(capsys.readouterr().out)
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


def test_flags_as_json(capsys):
    assert main(["flags", "rnn", "--json"]) == 0
    flags = json.loads(capsys.readouterr().out)
    assert "-DTORCH_EXTENSION_NAME=rnn" in flags["CPPFLAGS"]
    assert sysconfig.get_path("include") in flags["CPPFLAGS"]
    assert "-O3" in flags["CXXFLAGS"]
    assert "-ltorch_python" in flags["LDFLAGS"]
    assert not [word for word in flags["LDFLAGS"] if "dependency-file" in word]
    assert ("NVCC" in flags) == bool(builds()["rnn"].nvcc)


def test_compile_commands_lists_every_source(capsys, tmp_path):
    output = tmp_path / "compile_commands.json"
    assert main(["compile-commands", "-o", str(output)]) == 0
    entries = json.loads(output.read_text())
    specs = [native.spec(family, detect()) for family in native.families()]
    sources = {str(source) for spec in specs for source in spec.sources}
    assert {entry["file"] for entry in entries} == sources
    assert len(entries) == len(sources)  # those of core/ are compiled for several families
    for entry in entries:
        assert sysconfig.get_path("include") in entry["arguments"]
        if entry["file"].endswith(".cu"):
            assert entry["arguments"][:3] == ["clang++", "-x", "cuda"]
            assert "-gencode" not in " ".join(entry["arguments"])


def test_archives_hold_every_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time they are written anew
        assert main(["archive"]) == 0
    assert main(["archive", "rnn", "-o", "other.a"]) == 0
    assert (tmp_path / "other.a").read_bytes() == (tmp_path / "liblltm_jit_rnn.a").read_bytes()
    for family in native.OWN:
        words = ["ar", "t", f"liblltm_jit_{family}.a"]
        members = subprocess.run(words, capture_output=True, text=True).stdout.split()
        assert sorted(name.split(".")[0] for name in members) == sorted(
            source.stem for source in builds()[family].sources
        )


def test_one_file_is_not_for_two_archives(capsys, tmp_path):
    assert main(["archive", "-o", str(tmp_path / "both.a")]) == 1
    said = "error: expected one extension with --output, but got 2: basic, rnn\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "words",
    [["info"], ["build"], ["cache", "why"], ["timings"], ["flags"], ["archive"]],
    ids=lambda words: words[0],
)
def test_an_unknown_name_is_told_which_there_are(capsys, empty_root, words):
    assert main([*words, "lstm"]) == 1
    families = f"neither a path, nor a family ({', '.join(native.families())}), "
    named = f"nor the name of an extension that was built; {empty_root} has none"
    assert capsys.readouterr().err == f"error: 'lstm' is {families}{named}\n"
    assert main([*words, "styleganz"]) == 1
    assert capsys.readouterr().err.endswith("; did you mean stylegan?\n")


def test_a_build_directory_is_meant_by_its_path(capsys, empty_root, tmp_path):
    spec, _ = tiny_spec(tmp_path)
    place = tmp_path / "place"
    arguments = {"build_directory": place, "is_python_module": False}
    info = lltm_jit.build("tiny", spec.sources, **arguments)
    assert main(["info", str(place), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["families"]["tiny"]
    assert told["directory"] == str(info.directory)
    for words, expected in ((["timings"], "tiny: tiny.cpp"), (["log"], "# extension: tiny")):
        assert main([*words, str(place)]) == 0
        assert expected in capsys.readouterr().out
    assert main(["info", str(spec.sources[0])]) == 0  # which may have been built anywhere
    said = f"no build of its sources in {empty_root} yet; lltm_jit.load makes one"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("command", ["archive", "compile-commands"])
@pytest.mark.parametrize(
    ("output", "said"), [("", "Is a directory"), ("nowhere/file", "No such file or directory")]
)
def test_an_output_that_cannot_be_written_is_an_error(capfd, tmp_path, command, output, said):
    path = tmp_path / output
    families = ["basic"] if command == "archive" else []
    assert main([command, *families, "-o", str(path)]) == 1
    assert capfd.readouterr().err.endswith(f"{path}: {said}\n")


def test_log_of_nothing_is_an_error(capsys, empty_root):
    assert main(["log"]) == 1
    assert "nothing was built yet" in capsys.readouterr().err


def test_log_shows_the_build_that_failed_last(capsys, empty_root, tmp_path, monkeypatch):
    engine.load(*tiny_spec(tmp_path))
    assert main(["log"]) == 0
    assert "tiny.cpp" in capsys.readouterr().out
    with pytest.raises(BuildError):
        engine.load(*tiny_spec(tmp_path, "int answer() { return fourty_two; }\n"))
    capsys.readouterr()
    assert main(["log"]) == 0
    assert "fourty_two" in capsys.readouterr().out
    assert main(["log", "--path"]) == 0
    assert "failed" in capsys.readouterr().out
    assert main(["log", "tiny"]) == 0
    assert "fourty_two" in capsys.readouterr().out
    assert main(["log", "rnn"]) == 1
    assert capsys.readouterr().err.endswith("; there are logs for tiny\n")
    monkeypatch.setattr(sys, "stdout", None)  # as where it was closed
    assert main(["log"]) == 0


@pytest.mark.slow
def test_a_build_of_another_checkout_is_told_with_the_paths_of_this_one(small_checkout, tmp_path):
    """The key is made of contents: the second copy finds what the first one, or another, built."""
    assert run_in(small_checkout, "-m", "lltm_jit", "build").returncode == 0
    second = tmp_path / "second"
    shutil.copytree(small_checkout, second)
    small_checkout.rename(tmp_path / "moved")
    assert run_in(second, "-m", "lltm_jit", "compile-commands").returncode == 0
    entries = json.loads((second / "compile_commands.json").read_text())
    kernels = second / "kernels"
    sources = {
        str(kernels / name)
        for name in ("tiny/bindings.cpp", "other/bindings.cpp", "core/twice.cpp")
    }
    assert {entry["file"] for entry in entries} == sources
    flags = run_in(second, "-m", "lltm_jit", "flags").stdout.splitlines()
    for words in [*(entry["arguments"] for entry in entries), " ".join(flags).split()]:
        assert f"-I{kernels}" in words
        copies = tmp_path.parent  # where the copies of all tests lie
        assert not [word for word in words if str(copies) in word and str(second) not in word]


def test_an_operator_that_does_not_fit_its_schema_is_an_import_error(checkout, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_BACKGROUND", "0")  # else the first use raises it
    described = checkout / "lltm_jit" / "ops" / "basic.py"
    text = described.read_text().replace("def my_op(x: Tensor, y: Tensor)", "def my_op(x: Tensor)")
    described.write_text(text)
    program = "try:\n    import lltm_jit\nexcept ImportError as error:\n    print(error)\n"
    out = run_in(checkout, "-c", program).stdout
    assert out.startswith("error: the operators of the built library cannot be registered: ")
    assert "expected schema: lltm_jit::my_op(Tensor x) -> Tensor" in out
