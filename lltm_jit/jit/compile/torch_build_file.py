"""The build file as torch writes it: all that this engine knows of torch's private parts.

They are three: ``torch/utils/cpp_extension.py`` can be imported without the rest of torch, it
writes the file in one function, ``_write_ninja_file``, and the lines that :func:`adapted` changes
look as they do. ``tests/jit/compile/test_build_file.py`` fails if one of them is missing.
"""

import importlib
import importlib.machinery
import logging
import os
import shlex
import sys
import types
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

NEEDS_MORE = 75  # the exit status where torch's module needs more of torch


def write(request: dict) -> int:
    """Have torch write the build file that a request describes; the exit status of a worker."""
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    # torch tells its steps at levels that nobody sees unless asked.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.DEBUG)
    if request["all_of_torch"]:
        try:
            _write(request, importlib.import_module("torch.utils.cpp_extension"))
        except (RuntimeError, OSError, ValueError) as error:
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            print(f"{type(error).__name__}: {error}{cause}", flush=True)
            return 1
        return 0
    try:
        _write(request, _alone())
    except (RuntimeError, ImportError, AttributeError, TypeError, ValueError, OSError):
        return NEEDS_MORE  # from a new process: what is here of torch cannot be initialised again
    return 0


class _Part(types.ModuleType):
    """A package that has only the modules inside it, and what is put into it."""

    def __init__(self, name: str, folder: str, **inside: object) -> None:
        super().__init__(name)
        self.__path__ = [folder]
        self.__dict__.update(inside)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"{self.__name__}.{name}")  # also for who asks whether it is there


def _alone() -> types.ModuleType:
    """torch's ``cpp_extension`` without the rest of torch, which takes longer than many compilers.

    Raises:
        RuntimeError: it asks for more of torch, also later.
    """
    spec = importlib.machinery.PathFinder.find_spec("torch", sys.path)
    if spec is None or spec.origin is None:
        raise ImportError
    folder = os.path.dirname(spec.origin)
    torch: Any = _Part("torch", folder)
    version = importlib.import_module("torch.version")
    cuda, xpu = version.cuda or version.hip, getattr(version, "xpu", None)
    # A worker sees no GPU anyway.
    seen = {"_is_compiled": lambda: bool(cuda), "is_available": lambda: False}
    torch.cuda = _Part("torch.cuda", "", **seen)
    torch.xpu = _Part("torch.xpu", "", _is_compiled=lambda: bool(xpu))
    torch.utils = _Part("torch.utils", os.path.join(folder, "utils"))
    # torch 2.14 and later import it; nobody else is in the build's directory to lock it for.
    _Part("torch.utils._filelock", "", FileLock=nullcontext)
    parent = os.path.dirname(folder)
    _Part("torch._utils_internal", "", get_file_path=partial(os.path.join, parent))
    return importlib.import_module("torch.utils.cpp_extension")


class _Written(BaseException):
    """Ends torch's ``load`` before it starts ninja."""


def _write(request: dict, cpp_extension: Any) -> None:
    """Have torch's ``load`` write the file, with the names of objects that the engine gives."""
    write = getattr(cpp_extension, "_write_ninja_file", None)

    def write_and_end(*rest: object, **named: str) -> None:
        assert write is not None
        # Where torch would give two sources one name, or one with a blank in it.
        write(*rest, **{**named, "objects": request["objects"]})
        with open(named["path"], "r+", encoding="utf-8", errors="surrogateescape") as file:
            text = adapted(file.read())
            file.seek(0)
            file.truncate()
            file.write(text)
        raise _Written

    cpp_extension._write_ninja_file = write_and_end
    with suppress(_Written):
        cpp_extension.load(
            name=request["name"],
            sources=request["sources"],
            extra_cflags=request["cflags"],
            extra_cuda_cflags=request["cuda_cflags"],
            extra_ldflags=request["ldflags"],
            extra_include_paths=request["include_paths"],
            build_directory=request["directory"],
            with_cuda=request["with_cuda"],
            verbose=True,
            is_python_module=False,
            is_standalone=request["standalone"],
        )
        raise RuntimeError("torch did not write the build file with _write_ninja_file")


def adapted(text: str) -> str:
    """A build file whose compilers report every header, in files that are kept.

    torch may quote CXX as one word, also where it is several.
    """
    cxx = os.environ.get("CXX", "")
    text = text.replace(f"cxx = {shlex.quote(cxx)}\n", f"cxx = {cxx}\n", 1)
    return text.replace(" -MMD -MF ", " -MD -MF ").replace("\n  deps = gcc\n", "\n")
