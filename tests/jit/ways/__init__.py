"""Ways of using ``load`` and ``load_inline`` that torch documents, each with what must come of it.

A way is a function of a side, which has the two functions of torch or ours. It runs in an empty
directory, which is the current one, and in an environment of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A Python module as small as can be, without torch's headers.
MODULE = """
#include <Python.h>
#ifndef VALUE
#define VALUE 1
#endif
#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
OF_PART = f"int part();\n#define VALUE part()\n{MODULE}"
OF_HEADER = f'#include "value.h"\n{MODULE}'
LOADED = (
    '#include <cstdlib>\n__attribute__((constructor)) void mark() { setenv("MARK", "7", 1); }\n'
)
PART_CUDA = (
    "#include <cuda_runtime.h>\n#ifndef PART\n#define PART 2\n#endif\nint part() { return PART; }"
)


@dataclass(frozen=True)
class Way:
    name: str
    function: Callable[[Any], Any]
    expected: Any
    tested: bool  # by other tests, with a stand-in for the compiler
    headers: bool  # whether torch's headers are compiled, for half a minute
    cuda: bool
    quick: bool  # in the quick tier


WAYS: list[Way] = []


def way(name: str, expected: Any, tested=False, headers=False, cuda=False, quick=False) -> Callable:
    def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        WAYS.append(Way(name, function, expected, tested, headers, cuda, quick))
        return function

    return register


def file(name: str, text: str = MODULE) -> str:
    """Write a file, unless it is as wanted already: torch goes by times."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return name


def error_of(function: Callable, *arguments: Any, **named: Any) -> Exception:
    try:
        function(*arguments, **named)
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller compares it
        return error
    raise AssertionError("expected an error")


def mark() -> str:
    """What the library of LOADED leaves behind."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(b"MARK").decode()


from . import of_load, of_load_inline  # noqa: E402, F401  # they register theirs
