"""``build``: compile extensions without loading them, also for a debugger or profiler.

A build of each kind stays in the cache beside the others; the environment variables that the
command names choose it on import.
"""

from __future__ import annotations

import argparse
import os

from lltm_jit.jit import detect
from lltm_jit.jit.loading.engine import build_all
from lltm_jit.jit.machine.tools import output_of

from . import _extensions

EXAMPLES = """\
examples:
  {prog} build all                 every family, ahead of time
  {prog} build rnn --debug         for gdb; the last line says how to use it
  {prog} build kernels/ --force    recompile every file of your own extension"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _extensions.add_argument(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--debug", action="store_true", help="for a debugger: compile with -g -O0, nvcc with -g -G"
    )
    kind.add_argument(
        "--sanitize",
        metavar="LIST",
        help="compile with these sanitizers, such as address,undefined",
    )
    kind.add_argument(
        "--lineinfo", action="store_true", help="for a CUDA profiler: compile with -lineinfo"
    )
    add("--force", action="store_true", help="compile every file, even if nothing changed")
    add("--verbose", action="store_true", help="show the compilers' commands and output")


def run(args: argparse.Namespace) -> int:
    variables = settings(args)
    os.environ.update(variables)
    extensions = _extensions.chosen(args.names)
    for info in build_all(extensions, force=args.force, verbose=args.verbose or None):
        print(info.library)
    if variables:
        print(f"to use it: {how_to_use(variables, detect().cxx or 'c++')} python ...")
    return 0


def settings(args: argparse.Namespace) -> dict[str, str]:
    """The environment variables that choose this kind of build."""
    if args.debug:
        return {"LLTM_JIT_DEBUG": "1", "CUDA_DEVICE_DEBUG": "1"}
    if args.sanitize:
        return {"LLTM_JIT_SANITIZE": args.sanitize}
    if args.lineinfo:
        return {"LLTM_JIT_LINEINFO": "1"}
    return {}


def how_to_use(variables: dict[str, str], compiler: str) -> str:
    """What to write before `python`, as the shell wants it."""
    words = [f"{name}={value}" for name, value in variables.items()]
    sanitizers = variables.get("LLTM_JIT_SANITIZE", "").split(",")
    if "address" in sanitizers:
        # Its runtime must come first in the process, and Python itself leaks on purpose. C++
        # exceptions pass through it, so that the runtime of C++ must be there from the start too.
        libraries = [_library(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
        words += [f'LD_PRELOAD="{" ".join(libraries)}"', "ASAN_OPTIONS=detect_leaks=0"]
    return " ".join(words)


def _library(compiler: str, name: str) -> str:
    return os.path.realpath(output_of(f"{compiler} -print-file-name={name}").strip())
