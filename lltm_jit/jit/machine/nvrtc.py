"""NVRTC, the compiler for device code that comes with torch's CUDA as a library.

ctypes calls its functions. The package cuda-bindings has them, too, but not every torch brings it,
and importing it takes twice as long as compiling a small kernel.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..user.errors import BuildTimeout, Cancelled, ToolchainError, check_wanted


class Compiled(NamedTuple):
    """The result of compiling a text.

    ``code`` is empty if it does not compile, and ``log`` has NVRTC's words. ``symbols`` has, for
    each kernel asked for, its name in the code and its type, such as ``void (float*, long)``.
    """

    code: bytes
    symbols: dict[str, list[str]]
    log: str


# This stands in front of a source. The symbol of an instance contains a kernel's full type, which
# the symbol of an extern "C" function lacks.
_TYPE = "template <typename> __device__ char lltm_jit_type;\n"


def compile(
    path: str, text: str, name: str, options: Sequence[str], functions: Sequence[str] = ()
) -> Compiled:
    """Compile a text by the NVRTC at a path. Several threads can do so at the same time.

    From CUDA 13 on, the work ends early if it is cancelled or takes too long.

    Args:
        path: the path of the library.
        text: the source.
        name: the path of the text, from which its includes are looked for.
        options: NVRTC's; for an architecture such as ``compute_90`` the code is PTX.
        functions: kernels whose names and types are wanted, such as ``scale<float>``.
    """
    library, program = _library(path), ctypes.c_void_p()
    stopped: list[BaseException] = []

    def interrupt(*_: Any) -> int:
        try:
            check_wanted()
        except (Cancelled, BuildTimeout, KeyboardInterrupt) as error:  # it cannot pass C
            stopped.append(error)
        return bool(stopped)

    def text_of(what: str) -> bytes:
        size = ctypes.c_size_t()
        _ask(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        _ask(library, f"nvrtcGet{what}", program, found)
        return found.raw

    def symbol_of(expression: str) -> str:
        found = ctypes.c_char_p()
        asked = (program, expression.encode(), ctypes.byref(found))
        _ask(library, "nvrtcGetLoweredName", *asked)
        return (found.value or b"").decode()

    call, types = _CALLBACK(interrupt), {f: f"&lltm_jit_type<decltype({f})>" for f in functions}
    if functions:
        text = f'{_TYPE}#line 1 "{name}"\n{text}'
    words, place = [os.fsencode(option) for option in options], os.fsencode(name)
    source = text.encode("utf-8", "surrogateescape")  # need not be UTF-8
    _ask(library, "nvrtcCreateProgram", ctypes.byref(program), source, place, 0, None, None)
    try:
        for expression in (*functions, *types.values()):
            _ask(library, "nvrtcAddNameExpression", program, expression.encode())
        if hasattr(library, "nvrtcSetFlowCallback"):
            _ask(library, "nvrtcSetFlowCallback", program, call, None)
        given = (ctypes.c_char_p * len(words))(*words)
        status = library.nvrtcCompileProgram(program, len(words), given)
        if stopped:
            raise stopped[0]
        log = text_of("ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            return Compiled(b"", {}, log or f"nvrtc: error: {_words(library, status)}")
        symbols = {f: [symbol_of(f), _type_in(symbol_of(types[f]))] for f in functions}
        virtual = any("arch=compute_" in option for option in options)
        return Compiled(text_of("PTX" if virtual else "CUBIN"), symbols, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def architectures(path: str) -> list[tuple[int, int]]:
    """The architectures that the NVRTC at a path can compile for."""
    library, count = _library(path), ctypes.c_int()
    _ask(library, "nvrtcGetNumSupportedArchs", ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    _ask(library, "nvrtcGetSupportedArchs", found)
    return [divmod(each, 10) for each in found]


def _type_in(symbol: str) -> str:
    """The type in the name of an instance of ``lltm_jit_type``."""
    return torch._C._demangle(symbol).partition("<")[2].rpartition(">")[0]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def _library(path: str) -> ctypes.CDLL:
    """The library. The library beside it, which it needs, must be loaded first."""
    for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(path)


def _ask(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    if status := getattr(library, function)(*arguments):
        raise ToolchainError(f"{function}() of NVRTC failed: {_words(library, status)}")


def _words(library: ctypes.CDLL, status: int) -> str:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library.nvrtcGetErrorString(status).decode()
