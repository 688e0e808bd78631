"""What a source asks for: a file that comes later, or whose name no compiler tells."""

from __future__ import annotations

import pytest
from engine_bench import tiers
from real_files import INCBIN, ONE, PLAIN, SOURCE, Way, assert_seen, define, value

from lltm_jit.jit.request import texts

ASKS = """
#if __has_include("value.h")
#include "value.h"
#else
#define VALUE 1
#endif
"""


def comes(source: str, edited: str, *folders: str, quick: bool = False, **more: str) -> Way:
    """A file that comes where these folders are searched, and others that are there."""
    cflags = tuple(f"-I{{}}/{folder}" for folder in folders)
    there = tuple((name.replace("_", "/") + ".h", text) for name, text in more.items())
    return Way(source, edited, cflags, more=there, appears=True, quick=quick)


FAR, NEAR = "far/value.h", ONE[1]
UP, DOWN = SOURCE.replace('"value.h"', "<../value.h>"), SOURCE.replace("value.h", "lib/value.h")
NEXT = "#include_next <value.h>\n"
ASKS_FILE = '#define FILE "value.h"\n' + ASKS.replace('("value.h")', "(FILE)")
ASKS_HAS = "#define HAS(file) __has_include(file)\n" + ASKS.replace("__has_include", "HAS")
ASKS_DOWN = ASKS.replace("value.h", "lib/value.h")
STANDARD = "#include <cstddef>\n#ifndef VALUE\n#define VALUE 1\n#endif\n"
WAYS = {
    "in place of the compiler's": comes(STANDARD + PLAIN, "far/cstddef", "far", quick=True),
    "in place of the compiler's in a folder that is there": comes(
        STANDARD.replace("cstddef", "bits/stl_pair.h") + PLAIN,
        "far/bits/stl_pair.h",
        "far",
        far_bits_x="",
    ),
    "for __has_include in a folder that is there": comes(
        ASKS_DOWN + PLAIN, "far/lib/value.h", "far", far_lib_another=""
    ),
    "in an earlier directory": comes(SOURCE, FAR, "far", "near", near_value=NEAR, quick=True),
    "in a new directory": comes(SOURCE, "new/value.h", "new", "near", near_value=NEAR, quick=True),
    "beside the source": comes(SOURCE, "value.h", "near", near_value=NEAR),
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


@pytest.mark.parametrize("way", tiers(WAYS))
def test_a_file_that_comes_gives_another_build(real, monkeypatch, way):
    assert_seen(real, monkeypatch, way)


UNTOLD = {
    "an assembler's file in a macro": "#define STRING(x) #x\n#define IN(x) STRING(x)\n"
    + INCBIN.replace("FILE", '" IN(PLACE) "'),
    "a macro with arguments": "#define STRING(x) #x\n"
    + ASKS.replace('("value.h")', "(STRING(value.h))")
    + PLAIN,
}


@pytest.mark.parametrize("source", UNTOLD.values(), ids=UNTOLD)
def test_what_nobody_tells_is_built_again(real, source):
    """A file whose name only the compiler knows, and which it does not report."""
    real.write("source.cpp", source)
    flags = [f"-I{real.sources}/far", f"-DPLACE={real.sources}/far/value.h"]
    for number in (1, 2, 2, 1):
        define(real.sources / "far" / "value.h", number)
        assert value(real, extra_cflags=flags) == number


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
