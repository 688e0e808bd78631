"""Ways of using ``load``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import LOADED, MODULE, OF_HEADER, OF_PART, PART_CUDA, error_of, file, mark, way


@way("load: one source", 1)
def _(side):
    return side.load("one", file("one.cpp")).value()


@way("load: several sources", 2)
def _(side):
    sources = [file("main.cpp", OF_PART), file("more/part.cc", "int part() { return 2; }")]
    return side.load(name="several", sources=sources).value()


@way("load: absolute paths", 1, tested=True)
def _(side):
    return side.load("absolute", [os.path.abspath(file("one.cpp"))]).value()


@way("load: extra_cflags", 4)
def _(side):
    return side.load("cflags", file("one.cpp"), extra_cflags=["-O1", "-DVALUE=4"]).value()


@way("load: several flags in one string, and blanks", 5)
def _(side):
    return side.load("blanks", file("one.cpp"), extra_cflags=["-O1 -DVALUE=5\n"]).value()


@way("load: extra_ldflags", 6)
def _(side):
    part = file("part.cpp", "int part() { return 6; }")
    if not Path("libpart.a").exists():
        subprocess.run(["c++", "-fPIC", "-c", part, "-o", "part.o"], check=True)
        subprocess.run(["ar", "rc", "libpart.a", "part.o"], check=True)
    flags = [f"-L{os.getcwd()}", "-lpart"]
    return side.load("ldflags", file("main.cpp", OF_PART), extra_ldflags=flags).value()


@way("load: extra_include_paths", 7)
def _(side):
    file("include/value.h", "#define VALUE 7\n")
    source = file("main.cpp", OF_HEADER)
    return side.load("include", source, extra_include_paths=["include"]).value()


@way("load: an include path with blanks in and around it", 8)
def _(side):
    file("with blanks/value.h", "#define VALUE 8\n")
    source = file("main.cpp", OF_HEADER)
    return side.load("include_blanks", source, extra_include_paths=[" with blanks "]).value()


@way("load: build_directory", (1, True), tested=True)
def _(side):
    Path("here").mkdir(exist_ok=True)
    module = side.load("placed", file("one.cpp"), build_directory="here")
    return module.value(), Path("here/placed.so").exists()


@way("load: TORCH_EXTENSIONS_DIR", (1, True), tested=True)
def _(side):
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.abspath("root")
    module = side.load("rooted", file("one.cpp"))
    return module.value(), Path(module.__file__).is_relative_to(Path("root").absolute())


@way("load: CXX", 11, tested=True)
def _(side):
    compiler = Path(file("compiler", '#!/bin/sh\nexec c++ -DVALUE=11 "$@"\n'))
    compiler.chmod(0o755)
    os.environ["CXX"] = str(compiler.absolute())
    return side.load("cxx", file("one.cpp")).value()


@way("load: MAX_JOBS, verbose, keep_intermediates=False, with_cuda=False", 1, tested=True)
def _(side):
    os.environ["MAX_JOBS"] = "1"
    arguments = {"verbose": True, "keep_intermediates": False, "with_cuda": False}
    return side.load("others", file("one.cpp"), **arguments).value()


@way("load: all arguments by position", 13, quick=True)
def _(side):
    Path("here").mkdir(exist_ok=True)
    flags = (["-DVALUE=13"], None, None, ["-lm"], ["."])
    rest = ("here", False, False, False, True, False, True)
    return side.load("positional", [file("one.cpp")], *flags, *rest).value()


@way("load: is_python_module=False", "7")
def _(side):
    side.load("library", file("mark.cpp", LOADED), is_python_module=False)
    return mark()


@way("load: is_standalone=True", 15, quick=True)
def _(side):
    source = file("main.cpp", "int main() { return 15; }")
    program = side.load("program", source, is_python_module=False, is_standalone=True)
    return subprocess.run([program]).returncode


@way("load: a module and a program", ValueError)
def _(side):
    return type(error_of(side.load, "both", file("one.cpp"), is_standalone=True))


@way("load: the same again", (1, 1), tested=True)
def _(side):
    return tuple(side.load("again", file("one.cpp")).value() for _ in range(2))


@way("load: an edited source", [1, 2, 3], tested=True)
def _(side):
    return [
        side.load("edited", file("one.cpp", f"#define VALUE {value}\n{MODULE}")).value()
        for value in (1, 2, 3)
    ]


@way("load: an edited header", [1, 2], tested=True)
def _(side):
    values = []
    for value in (1, 2):
        file("value.h", f"#define VALUE {value}\n")
        values.append(side.load("of_header", file("main.cpp", OF_HEADER)).value())
    return values


@way("load: the same name with other flags", [1, 2], tested=True)
def _(side):
    source = file("one.cpp")
    flags = [["-DVALUE=1"], ["-DVALUE=2"]]
    return [side.load("reflagged", source, extra_cflags=given).value() for given in flags]


@way("load: two extensions in one process", [1, 2], tested=True)
def _(side):
    first = side.load("first", file("first.cpp"))
    second = side.load("second", file("second.cpp", f"#define VALUE 2\n{MODULE}"))
    return [first.value(), second.value()]


@way("load: a source that does not compile", True)
def _(side):
    error = error_of(side.load, "wrong", file("wrong.cpp", "int x = nonsense;"))
    return isinstance(error, RuntimeError) and "Error building extension 'wrong'" in str(error)


@way("load: a program that goes on after an error", 1, tested=True)
def _(side):
    error_of(side.load, "mended", file("one.cpp", "int x = nonsense;"))
    return side.load("mended", file("one.cpp")).value()


@way("load: C++ and CUDA", 2, cuda=True)
def _(side):
    sources = [file("main.cpp", OF_PART), file("part.cu", PART_CUDA)]
    return side.load("mixed", sources).value()


@way("load: extra_cuda_cflags", 3, cuda=True)
def _(side):
    sources = [file("main.cpp", OF_PART), file("part.cu", PART_CUDA)]
    return side.load("cuda_flags", sources, extra_cuda_cflags=["-DPART=3"]).value()


@way("load: with_cuda=True", 4, cuda=True)
def _(side):
    text = f"#include <cuda_runtime.h>\n#define VALUE int(sizeof(int))\n{MODULE}"
    return side.load("with_cuda", file("main.cpp", text), with_cuda=True).value()


@way("load: flags that are empty strings", 1)
def _(side):
    return side.load("empty", file("one.cpp"), "", "", extra_ldflags="").value()


@way("load: flags with line ends, as torch's own tests have them", 7, quick=True)
def _(side):
    file("include/value.h", "#define VALUE 7\n")
    flags = {"extra_cflags": ["-g\n\n", "-O0 -Wall"], "extra_include_paths": ["    include\n"]}
    return side.load("lenient", file("main.cpp", OF_HEADER), **flags).value()


@way("load: a source that is not there", True)
def _(side):
    error = error_of(side.load, "missing", "nothing.cpp")
    return isinstance(error, FileNotFoundError) and "nothing.cpp" in str(error)


@way("load: a second build_directory, and the first is removed", [True], quick=True)
def _(side):
    for place in ("first", "second"):
        Path(place).mkdir(exist_ok=True)
        side.load("twice", file("one.cpp"), build_directory=place)
    shutil.rmtree("first")
    return [path.exists() for path in Path("second").glob("twice*.so")]


@way(
    "load: a source behind a link, with the header beside the file that it leads to", 8, quick=True
)
def _(side):
    file("real/value.h", "#define VALUE 8\n")
    file("real/main.cpp", OF_HEADER)
    Path("links").mkdir(exist_ok=True)
    if not Path("links/main.cpp").exists():
        Path("links/main.cpp").symlink_to("../real/main.cpp")
    return side.load("linked", "links/main.cpp", extra_include_paths=["real"]).value()


@way("load: names in Unicode", 9, quick=True)
def _(side):
    file("größe 漢字/värde.h", "#define VALUE 9\n")
    text = f'#include "värde.h"\n{MODULE}'
    return side.load("unicode", file("größe 漢字/ünï.cpp", text)).value()


@way("load: a folder that stays as it is", (1, ["one.cpp"]))
def _(side):
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.abspath("cache")
    module = side.load("untouched", file("sources/one.cpp"))
    return module.value(), os.listdir("sources")
