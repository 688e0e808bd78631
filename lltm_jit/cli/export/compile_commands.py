"""``compile-commands``: compile_commands.json, for clangd and other tools that read C++."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import Any

from lltm_jit import native
from lltm_jit.jit import detect
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.user.progress import many

from .. import _build, _extensions
from . import flags

EXAMPLES = """\
examples:
  {prog} compile-commands                   every family; the file goes next to kernels/
  {prog} compile-commands ~/mine/kernels    an extension of yours; next to its sources"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"{_extensions.HELP} (default: every family)")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: compile_commands.json next to the sources; for families, "
        "next to kernels/)",
    )


def run(args: argparse.Namespace) -> int:
    # A source of core/ is compiled for several families; clangd takes one entry a file.
    extensions = _extensions.chosen(args.names or [_extensions.ALL])
    builds = _build.compiled(extensions)
    entries = {entry["file"]: entry for build in builds for entry in collect(build)}
    output = args.output or directory(extensions) / "compile_commands.json"
    output.write_text(json.dumps(list(entries.values()), indent=2) + "\n", "utf-8")
    print(f"{output}: {many(len(entries), 'file')}")
    return 0


def directory(extensions: list[Extension]) -> Path:
    """Where clangd looks for the commands of these extensions."""
    if any(extension.packaged for extension in extensions):
        return native.kernels_directory().parent
    sources = [path for each in extensions for path in each.spec(detect()).sources]
    return Path(os.path.commonpath([path.parent for path in sources]))


def collect(build: _build.CompiledBuild) -> list[dict[str, Any]]:
    """One entry per source: ninja's own database, with nvcc's lines made clang's."""
    entries = []
    for entry in _build.database(build.info.directory):
        words, (file,) = build.words(entry["command"]), build.words(shlex.quote(entry["file"]))
        if file.endswith(".cu"):
            words = clang_words(words, file)
        entries.append({"directory": entry["directory"], "file": file, "arguments": words})
    return entries


def clang_words(words: list[str], source: str) -> list[str]:
    """An nvcc command as clang wants it: clangd knows CUDA, but not nvcc's options."""
    preprocessor, others = flags.split(words)
    standard = [word for word in others if word.startswith("-std=")]
    cuda_home = detect().cuda_home
    place = [f"--cuda-path={cuda_home}"] if cuda_home else []
    return ["clang++", "-x", "cuda", *place, *preprocessor, *standard, "-c", source]
