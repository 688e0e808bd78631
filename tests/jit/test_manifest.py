"""Every way in which a build comes to a file: a change of the file gives another build."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_bench import ALL, finish, text_of, wait_for

from lltm_jit import jit
from lltm_jit.jit import cache, engine, manifest, reads, torch_api
from lltm_jit.jit.fingerprint import Request

SOURCE = '#include "value.h"\nextern "C" int value() { return VALUE; }\n'
PLAIN = 'extern "C" int value() { return VALUE; }\n'
ASKS = """
#if __has_include("value.h")
#include "value.h"
#else
#define VALUE 1
#endif
"""
DEPFILES = (
    "-MD -MF a.o.d",
    "-MMD -MF a.o.d",
    "--generate-dependencies-with-compile --dependency-output a.o.d",
    "--generate-nonsystem-dependencies-with-compile --dependency-output a.o.d",
)
INCBIN = """
asm(".pushsection .rodata\\n.hidden data\\n.globl data\\ndata: .incbin \\"FILE\\"\\n.popsection");
extern "C" __attribute__((visibility("hidden"))) const char data[];
extern "C" int value() { return data[14] - '0'; }
"""
LINKED = 'extern "C" int other();\nextern "C" int value() { return other(); }\n'


class Way(NamedTuple):
    """A source, and what leads from it to the file ``edited``; ``{}`` is the directory of both."""

    source: str = SOURCE
    edited: str = "far/value.h"
    cflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    environment: tuple[str, str] = ("UNUSED", "")
    more: tuple[tuple[str, str], ...] = ()  # other files
    appears: bool = False  # the file comes only after the first build, which another one served


ONE = ("near/value.h", "#define VALUE 1\n")
WAYS = {
    "beside the source": Way(edited="value.h"),
    "an include path": Way(include_paths=("{}/far",)),
    "-I": Way(cflags=("-I{}/far",)),
    "-I and a blank": Way(cflags=("-I", "{}/far")),
    "-I joined to another flag": Way(cflags=("-DUNUSED -I{}/far",)),
    "-I in quotes": Way(cflags=('"-I{}/far"',)),
    "-I with quotes and blanks": Way(edited="so far/value.h", cflags=("-I'{}/so far'",)),
    "-I with an escaped blank": Way(edited="so far/value.h", cflags=("-I{}/so\\ far",)),
    "--include-directory": Way(cflags=("--include-directory", "{}/far")),
    "--include-directory=": Way(cflags=("--include-directory={}/far",)),
    "-iquote": Way(cflags=("-iquote{}/far",)),
    "-isystem": Way(cflags=("-isystem", "{}/far")),
    "-idirafter": Way(cflags=("-idirafter", "{}/far")),
    "-include": Way(PLAIN, cflags=("-include", "{}/far/value.h")),
    "-imacros": Way(PLAIN, cflags=("-imacros", "{}/far/value.h")),
    "a file of flags": Way(more=(("flags", "-I{}/far"),), cflags=("@{}/flags",)),
    "a flag in a file of flags": Way(PLAIN, edited="flags", cflags=("@{}/flags",)),
    "a file of flags in a file of flags": Way(
        PLAIN, edited="flags", cflags=("@{}/more",), more=(("more", "@{}/flags"),)
    ),
    "a file of specs": Way(PLAIN, edited="specs", cflags=("-specs={}/specs",)),
    "what an assembler includes": Way(INCBIN.replace("FILE", "{}/far/value.h")),
    "CPATH": Way(environment=("CPATH", "{}/far")),
    "CPLUS_INCLUDE_PATH": Way(environment=("CPLUS_INCLUDE_PATH", "{}/far")),
    "brackets": Way(SOURCE.replace('"value.h"', "<value.h>"), cflags=("-I{}/far",)),
    "a macro": Way('#define FILE "value.h"\n#include FILE\n' + PLAIN, cflags=("-I{}/far",)),
    "a comment": Way(SOURCE.replace("include", "/* no */ include /* x */"), cflags=("-I{}/far",)),
    "a line continuation": Way(SOURCE.replace("ude ", "ude \\\n"), cflags=("-I{}/far",)),
    "a digraph": Way(SOURCE.replace("#include", "%:include"), cflags=("-I{}/far",)),
    "import": Way(SOURCE.replace("#include", "#import"), cflags=("-I{}/far",)),
    "include_next": Way(
        more=(("near/value.h", "#include_next <value.h>\n"),), cflags=("-I{}/near", "-I{}/far")
    ),
    "a header that includes it": Way(
        include_paths=("{}/near",), more=(("near/value.h", '#include "../far/value.h"\n'),)
    ),
    "a new header in an earlier directory": Way(
        cflags=("-I{}/far", "-I{}/near"), more=(ONE,), appears=True
    ),
    "a new header in a directory that was not there": Way(
        edited="new/value.h", cflags=("-I{}/new", "-I{}/near"), more=(ONE,), appears=True
    ),
    "a new header beside the source": Way(
        edited="value.h", cflags=("-I{}/near",), more=(ONE,), appears=True
    ),
    "a new header above an earlier directory": Way(
        SOURCE.replace('"value.h"', "<../value.h>"),
        cflags=("-I{}/far/sub", "-I{}/near/sub"),
        more=(ONE, ("far/sub/x.h", ""), ("near/sub/x.h", "")),
        appears=True,
    ),
    "a new header in a folder of two directories": Way(
        SOURCE.replace("value.h", "lib/value.h"),
        edited="far/lib/value.h",
        cflags=("-I{}/far", "-I{}/near"),
        more=(("near/lib/value.h", ONE[1]), ("far/lib/another.h", "")),
        appears=True,
    ),
    "a new header that include_next finds": Way(
        cflags=("-I{}/near", "-I{}/far", "-I{}/last"),
        more=(("near/value.h", "#include_next <value.h>\n"), ("last/value.h", ONE[1])),
        appears=True,
    ),
    "a header that __has_include asks for": Way(ASKS + PLAIN, cflags=("-I{}/far",), appears=True),
    "a header that __has_include of a macro asks for": Way(
        '#define FILE "value.h"\n' + ASKS.replace('("value.h")', "(FILE)") + PLAIN,
        cflags=("-I{}/far",),
        appears=True,
    ),
    "a header that a macro made of __has_include asks for": Way(
        "#define HAS(file) __has_include(file)\n" + ASKS.replace("__has_include", "HAS") + PLAIN,
        cflags=("-I{}/far",),
        appears=True,
    ),
    "a header in a folder that __has_include asks for": Way(
        ASKS.replace("value.h", "lib/value.h") + PLAIN,
        edited="far/lib/value.h",
        cflags=("-I{}/far",),
        appears=True,
    ),
}


@pytest.fixture
def real(bench, monkeypatch):
    """The bench with a real compiler, and torch's build in small."""
    monkeypatch.setenv("CXX", "c++")
    return bench


def value(bench, **arguments) -> int:
    source = bench.sources / "source.cpp"
    return value_of(torch_api.load("value", source, is_python_module=False, **arguments))


def value_of(path: str) -> int:
    return ctypes.CDLL(path).value()


def define(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {"flags": f"-DVALUE={number}", "specs": f"*cc1plus:\n+ -DVALUE={number}\n\n"}
    path.write_text(texts.get(path.name, f"#define VALUE {number}\n"))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_changed_file_gives_another_build(real, monkeypatch, way):
    assert_seen(real, monkeypatch, way)


@pytest.mark.parametrize("name", ["-I", "-isystem", "CPATH", "a macro", "include_next"])
def test_a_changed_file_that_is_not_the_users_own(real, monkeypatch, name):
    """As those below /usr/local/include and CUDA_HOME, which are compared by stamp first."""
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{real.sources}/far/", f"{real.sources}/near/"))
    assert_seen(real, monkeypatch, WAYS[name])


def assert_seen(bench, monkeypatch, way: Way) -> None:
    root = str(bench.sources)

    def placed(texts):
        return [text.replace("{}", root) for text in texts]

    bench.write("source.cpp", way.source.replace("{}", root))
    for name, text in way.more:
        bench.write(name, text.replace("{}", root))
    name, where = way.environment
    monkeypatch.setenv(name, where.replace("{}", root))
    given = {
        "extra_cflags": placed(way.cflags),
        "extra_include_paths": placed(way.include_paths),
    }
    edited = bench.sources / way.edited
    if not way.appears:
        define(edited, 1)
    assert value(bench, **given) == 1
    assert value(bench, **given) == 1
    assert len(list(bench.builds.glob("*/ok.json"))) == 1
    define(edited, 2)
    assert value(bench, **given) == 2
    assert value(bench, **given) == 2
    assert len(list(bench.builds.glob("*/ok.json"))) == 2
    if way.appears:
        edited.unlink()
    else:
        define(edited, 1)
    assert value(bench, **given) == 1


def test_a_header_below_the_cuda_toolkit(real, monkeypatch):
    toolkit = real.write_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    real.write("source.cpp", SOURCE)
    for number in (1, 2):
        define(toolkit / "include" / "value.h", number)
        assert value(real, extra_include_paths=[toolkit / "include"]) == number


@pytest.mark.parametrize("edited", ["header", "script"])
def test_a_compiler_that_is_a_script_and_adds_flags(real, monkeypatch, edited):
    script = real.sources / "wrapper"
    monkeypatch.setenv("CXX", str(script))
    real.write("source.cpp", SOURCE)
    for number in (1, 2):
        place = real.sources / ("far" if edited == "header" else f"far{number}")
        define(place / "value.h", number)
        script.write_text(f'#!/bin/sh\nexec c++ -I{place} "$@"\n')
        script.chmod(0o755)
        assert value(real) == number


def test_a_compiler_that_does_not_tell_what_it_reads(real, monkeypatch):
    script = real.sources / "wrapper"
    script.write_text('#!/bin/sh\nc++ "$@" || exit\nrm -f *.o.d\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    real.write("source.cpp", PLAIN.replace("VALUE", "1"))
    with pytest.raises(jit.BuildError, match=r"not report which headers .* CXX must pass on -MMD"):
        value(real)
    monkeypatch.delenv("CXX")
    assert value(real) == 1


def compiled(bench, number: int, name: str = "other") -> Path:
    source = bench.write(f"{name}.cpp", f'extern "C" int {name}() {{ return {number}; }}\n')
    target = bench.directory / f"{name}-{number}.o"
    subprocess.run(["c++", "-fPIC", "-c", str(source), "-o", str(target)], check=True)
    return target


def archive(place: Path, *objects: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(place), *map(str, objects)], check=True)


LINKS = {
    "an object": ("far/other.o", ("{}/far/other.o",)),
    "a static library": ("far/libother.a", ("{}/far/libother.a",)),
    "-L and -l": ("far/libother.a", ("-L{}/far", "-lother")),
    "-L and -l in one string": ("far/libother.a", ("-L{}/far -lother",)),
    "-l with the file's name": ("far/libother.a", ("-L{}/far", "-l:libother.a")),
    "-Wl": ("far/libother.a", ("-Wl,-L{}/far,-lother",)),
    "-Wl,--library-path": ("far/libother.a", ("-Wl,--library-path,{}/far", "-lother")),
    "-Wl,--library-path=": ("far/libother.a", ("-Wl,--library-path={}/far,--library=other",)),
    "a file of the linker's flags": ("far/libother.a", ("-Wl,@{}/words",)),
    "a linker script": ("far/libreal.a", ("{}/script",)),
    "LIBRARY_PATH": ("far/libother.a", ("-lother",)),
}


@pytest.mark.parametrize(("file", "ldflags"), LINKS.values(), ids=LINKS)
def test_a_changed_file_that_is_linked(real, monkeypatch, file, ldflags):
    assert_linked(real, monkeypatch, file, ldflags)


@pytest.mark.parametrize("name", sorted(LINKS.keys() - {"a linker script"}))
def test_a_changed_file_that_an_old_linker_reads(real, monkeypatch, name):
    """Which does not tell, so that the flags have to."""
    monkeypatch.setattr("lltm_jit.jit.reads.linker_flags", lambda *_: ())
    assert_linked(real, monkeypatch, *LINKS[name])


def assert_linked(real, monkeypatch, file: str, ldflags: tuple[str, ...]) -> None:
    if ldflags == ("-lother",):
        monkeypatch.setenv("LIBRARY_PATH", str(real.sources / "far"))
    real.write("source.cpp", LINKED)
    real.write("script", f"INPUT({real.sources}/far/libreal.a)\n")
    real.write("words", f"-L{real.sources}/far\n-lother\n")
    flags = [flag.replace("{}", str(real.sources)) for flag in ldflags]
    for number in (1, 2, 1):
        place = real.sources / file
        made = compiled(real, number)
        place.parent.mkdir(exist_ok=True)
        if place.suffix == ".a":
            archive(place, made)
        else:
            shutil.copyfile(made, place)
        assert value(real, extra_ldflags=flags) == number


def test_a_changed_file_of_the_linkers_flags(real):
    real.write("source.cpp", LINKED)
    for number in (1, 2, 1):
        archive(real.sources / f"{number}" / "libother.a", compiled(real, number))
        real.write("words", f"-L{real.sources}/{number} -lother")
        assert value(real, extra_ldflags=[f"-Wl,@{real.sources}/words"]) == number


def test_what_the_linker_reads_is_compiled_into_nothing(real, capfd):
    """Nor is a path that is the value of a macro."""
    real.write("source.cpp", LINKED)
    library, log = real.sources / "far" / "libother.a", real.write("log", "a line\n")
    for number in (1, 2):
        archive(library, compiled(real, number))
        log.write_text(f"{number} lines\n")
        flags = {"extra_ldflags": [str(library)], "extra_cflags": [f"-DLOG={log}"]}
        assert value(real, **flags) == number
    assert capfd.readouterr().err.rstrip().endswith("(0 compiled, 1 reused)")


def test_a_file_for_the_assembler_in_a_part_that_is_not_compiled(real):
    """It need not be there, and once it is, nobody knows whether that part counts."""
    place = real.sources / "far" / "data"
    source = f"#ifdef EMBED\n{INCBIN.replace('FILE', str(place))}\n#else\n{PLAIN}#endif\n"
    real.write("source.cpp", source.replace("return VALUE", "return 7"))
    assert value(real) == 7
    assert value(real) == 7


UNTOLD = {
    "an assembler's file in a macro": (
        "#define STRING(x) #x\n#define IN(x) STRING(x)\n" + INCBIN.replace("FILE", '" IN(PLACE) "'),
        ".incbin",
    ),
    "a macro with arguments": (
        "#define STRING(x) #x\n" + ASKS.replace('("value.h")', "(STRING(value.h))") + PLAIN,
        "__has_include of a macro with arguments",
    ),
}


@pytest.mark.parametrize(("source", "what"), UNTOLD.values(), ids=UNTOLD)
def test_what_nobody_tells_is_built_again(real, source, what):
    """A file whose name only the compiler knows, and which it does not report."""
    real.write("source.cpp", source)
    flags = [f"-I{real.sources}/far", f"-DPLACE={real.sources}/far/value.h"]
    for number in (1, 2, 2, 1):
        define(real.sources / "far" / "value.h", number)
        assert value(real, extra_cflags=flags) == number
    again = engine.load(spec_of(real, flags)).info
    assert not again.cached
    assert again.reason == f"what no compiler reports ({what}) may have changed"


def spec_of(real, flags):
    source = real.sources / "source.cpp"
    arguments = {"is_python_module": False, "extra_cflags": flags}
    return torch_api.extension("value", source, **arguments).spec(jit.detect())


@pytest.mark.parametrize("option", ["-L", "-Wl,--library-path=", "-Wl,--library-path,"])
def test_a_new_library_in_an_earlier_directory(real, option):
    real.write("source.cpp", LINKED)
    flags = [f"{option}{real.sources}/near", f"{option}{real.sources}/far", "-lother"]
    for number, place in enumerate(("far", "near"), 1):
        archive(real.sources / place / "libother.a", compiled(real, number))
        assert value(real, extra_ldflags=flags) == number


def test_a_system_directory_that_is_a_link(real):
    """gcc names its files by their real path where that is shorter."""
    real.write("source.cpp", SOURCE)
    link = real.sources / "the-current-version"
    for number in (1, 2):
        define(real.sources / f"v{number}" / "value.h", number)
        link.unlink(missing_ok=True)
        link.symlink_to(real.sources / f"v{number}")
        assert value(real, extra_cflags=[f"-isystem{link}"]) == number


def test_a_touched_header_builds_nothing(real, monkeypatch):
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{real.sources}/far/",))
    header = real.write("far/value.h", ONE[1])
    real.write("source.cpp", SOURCE)
    future = time.time() + 1000
    for _ in range(2):
        assert value(real, extra_cflags=[f"-I{real.sources}/far"]) == 1
        os.utime(header, (future, future))
    assert len(list(real.builds.glob("*/ok.json"))) == 1


def test_another_machine_that_shares_the_cache_reads_system_headers_once(real, monkeypatch):
    """There they have other stamps, and the same content."""
    library = real.directory / "library"
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{library}/",))
    header = library / "value.h"
    define(header, 1)
    real.write("source.cpp", SOURCE)
    flags = [f"-I{library}"]
    value(real, extra_cflags=flags)
    (record,) = cache.records()
    request = Request.of(spec_of(real, flags), jit.detect())
    read = []
    digest = manifest.digest
    monkeypatch.setattr(manifest, "digest", lambda path: read.append(path) or digest(path))

    def reads() -> int:
        read.clear()
        arguments = (record.fingerprint, record.manifest, record.places, record.directory)
        assert request.is_of(*arguments)
        return read.count(str(header))

    for number in range(1, 12):  # machines
        shutil.copyfile(header, library / "other")
        os.replace(library / "other", header)
        os.utime(header, (number, number))
        time.sleep(0.06)  # a stamp that a change right now could leave the same is not believed
        assert [reads(), reads()] == [1, 0]
    known = cache.read_json(record.directory / "stamps.json")
    assert 2 <= len(known[str(header)]) <= manifest._MACHINES
    define(header, 2)
    assert value(real, extra_cflags=flags) == 2
    (record.directory / "stamps.json").write_text("damaged")
    define(header, 1)
    assert reads() == 1
    shutil.rmtree(record.directory)
    assert reads() == 1


def test_a_new_file_that_nobody_looks_for_builds_nothing(real):
    real.write("near/value.h", ONE[1])
    real.write("source.cpp", SOURCE)
    for name in ("one.h", "two.h"):
        assert value(real, extra_cflags=[f"-I{real.sources}/near"]) == 1
        real.write(f"near/{name}", "")
    assert len(list(real.builds.glob("*/ok.json"))) == 1


def test_the_other_objects_are_reused(bench):
    bench.load()
    assert bench.counts == ALL
    bench.write("one/core/shared.h", "a header that comes first\n")
    build = bench.load()
    assert bench.counts == ["compile one.cpp", "link"]
    assert text_of(build).startswith("a header that comes first")
    assert build.info.reason == "core came or went on its search path"


def test_another_checkout_shares_a_build(bench):
    first = engine.build(bench.spec(), jit.detect())
    assert bench.counts == ALL
    copy = bench.directory / "another" / "kernels"
    shutil.copytree(bench.sources, copy)
    spec = jit.BuildSpec.from_directory("_C", copy, jit.detect())
    assert engine.build(spec, jit.detect()).key == first.key
    assert bench.counts == []
    (copy / "core" / "shared.h").write_text("edited\n")
    assert engine.build(spec, jit.detect()).key != first.key
    assert bench.counts == ["compile one.cpp", "link"]


def test_a_header_elsewhere_is_that_of_the_own_checkout(bench):
    """Which one that is, a label relative to the sources would not tell."""
    keys = []
    for name in ("a", "b"):
        folder = bench.directory / name / "csrc"
        folder.mkdir(parents=True)
        (folder / "one.cpp").write_text('#include "../far/x.h"\n')
        (folder.parent / "far").mkdir()
        (folder.parent / "far" / "x.h").write_text(f"{name}\n")
        torch_api.load("_C", folder / "one.cpp")
        keys.append({path.parent.name for path in bench.builds.glob("*/ok.json")})
    assert len(keys[1]) == 2


@pytest.mark.parametrize("edit", [lambda path: path.write_text("edited\n"), Path.unlink])
def test_a_header_edited_while_it_is_compiled_is_compiled_again(bench, edit: Callable):
    gate = bench.directory / "gate"
    bench.write("one/core/shared.h", "found first\n")
    header = bench.sources / "one/core/shared.h" if edit is Path.unlink else None
    source = '#include "core/shared.h"\n' + f"//! wait {gate}\n"
    bench.write("one/one.cpp", source)
    process = bench.start()
    wait_for(gate.exists)
    edit(header or bench.sources / "one/core/shared.h")
    Path(f"{gate}.go").touch()
    result = finish(process)
    assert result["text"].startswith("shared header" if header else "edited")
    assert "a source changed during the build" in result["said"]
    assert bench.counts.count("compile two.cpp") == 1  # kept for the second try


def test_a_cached_load_starts_no_process(bench):
    bench.run()
    assert bench.run()["processes"] == 0


@pytest.mark.parametrize("flags", DEPFILES)
def test_who_is_asked_for_the_search_writes_no_depfile(flags):
    assert re.sub(reads._DEPFILE, "", f"nvcc {flags} -DNAME -c a.cu") == "nvcc -DNAME -c a.cu"


def test_a_program_is_made_for_the_place_of_torchs_libraries(bench, monkeypatch):
    """torch writes it into the program, which would not start once they are elsewhere."""

    def keys():
        specs = (bench.spec(), bench.spec(standalone=True, python_module=False))
        return [Request.of(spec, jit.detect()).key for spec in specs]

    module, program = keys()
    monkeypatch.setattr("torch.__file__", str(bench.directory / "torch" / "__init__.py"))
    assert keys()[0] == module
    assert keys()[1] != program
