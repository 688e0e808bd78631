"""``compile-commands``: write compile_commands.json, for clangd.

examples:
  python -m lltm_jit compile-commands                   every family; the file goes next to kernels/
  python -m lltm_jit compile-commands ~/mine/kernels    an extension of yours; next to its sources
"""

import argparse
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from lltm_jit import native
from lltm_jit.jit import Spec
from lltm_jit.jit.user.progress import many

from .. import _extensions
from . import flags

_OF_GCC_ALONE = re.compile(r"-fno-(?:gnu-unique|canonical-system-headers)|--param=.*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser, "every family")
    about = "the file to write (default: compile_commands.json next to the sources, or kernels/)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=about)


def run(args: argparse.Namespace) -> int:
    # A source of core/ is compiled for several families; clangd takes one entry per file.
    extensions = _extensions.chosen(args.names or [_extensions.ALL])
    entries = {entry["file"]: entry for each in extensions for entry in _entries(each)}
    folder = Path(os.path.commonpath(map(os.path.dirname, entries)))
    if any(extension.ours for extension in extensions):
        folder = native.kernels_directory().parent
    output = args.output or folder / "compile_commands.json"
    output.write_text(json.dumps(list(entries.values()), indent=2) + "\n", "utf-8")
    print(f"{output}: {many(len(entries), 'file')}")
    return 0


def _entries(extension: Spec) -> list[dict[str, Any]]:
    """One entry per source, with a command that clang understands."""
    entries = []
    with _extensions.requested(extension) as request:
        commands = _extensions.build_file(request).commands().values()
        for source, command in zip(request.sources, commands, strict=True):
            words, file = shlex.split(command), request.path_of(source)
            if file.endswith(".cu"):
                words = _clang_words(words, file, request.toolchain.cuda_home)
            words = [word for word in words if not _OF_GCC_ALONE.fullmatch(word)]
            entries.append({"directory": os.path.dirname(file), "file": file, "arguments": words})
    return entries


def _clang_words(words: list[str], source: str, cuda_home: str | None) -> list[str]:
    """An nvcc command as clang wants it: clangd knows CUDA, but not nvcc's options."""
    preprocessor, others = flags.split(words)
    standard = [word for word in others if word.startswith("-std=")]
    place = [f"--cuda-path={cuda_home}"] if cuda_home else []
    return ["clang++", "-x", "cuda", *place, *preprocessor, *standard, "-c", source]
