"""``flags``: print compilers and flags as Makefile variables.

examples:
  python -m lltm_jit flags > flags.mk          then `include flags.mk` in your Makefile
  python -m lltm_jit flags rnn --json          as lists of words, for programs
  python -m lltm_jit flags kernels/            your own, with -O1 unless you gave a level
"""

import argparse
import json
import re
import shlex

from lltm_jit import native
from lltm_jit.jit import Spec
from lltm_jit.jit.compile import ninja

from .. import _extensions

RULES = """\
# $(CXX) $(CPPFLAGS) $(CXXFLAGS) -c name.cpp -o name.o
# $(NVCC) $(CPPFLAGS) $(NVCCFLAGS) -c name_cuda.cu -o name_cuda.o
# $(CXX) name.o name_cuda.o $(LDFLAGS) -o name.so"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser, native.OWN[0], many=False)
    about = "print JSON instead of Makefile variables"
    parser.add_argument("--json", action="store_true", help=about)


def run(args: argparse.Namespace) -> int:
    flags = _collect(_extensions.one(args.name or native.OWN[0]))
    lines = [f"{name} := {shlex.join(words)}".replace("$", "$$") for name, words in flags.items()]
    print(json.dumps(flags, indent=2) if args.json else "\n".join([RULES, *lines]))
    return 0


def _collect(extension: Spec) -> dict[str, list[str]]:
    """The words of each variable of :data:`RULES`; NVCC's only if CUDA is compiled."""
    with _extensions.requested(extension) as request:
        told = _extensions.build_file(request).variables.items()
    variables = {name: shlex.split(re.sub(r"\$([$ :])", r"\1", text)) for name, text in told}
    preprocessor, compiler = split(variables["cflags"])
    flags = {
        "CXX": variables["cxx"],
        "CPPFLAGS": preprocessor,
        "CXXFLAGS": [*compiler, *variables["post_cflags"]],
        "LDFLAGS": [word for word in variables["ldflags"] if word != ninja.TELL_LINK],
    }
    if "nvcc" in variables:
        # nvcc has macros of its own, so NVCCFLAGS get the preprocessor flags that C++ lacks.
        own, rest = split([*variables["cuda_cflags"], *variables["cuda_post_cflags"]])
        flags["NVCC"] = variables["nvcc"]
        flags["NVCCFLAGS"] = [word for word in own if word not in preprocessor] + rest
    return flags


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """The preprocessor's flags, and the others."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for before, word in zip(["", *words], words, strict=False):
        own = word.startswith(("-I", "-D", "-U")) or "-isystem" in (before, word)
        parts[own].append(word)
    return parts[True], parts[False]
