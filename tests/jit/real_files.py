"""Builds by the real compiler whose result, a number, comes from one file that tests edit."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import NamedTuple

from lltm_jit.jit import torch_api

SOURCE = '#include "value.h"\nextern "C" int value() { return VALUE; }\n'
PLAIN = 'extern "C" int value() { return VALUE; }\n'
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
    quick: bool = False  # in the quick tier


ONE = ("near/value.h", "#define VALUE 1\n")


def value(bench, **arguments) -> int:
    source = bench.sources / "source.cpp"
    return value_of(torch_api.load("value", source, is_python_module=False, **arguments))


def value_of(path: str) -> int:
    return ctypes.CDLL(path).value()


def define(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {"flags": f"-DVALUE={number}", "specs": f"*cc1plus:\n+ -DVALUE={number}\n\n"}
    path.write_text(texts.get(path.name, f"#define VALUE {number}\n"))


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


def compiled(bench, number: int, name: str = "other") -> Path:
    source = bench.write(f"{name}.cpp", f'extern "C" int {name}() {{ return {number}; }}\n')
    target = bench.directory / f"{name}-{number}.o"
    subprocess.run(["c++", "-fPIC", "-c", str(source), "-o", str(target)], check=True)
    return target


def archive(place: Path, *objects: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(place), *map(str, objects)], check=True)
