"""``flags``: the compile line, for a Makefile of your own.

The output is a piece of a Makefile: `python -m lltm_jit flags > flags.mk`, then `include flags.mk`.
"""

from __future__ import annotations

import argparse
import json
import shlex

from lltm_jit import native
from lltm_jit.jit.compile import files_read
from lltm_jit.jit.loading.extension import Extension

from .. import _build, _extensions

RULES = """\
# $(CXX) $(CPPFLAGS) $(CXXFLAGS) -c name.cpp -o name.o
# $(NVCC) $(CPPFLAGS) $(NVCCFLAGS) -c name_cuda.cu -o name_cuda.o
# $(CXX) name.o name_cuda.o $(LDFLAGS) -o name.so"""

_PREPROCESSOR = ("-I", "-D", "-U")


EXAMPLES = """\
examples:
  {prog} flags > flags.mk          then `include flags.mk` in your Makefile
  {prog} flags rnn --json          as lists of words, for programs
  {prog} flags kernels/            those of your own sources, with -O1 unless you gave a level"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_one(parser, "%(default)s", native.OWN[0])
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of Makefile variables"
    )


def run(args: argparse.Namespace) -> int:
    flags = collect(_extensions.one(args.name))
    if args.json:
        print(json.dumps(flags, indent=2))
        return 0
    print(RULES)
    for name, words in flags.items():
        print(f"{name} := {shlex.join(words).replace('$', '$$')}")
    return 0


def collect(extension: Extension) -> dict[str, list[str]]:
    """The words of each variable of :data:`RULES`; NVCC's only where CUDA is compiled."""
    (build,) = _build.compiled([extension])
    variables = build.variables()
    preprocessor, compiler = split(variables["cflags"])
    flags = {
        "CXX": variables["cxx"],
        "CPPFLAGS": preprocessor,
        "CXXFLAGS": [*compiler, *variables["post_cflags"]],
        "LDFLAGS": [word for word in variables["ldflags"] if word != files_read.TELL_LINK],
    }
    if "nvcc" in variables:
        # nvcc has macros of its own, so all of its preprocessor flags that C++ lacks go here.
        nvcc_flags = [*variables["cuda_cflags"], *variables["cuda_post_cflags"]]
        own, rest = split(nvcc_flags)
        flags["NVCC"] = variables["nvcc"]
        flags["NVCCFLAGS"] = [word for word in own if word not in preprocessor] + rest
    return flags


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """The preprocessor's flags, and the others."""
    preprocessor, others = [], []
    following = iter(words)
    for word in following:
        if word == "-isystem":
            preprocessor += [word, next(following)]
        elif word.startswith(_PREPROCESSOR):
            preprocessor.append(word)
        else:
            others.append(word)
    return preprocessor, others
