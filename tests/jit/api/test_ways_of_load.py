"""Ways of using ``load`` and ``load_inline`` that torch documents, and that no other test has.

WAYS_OF=torch has torch's own functions in place of ours.
"""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from harness import tiers
from small_files import MODULE, write
from torch.utils import cpp_extension

from lltm_jit.jit import torch_api

SIDE = cpp_extension if os.environ.get("WAYS_OF") == "torch" else torch_api
needs_cuda = pytest.mark.skipif(
    not (torch.version.cuda and cpp_extension.CUDA_HOME), reason="needs a torch and nvcc with CUDA"
)

OF_PART = f"int part();\n#define VALUE part()\n{MODULE}"
OF_HEADER = f'#include "value.h"\n{MODULE}'
HEADER = "#define VALUE 7\n"
PART = "int part() { return 2; }"
PART_CUDA = "#include <cuda_runtime.h>\n#ifndef PART\n#define PART 2\n#endif\n"
PART_CUDA += PART.replace("2", "PART")
INT_CUDA = f"#include <cuda_runtime.h>\n#define VALUE int(sizeof(int))\n{MODULE}"


class Way(NamedTuple):
    """What the module of a text gives, with these arguments, and other files beside its source."""

    value: int
    text: str = MODULE
    files: tuple[tuple[str, str], ...] = ()
    given: dict[str, Any] = {}  # noqa: RUF012 - nobody changes a default
    quick: bool = False


LOADS = {
    "one source": Way(1),
    "several sources": Way(2, OF_PART, (("more/part.cc", PART),)),
    "flags": Way(4, given={"extra_cflags": ["-O1", "-DVALUE=4"]}),
    "several flags in one string, and blanks": Way(5, given={"extra_cflags": ["-O1 -DVALUE=5\n"]}),
    "flags that are empty strings": Way(
        1, given=dict.fromkeys(("extra_cflags", "extra_cuda_cflags", "extra_ldflags"), "")
    ),
    "an include path with blanks in and around it": Way(
        7, OF_HEADER, (("a b/value.h", HEADER),), {"extra_include_paths": [" a b "]}
    ),
    "line ends, as torch's own tests have them": Way(
        7,
        OF_HEADER,
        (("include/value.h", HEADER),),
        {"extra_cflags": ["-g\n\n", "-O0 -Wall"], "extra_include_paths": ["    include\n"]},
        quick=True,
    ),
}
OF_CUDA = {
    "C++ and CUDA": Way(2, OF_PART, (("part.cu", PART_CUDA),)),
    "flags of CUDA": Way(
        3, OF_PART, (("part.cu", PART_CUDA),), {"extra_cuda_cflags": ["-DPART=3"]}
    ),
    "with_cuda": Way(4, INT_CUDA, given={"with_cuda": True}),
}


@pytest.fixture(autouse=True)
def place(root, tmp_path, monkeypatch) -> None:
    """An empty directory, which is the current one, and an empty cache."""
    monkeypatch.chdir(tmp_path)


def file(name: str, text: str = MODULE) -> str:
    return str(write(name, text))


@pytest.mark.parametrize("way", tiers(LOADS))
def test_load(way):
    files = [file("main.cpp", way.text), *(file(*each) for each in way.files)]
    sources = [name for name in files if not name.endswith(".h")]
    sources = sources if len(sources) > 1 else sources[0]
    assert SIDE.load("of_way", sources, **way.given).value() == way.value


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("way", OF_CUDA.values(), ids=OF_CUDA)
def test_load_with_cuda(way):
    test_load(way)


def test_all_arguments_by_position():
    Path("here").mkdir()
    flags = (["-DVALUE=13"], None, None, ["-lm"], ["."])
    rest = ("here", False, False, False, True, False, True)
    assert SIDE.load("positional", [file("one.cpp")], *flags, *rest).value() == 13


def test_a_second_build_directory_and_the_first_is_removed():
    for place in ("first", "second"):
        Path(place).mkdir()
        SIDE.load("twice", file("one.cpp"), build_directory=place)
    shutil.rmtree("first")
    assert [path.exists() for path in Path("second").glob("twice*.so")] == [True]


def test_a_source_behind_a_link_and_the_header_beside_where_it_leads():
    file("real/value.h", HEADER)
    file("real/main.cpp", OF_HEADER)
    Path("links").mkdir()
    Path("links/main.cpp").symlink_to("../real/main.cpp")
    assert SIDE.load("linked", "links/main.cpp", extra_include_paths=["real"]).value() == 7


@pytest.mark.slow
def test_a_folder_that_stays_as_it_is():
    assert SIDE.load("untouched", file("sources/one.cpp")).value() == 1
    assert os.listdir("sources") == ["one.cpp"]


def test_strings_with_flags_include_paths_and_a_build_directory():
    file("include/value.h", "#define VALUE 4 + PLUS\n")
    Path("here").mkdir()
    module = SIDE.load_inline(
        name="flagged",
        cpp_sources=[OF_HEADER],
        extra_cflags=["-DPLUS=5"],
        extra_ldflags=["-lm"],
        extra_include_paths=["include"],
        build_directory=os.path.abspath("here"),
        keep_intermediates=False,
        no_implicit_headers=True,
    )
    assert module.value() == 9
    assert Path("here/flagged.so").exists()


@pytest.mark.slow
def test_a_header_in_the_build_directory_of_strings():
    file("include/value.h", HEADER)
    given = {"build_directory": "include", "no_implicit_headers": True}
    assert SIDE.load_inline("of_header", OF_HEADER, **given).value() == 7


@needs_cuda
@pytest.mark.slow
def test_strings_with_cuda():
    module = SIDE.load_inline("texts_cuda", OF_PART, PART_CUDA, no_implicit_headers=True)
    assert module.value() == 2
