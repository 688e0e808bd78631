"""Whatever a build is made of: a file that changes, comes or goes gives another build."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import tiers
from small_files import script

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.request import flags, texts

SOURCE = '#include "value.h"\nextern "C" int value() { return VALUE; }\n'
PLAIN = 'extern "C" int value() { return VALUE; }\n'
INCBIN = """
asm(".pushsection .rodata\\n.hidden data\\n.globl data\\ndata: .incbin \\"FILE\\"\\n.popsection");
extern "C" __attribute__((visibility("hidden"))) const char data[];
extern "C" int value() { return data[14] - '0'; }
"""
LINKED = 'extern "C" int other();\nextern "C" int value() { return other(); }\n'
OTHER = 'extern "C" int other() {{ return {}; }}\n'
ASKS = """
#if __has_include("value.h")
#include "value.h"
#else
#define VALUE 1
#endif
"""


class Way(NamedTuple):
    """A source, and what leads from it to the file ``edited``; ``{}`` is the folder of both."""

    source: str = SOURCE
    edited: str = "far/value.h"
    cflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    environment: tuple[str, str] = ("UNUSED", "")
    more: tuple[tuple[str, str], ...] = ()  # other files
    appears: bool = False  # the file comes only after the first build, which another one served
    old: bool = False  # the linker does not tell what it reads, so that the flags have to
    quick: bool = False  # in the quick tier


def value_of(library: str) -> int:
    return ctypes.CDLL(library).value()


def value(bench, **arguments) -> int:
    source = bench.sources / "source.cpp"
    return value_of(torch_api.load("value", source, is_python_module=False, **arguments))


def define(path: Path, number: int) -> None:
    """Have a file stand for a value: a header, flags, or what is linked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".o", ".a"):
        made = path.with_suffix(".o")
        command = ["c++", "-fPIC", "-x", "c++", "-c", "-", "-o", made]
        subprocess.run(command, input=OTHER.format(number).encode(), check=True)
        if path.suffix == ".a":
            path.unlink(missing_ok=True)
            subprocess.run(["ar", "rcs", path, made], check=True)
        return
    known = {"flags": f"-DVALUE={number}", "specs": f"*cc1plus:\n+ -DVALUE={number}\n\n"}
    path.write_text(known.get(path.name, f"#define VALUE {number}\n"))


READ = {
    "beside the source": Way(edited="value.h", quick=True),
    "an include path": Way(include_paths=("{}/far",), quick=True),
    "-I with quotes and blanks": Way(edited="so far/value.h", cflags=("-I'{}/so far'",)),
    "-I joined to another flag": Way(cflags=("-DUNUSED -I{}/far",)),
    "--include-directory": Way(cflags=("--include-directory", "{}/far")),
    "-idirafter": Way(cflags=("-idirafter", "{}/far")),
    "-include": Way(PLAIN, cflags=("-include", "{}/far/value.h"), quick=True),
    "a file of flags": Way(more=(("flags", "-I{}/far"),), cflags=("@{}/flags",)),
    "a flag in a file of flags": Way(PLAIN, "flags", cflags=("@{}/flags",), quick=True),
    "a file of flags in one": Way(PLAIN, "flags", ("@{}/more",), more=(("more", "@{}/flags"),)),
    "a file of specs": Way(PLAIN, edited="specs", cflags=("-specs={}/specs",), quick=True),
    "what an assembler includes": Way(INCBIN.replace("FILE", "{}/far/value.h")),
    "CPATH": Way(environment=("CPATH", "{}/far"), quick=True),
    "a compiler's script": Way(
        environment=("CXX", "sh {}/wrapper"), more=(("wrapper", 'exec c++ -I{}/far "$@"\n'),)
    ),
    "a macro": Way('#define FILE "value.h"\n#include FILE\n' + PLAIN, "value.h", quick=True),
    "a digraph": Way(SOURCE.replace("#include", "%:include"), cflags=("-I{}/far",)),
    "include_next": Way(
        cflags=("-I{}/near", "-I{}/far"),
        more=(("near/value.h", "#include_next <value.h>\n"),),
        quick=True,
    ),
    "a header that includes it": Way(
        include_paths=("{}/near",), more=(("near/value.h", '#include "../far/value.h"\n'),)
    ),
}


def comes(source: str, edited: str, *folders: str, quick: bool = False, **more: str) -> Way:
    """A file that comes where these folders are searched, and others that are there."""
    cflags = tuple(f"-I{{}}/{folder}" for folder in folders)
    there = tuple((name.replace("_", "/") + ".h", text) for name, text in more.items())
    return Way(source, edited, cflags, more=there, appears=True, quick=quick)


FAR, NEAR = "far/value.h", "#define VALUE 1\n"
UP, DOWN = SOURCE.replace('"value.h"', "<../value.h>"), SOURCE.replace("value.h", "lib/value.h")
NEXT = "#include_next <value.h>\n"
ASKS_FILE = '#define FILE "value.h"\n' + ASKS.replace('("value.h")', "(FILE)")
ASKS_HAS = "#define HAS(file) __has_include(file)\n" + ASKS.replace("__has_include", "HAS")
ASKS_DOWN = ASKS.replace("value.h", "lib/value.h")
STANDARD = "#include <cstddef>\n#ifndef VALUE\n#define VALUE 1\n#endif\n"
PAIR = STANDARD.replace("cstddef", "bits/stl_pair.h")
COMES = {
    "in place of the compiler's": comes(STANDARD + PLAIN, "far/cstddef", "far", quick=True),
    "in place of the compiler's in a folder that is there": comes(
        PAIR + PLAIN, "far/bits/stl_pair.h", "far", far_bits_x=""
    ),
    "for __has_include in a folder that is there": comes(
        ASKS_DOWN + PLAIN, "far/lib/value.h", "far", far_lib_another=""
    ),
    "in an earlier directory": comes(SOURCE, FAR, "far", "near", near_value=NEAR, quick=True),
    "in a new directory": comes(SOURCE, "new/value.h", "new", "near", near_value=NEAR, quick=True),
    "beside the source, in front": comes(SOURCE, "value.h", "near", near_value=NEAR),
    "above an earlier directory": comes(
        UP, FAR, "far/sub", "near/sub", near_value=NEAR, far_sub_x="", near_sub_x=""
    ),
    "in a folder of two directories": comes(
        DOWN, "far/lib/value.h", "far", "near", near_lib_value=NEAR, far_lib_another=""
    ),
    "for include_next": comes(
        SOURCE, FAR, "near", "far", "last", near_value=NEXT, last_value=NEAR, quick=True
    ),
    "for __has_include": comes(ASKS + PLAIN, FAR, "far"),
    "for __has_include of a macro": comes(ASKS_FILE + PLAIN, FAR, "far"),
    "for a macro of __has_include": comes(ASKS_HAS + PLAIN, FAR, "far"),
    "for __has_include of a folder": comes(ASKS_DOWN + PLAIN, "far/lib/value.h", "far", quick=True),
}


def linked(flag: str, edited: str = "far/libother.a", **more) -> Way:
    return Way(LINKED, edited, ldflags=(flag,), **more)


LINKS = {
    "an object": linked("{}/far/other.o", "far/other.o"),
    "a static library": linked("{}/far/libother.a"),
    "-L and -l": linked("-L{}/far -lother", quick=True),
    "-l with the file's name": linked("-L{}/far -l:libother.a"),
    "-Wl": linked("-Wl,-L{}/far,-lother"),
    "-Wl,--library-path": linked("-Wl,--library-path,{}/far -lother"),
    "-Wl,--library-path=": linked("-Wl,--library-path={}/far,--library=other"),
    "a file of the linker's flags": linked("-Wl,@{}/words", more=(("words", "-L{}/far -lother"),)),
    "LIBRARY_PATH": linked("-lother", environment=("LIBRARY_PATH", "{}/far"), quick=True),
}
OLD = {
    f"{name}, by an old linker": way._replace(old=True, quick=name == "LIBRARY_PATH")
    for name, way in LINKS.items()
}
SCRIPT = linked("{}/script", more=(("script", "INPUT({}/far/libother.a)\n"),), quick=True)
WAYS = READ | COMES | LINKS | OLD | {"a linker script": SCRIPT}


@pytest.mark.parametrize("way", tiers(WAYS))
def test_a_file_that_changes_or_comes_gives_another_build(real, monkeypatch, way):
    root = str(real.sources)

    def placed(texts):
        return [text.replace("{}", root) for text in texts]

    if way.old:
        monkeypatch.setattr("lltm_jit.jit.compile.ninja.TELL_LINK", "")
    for name, text in (("source.cpp", way.source), *way.more):
        real.write(name, text.replace("{}", root))
    monkeypatch.setenv(*placed(way.environment))
    given = {
        "extra_cflags": placed(way.cflags),
        "extra_include_paths": placed(way.include_paths),
        "extra_ldflags": placed(way.ldflags),
    }
    edited = real.sources / way.edited
    for number in (1, 2):
        if number == 2 or not way.appears:
            define(edited, number)
        assert [value(real, **given) for _ in range(2)] == [number] * 2
        assert len(real.records) == number
    edited.unlink() if way.appears else define(edited, 1)
    assert value(real, **given) == 1


@pytest.mark.parametrize("how", ["-I", "-isystem", "CPATH"])
def test_a_changed_file_of_a_library(real, monkeypatch, how):
    """Whose folder nobody searches for names, and whose files are compared by stamp first."""
    library = real.directory / "library"
    monkeypatch.setattr(flags, "library_folders", lambda: (f"{library}/",))
    if how == "CPATH":
        monkeypatch.setenv(how, str(library))
    given = [f"{how}{library}"] * (how != "CPATH")
    real.write("source.cpp", SOURCE)
    for number in (1, 2, 1):
        define(library / "value.h", number)
        assert value(real, extra_cflags=given) == number
    os.utime(library / "value.h")  # the same content with another stamp
    assert value(real, extra_cflags=given) == 1
    assert len(real.records) == 2


def test_a_compiler_that_does_not_tell_what_it_reads(real, monkeypatch):
    wrapper = script(real.sources / "wrapper", 'c++ "$@" || exit\nrm -f *.o.d')
    monkeypatch.setenv("CXX", str(wrapper))
    real.write("source.cpp", PLAIN.replace("VALUE", "1"))
    with pytest.raises(BuildError, match=r"not report which headers .* CXX must pass on -MMD"):
        value(real)
    monkeypatch.delenv("CXX")
    assert value(real) == 1


def test_a_system_directory_that_is_a_link(real):
    """gcc names its files by their real path where that is shorter."""
    real.write("source.cpp", SOURCE)
    link = real.sources / "the-current-version"
    for number in (1, 2):
        define(real.sources / f"v{number}" / "value.h", number)
        link.unlink(missing_ok=True)
        link.symlink_to(real.sources / f"v{number}")
        assert value(real, extra_cflags=[f"-isystem{link}"]) == number


@pytest.mark.parametrize("place", [None, "", "-I"])
def test_a_source_of_the_assembler(real, place):
    """Plain, for which g++ writes no depfile, or with a file that only the assembler reads."""
    name = "value.inc" if place else real.sources / "far" / "value.inc"
    given = {"is_python_module": False, "extra_cflags": [f"-I{real.sources}/far"] if place else []}
    for number in (1, 2, 1):
        move = f"mov ${number}, %eax\n"
        real.write("far/value.inc", move)
        text = move if place is None else f'.include "{name}"\n'
        text = f'.globl value\nvalue:\n{text}ret\n.section .note.GNU-stack,"",@progbits\n'
        source = real.write("source.s" if place is None else "source.S", text)
        assert value_of(torch_api.load("value", source, **given)) == number


STRING = "#define STRING(x) #x\n"
UNTOLD = {
    "an assembler's file in a macro": "#define IN(x) STRING(x)\n"
    + INCBIN.replace("FILE", '" IN(PLACE) "'),
    "a macro with arguments": ASKS.replace('("value.h")', "(STRING(value.h))") + PLAIN,
}


@pytest.mark.parametrize("source", UNTOLD.values(), ids=UNTOLD)
def test_what_nobody_tells_is_built_again(real, source):
    """A file whose name only the compiler knows, and which it does not report."""
    real.write("source.cpp", STRING + source)
    given = [f"-I{real.sources}/far", f"-DPLACE={real.sources}/far/value.h"]
    for number in (1, 2, 2, 1):
        define(real.sources / "far" / "value.h", number)
        assert value(real, extra_cflags=given) == number


def test_a_file_for_the_assembler_in_a_part_that_is_not_compiled(real):
    """It need not be there, and once it is, nobody knows whether that part counts."""
    place = real.sources / "far" / "data"
    source = f"#ifdef EMBED\n{INCBIN.replace('FILE', str(place))}\n#else\n{PLAIN}#endif\n"
    real.write("source.cpp", source.replace("return VALUE", "return 7"))
    assert [value(real) for _ in range(2)] == [7, 7]


def test_a_new_file_that_nobody_looks_for_builds_nothing(real):
    real.write("near/value.h", NEAR)
    real.write("source.cpp", SOURCE)
    for name in ("one.h", "two.h"):
        assert value(real, extra_cflags=[f"-I{real.sources}/near"]) == 1
        real.write(f"near/{name}", "")
    assert len(real.records) == 1


def test_what_looks_like_a_comment_in_a_path_is_none():
    asked = texts.asks('asm(".incbin \\"/a//data\\"");  // .incbin "/b"')
    assert (asked.assembled, asked.untold) == ({"/a//data"}, False)


@pytest.mark.parametrize("option", ["-L", "-Wl,--library-path=", "-Wl,--library-path,", "-Wl,@"])
def test_a_library_of_another_directory(real, option):
    """In an earlier one, or in that of an edited file of the linker's flags."""
    real.write("source.cpp", LINKED)
    given = [f"{option}{real.sources}/near", f"{option}{real.sources}/far", "-lother"]
    for number, place in enumerate(("far", "near"), 1):
        define(real.sources / place / "libother.a", number)
        if option == "-Wl,@":
            words = real.write("words", f"-L{real.sources}/{place} -lother")
            given = [f"-Wl,@{words}"]
        assert value(real, extra_ldflags=given) == number


def test_what_the_linker_reads_is_compiled_into_nothing(real, capfd):
    """Nor is a path that is the value of a macro."""
    real.write("source.cpp", LINKED)
    library = real.sources / "far" / "libother.a"
    for number in (1, 2):
        define(library, number)
        log = real.write("log", f"{number} lines\n")
        given = {"extra_ldflags": [str(library)], "extra_cflags": [f"-DLOG={log}"]}
        assert value(real, **given) == number
    assert capfd.readouterr().err.rstrip().endswith("(0 compiled, 1 reused)")


def test_what_a_library_lacks_is_named(real):
    """torch says no more than its path."""
    real.write("source.cpp", 'int far();\nextern "C" int value() { return far(); }\n')
    told = r"undefined symbol: far\(\)\n   = it is used in value\n   = no source or lib"
    with pytest.raises(BuildError, match=told):
        value(real)
