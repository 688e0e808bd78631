"""``build``: compile extensions, also for a debugger or a profiler.

A build of each kind stays in the cache beside the others. The command prints the environment
variables that choose this build on import.

examples:
  python -m lltm_jit build all                 every family, ahead of time
  python -m lltm_jit build rnn --debug         for gdb; the last line says how to use it
  python -m lltm_jit build kernels/ --force    recompile every file of your own extension
"""

import argparse
import os
import shlex

from lltm_jit.jit import detect
from lltm_jit.jit.loading.engine import build_all
from lltm_jit.jit.machine.tools import output_of

from . import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _extensions.add_argument(parser)
    kinds = parser.add_mutually_exclusive_group()
    about = "for a debugger: compile with -g -O0, nvcc with -g -G"
    kinds.add_argument("--debug", action="store_true", help=about)
    about = "compile with these sanitizers, such as address,undefined"
    kinds.add_argument("--sanitize", metavar="LIST", help=about)
    about = "for a CUDA profiler: compile with -lineinfo"
    kinds.add_argument("--lineinfo", action="store_true", help=about)
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
        return {"LLTM_JIT_DEBUG": "1", **({"CUDA_DEVICE_DEBUG": "1"} if detect().cuda else {})}
    if args.sanitize:
        return {"LLTM_JIT_SANITIZE": args.sanitize}
    return {"LLTM_JIT_LINEINFO": "1"} if args.lineinfo else {}


def how_to_use(variables: dict[str, str], compiler: str) -> str:
    """What to write before `python`, as the shell wants it."""
    words = [f"{name}={value}" for name, value in variables.items()]
    if "address" in variables.get("LLTM_JIT_SANITIZE", "").split(","):
        # The sanitizer's runtime must come first in the process, and Python itself leaks on
        # purpose. C++ exceptions pass through the runtime, so libstdc++ must be preloaded, too.
        names = ("libasan.so", "libstdc++.so.6")
        asked = ([*shlex.split(compiler), f"-print-file-name={name}"] for name in names)
        found = [output_of(command).strip() for command in asked]
        libraries = " ".join(map(os.path.realpath, found))
        words += [f'LD_PRELOAD="{libraries}"', "ASAN_OPTIONS=detect_leaks=0"]
    return " ".join(words)
