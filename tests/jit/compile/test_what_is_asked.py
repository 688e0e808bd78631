"""What a source asks for: a file that comes later, or whose name no compiler tells."""

from __future__ import annotations

import pytest
from engine_bench import tiers
from real_files import INCBIN, ONE, PLAIN, SOURCE, Way, assert_seen, define, spec_of, value

from lltm_jit.jit.loading import engine
from lltm_jit.jit.request import texts

ASKS = """
#if __has_include("value.h")
#include "value.h"
#else
#define VALUE 1
#endif
"""
WAYS = {
    "a new header in an earlier directory": Way(
        cflags=("-I{}/far", "-I{}/near"), more=(ONE,), appears=True, quick=True
    ),
    "a new header in a directory that was not there": Way(
        edited="new/value.h",
        cflags=("-I{}/new", "-I{}/near"),
        more=(ONE,),
        appears=True,
        quick=True,
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
        quick=True,
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
        quick=True,
    ),
}


@pytest.mark.parametrize("way", tiers(WAYS))
def test_a_file_that_comes_gives_another_build(real, monkeypatch, way):
    assert_seen(real, monkeypatch, way)


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
    assert not engine.load(spec_of(real, flags)).info.cached


def test_a_file_for_the_assembler_in_a_part_that_is_not_compiled(real):
    """It need not be there, and once it is, nobody knows whether that part counts."""
    place = real.sources / "far" / "data"
    source = f"#ifdef EMBED\n{INCBIN.replace('FILE', str(place))}\n#else\n{PLAIN}#endif\n"
    real.write("source.cpp", source.replace("return VALUE", "return 7"))
    assert value(real) == 7
    assert value(real) == 7


def test_a_new_file_that_nobody_looks_for_builds_nothing(real):
    real.write("near/value.h", ONE[1])
    real.write("source.cpp", SOURCE)
    for name in ("one.h", "two.h"):
        assert value(real, extra_cflags=[f"-I{real.sources}/near"]) == 1
        real.write(f"near/{name}", "")
    assert len(list(real.builds.glob("*/ok.json"))) == 1


def test_what_looks_like_a_comment_in_a_path_is_none():
    asked = texts.asks('asm(".incbin \\"/a//data\\"");  // .incbin "/b"')
    assert (asked.assembled, asked.untold) == ({"/a//data"}, False)
