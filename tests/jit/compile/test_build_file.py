"""The build file: what torch's own ``load`` would write, up to what the engine adds on purpose."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import text_of, tiers
from small_files import script
from torch.utils import cpp_extension

from lltm_jit.jit.compile import ninja
from lltm_jit.jit.machine.tools import find_ninja
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.request.spec import spec
from lltm_jit.jit.store import cache

KINDS: dict[str, dict[str, Any]] = {
    "a module": {},
    "a program": {"is_python_module": False, "is_standalone": True},
    "flags with quotes": {
        "extra_cflags": ["-DX='a b'", '-DY="\\"c\\""', "-DZ=$$HOME"],
        "extra_ldflags": ["-lm", "-L'/a b'"],
    },
    "include paths": {"extra_include_paths": ["/a b", "/a:b", "/a'b"]},
    "a linker of its own": {"extra_ldflags": ["-fuse-ld=bfd"]},
    "cuda": {"extra_cuda_cflags": ["-DX='a b'", "--use_fast_math"]},
    "cuda for chosen architectures": {"extra_cuda_cflags": ["-gencode=arch=compute_80,code=sm_80"]},
}


@pytest.fixture
def cuda(cuda, toolkit, monkeypatch):
    """torch and the engine take the bench's toolkit for theirs."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(toolkit))
    monkeypatch.setattr(cpp_extension, "_check_cuda_version", lambda *_: None, raising=False)
    return cuda


def written_by_us(request: Request) -> str:
    cache.make_builds_directory()
    cache.make_directory(request.work)
    ninja.BuildFile(request).write(request.objects, {}, 1)
    return (request.work / "build.ninja").read_text()


def written_by_torch(monkeypatch, arguments: dict[str, Any]) -> str:
    """The build file of torch's ``load``, which compiles nothing here."""
    found = []

    def note(build_directory: str, *_: object, **__: object) -> None:
        found.append(Path(build_directory, "build.ninja").read_text())
        raise InterruptedError

    monkeypatch.setattr(cpp_extension, "_run_ninja_build", note)
    monkeypatch.setenv("PATH", f"{find_ninja().parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TORCH_NO_COMPILER_WRAPPER", "1")
    with pytest.raises(InterruptedError):
        cpp_extension.load(**arguments)
    return found[0]


def parts(text: str) -> dict[str, Any]:
    """The variables, in words, and the rules of a build file."""
    variables = dict(re.findall(r"(?m)^(\w+) = ?(.*)$", text))
    rules = dict(re.findall(r"(?m)^rule (\w+)\n((?:  .*\n)+)", text))
    return {name: value.split() for name, value in variables.items()} | rules


@pytest.mark.parametrize("kind", tiers(KINDS, ("a module", "flags with quotes", "cuda")))
def test_it_is_what_torch_would_write(request, bench, monkeypatch, kind):
    """The engine's own flags are given to torch, too."""
    name = re.sub(r"\W", "_", request.node.name)  # torch counts the loads of a name
    given = {**kind, "name": name, "sources": [str(bench.write("x.cpp", ""))]}
    if "extra_cuda_cflags" in kind:
        request.getfixturevalue("cuda")
        given["sources"].append(str(bench.write("y.cu", "")))
    asked = Request(spec(**given))
    written = written_by_us(asked).replace(f" {ninja.TELL_LINK}", "")
    ours = parts(written.replace(f" -isystem {shlex.quote(str(ninja._FORMS))}", ""))
    for told in ("cflags", "cuda_cflags", "ldflags"):
        given[f"extra_{told}"] = [*getattr(asked, told)]
    # What the engine adds to it, but for the linker's report.
    theirs = written_by_torch(monkeypatch, given).replace(" -MMD -MF ", " -MD -MF ")
    theirs = theirs.replace("  deps = gcc\n", "")
    place = cpp_extension.TORCH_LIB_PATH  # in which torch leaves blanks as they are
    for option in ("-L", "-Wl,-rpath,"):
        theirs = theirs.replace(f"{option}{place}", f"{option}{shlex.quote(place)}")
    theirs = parts(theirs)
    if asked.with_cuda:  # the architectures are in another place
        for each in (ours, theirs):
            each["cuda_cflags"].sort()
    assert ours == theirs


@pytest.mark.parametrize(("given", "last"), [([], "-O1"), (["-O3"], "-O3")])
def test_your_own_sources_have_a_level_that_your_flags_override(bench, cuda, given, last):
    sources = [str(bench.write("x.cpp", "")), str(bench.write("y.cu", ""))]
    asked = Request(spec("x", sources, extra_cflags=given, extra_cuda_cflags=given))
    for flags in (asked.cflags, asked.cuda_cflags):
        assert [flag for flag in flags if flag.startswith("-O")][-1] == last


@pytest.mark.parametrize("cxx", ["c++", "env c++", "env 'X=a b' c++"])
def test_commands_are_those_that_ninja_runs(real, monkeypatch, cxx):
    """By which objects are found in the store; whatever a path or a flag has in it."""
    monkeypatch.setenv("CXX", cxx)
    flags = ["-DX='a b'", "-DY=$$HOME", "-I'/a b'"]
    sources = [real.write(f"{name}.cpp", "") for name in ("x", "a b", "a$b", "a:b", "a'b")]
    asked = Request(spec("x", sources, extra_cflags=flags, extra_include_paths=["/a:b", "/c d"]))
    written_by_us(asked)
    told = subprocess.check_output([find_ninja(), "-t", "commands"], cwd=asked.work, text=True)
    ours = [*ninja.BuildFile(asked).commands().values()]
    *theirs, _ = told.splitlines()
    assert [shlex.split(command) for command in ours] == [shlex.split(line) for line in theirs]
    assert told.startswith(f"{cxx} ")


def test_a_ccache_that_comes_and_goes(bench, monkeypatch):
    """It is called where torch calls it, as newer ones do one on PATH, and no build names one that
    is gone.
    """
    ccache = bench.directory / "wrappers" / "ccache"
    monkeypatch.setenv("PATH", f"{ccache.parent}{os.pathsep}{os.environ['PATH']}")

    def edit(text: str) -> bool:
        bench.write("two/two.cpp", text)
        assert text_of(bench.load()).endswith(text)
        return "wrapped" in bench.counts

    assert not edit("one")
    script(ccache, 'echo wrapped >> "$FAKE_COUNTS"\nexec "$@"')
    if not edit("two"):
        pytest.skip("this torch calls no ccache")
    monkeypatch.setenv("TORCH_NO_COMPILER_WRAPPER", "1")
    assert not edit("three")
    monkeypatch.delenv("TORCH_NO_COMPILER_WRAPPER")
    ccache.unlink()
    assert not edit("four")


def test_the_place_of_cudas_libraries(cuda, toolkit):
    for number, folder in enumerate(("lib", "lib64")):
        (toolkit / folder).mkdir()
        cuda.write("two/two.cpp", f"{number}\n")
        assert f"-L{toolkit}/{folder} " in (cuda.load().info.directory / "build.ninja").read_text()


def test_an_environment_that_names_no_architecture_of_torchs(cuda, monkeypatch):
    """torch would ask a GPU, or take all that it was built for. Its module stays as it was."""
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/elsewhere")
    assert re.findall(r"code=(\w+)", written_by_us(Request(cuda.spec())))
    assert cpp_extension.CUDA_HOME == "/elsewhere"
