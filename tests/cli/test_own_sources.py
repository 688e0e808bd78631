"""An extension of the user's own: commands, by its name or the path of its sources; its wheel."""

import json
import os
import re
import sys
import zipfile
from functools import partial

import pytest
from small_checkout import CHECKOUT, environment, passes_its_tests, run_in
from small_files import MODULE, write

import lltm_jit
from lltm_jit import native
from lltm_jit.cli.new import create_standalone
from lltm_jit.jit import BuildError, wheel


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with the sources of two extensions, which is the current one."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        folder = tmp_path / "src" / name
        # A content of its own for each test, for what this process has loaded it does not build.
        write(folder / f"{name}.cpp", f'#include "value.h"\n{MODULE}// {tmp_path}\n')
        write(folder / "value.h", "#define VALUE 1\n")
    return tmp_path


def load(name):
    return lltm_jit.load(name, f"src/{name}", extra_cflags=["-DOWN=1"])


def test_a_name_and_a_path_mean_the_build_that_load_made(project, told):
    library = lltm_jit.build_info(load("first")).library
    (project / "first").mkdir()  # a folder of that name has nothing to do with it
    for word in ("src/first", "src/first/first.cpp", "src", str(project / "src" / "first")):
        assert told("build", word) == f"{library}\n"
    (project / "first").rmdir()
    assert told("build", "first") == f"{library}\n"
    assert json.loads(told("flags", "first", "--json"))["CPPFLAGS"].count("-DOWN=1") == 1
    assert "first: first.cpp" in told("timings", "first")
    assert told("log", "first", "--path") == told("log", "src/first", "--path")
    facts = json.loads(told("info", "first", "--json"))["families"]["first"]
    assert facts["library"] == str(library)
    assert told("archive", "first") == "liblltm_jit_first.a: 1 object\n"
    said = told("cache", "why", "first")
    assert said.startswith(f"first: lltm_jit.load loads {library}, made ")
    (project / "src" / "first" / "value.h").write_text("#define VALUE 2\n")
    said = told("cache", "why", "src/first")
    assert said.startswith("first: lltm_jit.load would build ")
    assert said.endswith(", because:\n  - first/value.h changed\n")
    assert "first: " in told("info", "first").splitlines()[-1]


def test_a_path_that_was_never_built(project, told):
    library = told("build", "src/second").strip()
    assert library.endswith("second.so")
    assert str(lltm_jit.build_info(lltm_jit.load("second", "src/second")).library) == library
    assert told("build", "src").split() == [library]  # what of it is built
    said = "'nowhere.cpp' is neither a path, nor a family (basic, rnn, stylegan), nor the name"
    assert said in told("build", "nowhere.cpp", code=1)


def test_a_build_whose_library_is_gone_is_none(project, told):
    os.remove(told("build", "src/first").strip())
    said = told("cache", "why", "src/first")
    assert said.startswith("first: lltm_jit.load would build it, because:")
    assert said.endswith("- the cached build cannot be used\n")
    assert "first: no build of its sources in " in told("info", "src/first")


def test_several_extensions_of_a_path(project, told):
    for name in ("first", "second"):
        load(name)
    built = told("build", "src").split()
    assert sorted(os.path.basename(line) for line in built) == ["first.so", "second.so"]
    said = told("flags", "src", code=1)
    assert "expected one extension, but src means 2: " in said


def test_compile_commands_of_a_path(project, told):
    output = project / "src" / "first" / "compile_commands.json"
    assert told("compile-commands", "src/first") == f"{output}: 1 file\n"
    (entry,) = json.loads(output.read_text())
    assert entry["file"] == str(project / "src" / "first" / "first.cpp")


def test_a_folder_of_a_family_is_the_family(told):
    path = os.path.relpath(CHECKOUT / "kernels" / "rnn" / "cells")
    assert told("cache", "why", path) == told("cache", "why", "rnn")


def test_text_is_known_by_its_name(project, told):
    module = lltm_jit.load_inline("text", MODULE, no_implicit_headers=True)
    assert told("build", "text").strip() == module.__file__


def test_build_compiles_and_imports_nothing(project, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "first", raising=False)
    info = lltm_jit.build("first", "src/first", extra_cflags=["-DOWN=1"])
    assert (info.name, info.cached, info.compiled) == ("first", False, 1)
    assert "first" not in sys.modules
    first, second = lltm_jit.build(
        [
            {"name": "first", "sources": "src/first", "extra_cflags": ["-DOWN=1"]},
            {"name": "second", "sources": ["src/second/second.cpp"], "build_directory": "here"},
        ]
    )
    assert (first.library, first.cached) == (info.library, True)
    assert second.library.is_relative_to(project / "here")
    assert "lltm_jit: second ready in " in capsys.readouterr().err
    assert lltm_jit.build("first", "src/first", extra_cflags=["-DOWN=1"], force=True).compiled == 1
    assert lltm_jit.build_info(load("first")).library == info.library


def test_one_that_fails_ends_the_others(project):
    (project / "src" / "first" / "value.h").write_text("#define VALUE nonsense\n")
    with pytest.raises(BuildError, match="nonsense"):
        lltm_jit.build([{"name": name, "sources": f"src/{name}"} for name in ("second", "first")])
    with pytest.raises(TypeError, match="no_such"):
        lltm_jit.build("first", "src/first", no_such=1)


@pytest.mark.slow
def test_watch_of_a_path(project, watching):
    # One write a line: the watch writes to the same pipe.
    program = "import lltm_jit; print(f\"value {lltm_jit.load('first', 'src/first').value()}\")"
    wait_for = watching(CHECKOUT, "src/first", "--", sys.executable, "-c", program)
    wait_for("watching first; Ctrl-C stops it")
    wait_for("value 1")
    (project / "src" / "first" / "value.h").write_text("#define VALUE 2\n")
    wait_for("first/value.h changed; new kernels after")
    wait_for("value 2")


WITH_THE_WHEEL = """
import torch, lltm_jit, blend
assert blend.blend(torch.tensor([1.0]), torch.tensor([2.0]), 3.0).tolist() == [5]
info = lltm_jit.build_info(blend.module)
print(info.library.name, info.reason, sep=": ")
assert lltm_jit.reload(blend.module) is blend.module
assert lltm_jit.build_info(blend.module) == info
"""


@pytest.mark.slow
def test_a_standalone_project_passes_its_tests_and_its_wheel_has_its_kernels(tmp_path):
    """Which are compiled once."""
    native.load("rnn")  # the program below finds the package's own kernels
    create_standalone(tmp_path, "blend", "scale_add")
    project, site = tmp_path / "blend", tmp_path / "site"
    assert passes_its_tests(project)
    setup = project / "setup.py"
    assert len(re.findall(r".*(?:PREBUILD|wheel).*", setup.read_text().rpartition('"""')[2])) == 3
    run_in(CHECKOUT, "setup.py", "-q", "bdist_wheel", cwd=project, LLTM_JIT_PREBUILD="1")
    (file,) = (project / "dist").glob("*.whl")
    assert not file.name.endswith("-any.whl")
    zipfile.ZipFile(file).extractall(site)
    assert not (project / "blend" / "prebuilt").exists()

    more = {"LLTM_JIT_DISABLE_JIT": "1", **environment(site, CHECKOUT)}
    run = partial(run_in, CHECKOUT, "-c", WITH_THE_WHEEL, **more)
    assert run().stdout == "blend_kernels.so: compiled when the package was built\n"
    with (site / "blend" / "kernels" / "blend.h").open("a") as header:
        header.write("// edited\n")
    done = run(code=1)
    assert "library of blend_kernels is not used: kernels/blend.h changed\n" in done.stderr
    assert "LLTM_JIT_DISABLE_JIT forbids" in done.stderr


def test_a_package_that_loads_nothing_has_no_kernels_for_a_wheel(tmp_path, monkeypatch):
    (tmp_path / "nothing_loaded.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(wheel, "given_modules", list)  # which other tests have filled
    with pytest.raises(BuildError, match="nothing_loaded loads no extension with sources"):
        wheel._put("nothing_loaded", tmp_path)
