"""``archive``: static libraries of the compiled objects, to link into a program of your own.

One for each extension: sources of core/ are compiled for several families, to objects of the same
name. A program may link several of the libraries, because the linker takes such an object from the
first one only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from lltm_jit.jit import LltmJitError, ToolchainError
from lltm_jit.jit.loading.parallel import build_all
from lltm_jit.jit.user.progress import many

from .. import _extensions

EXAMPLES = """\
examples:
  {prog} archive basic                        liblltm_jit_basic.a, in this directory
  {prog} archive kernels/mine -o libmine.a    an extension of yours"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write, for a single extension (default: liblltm_jit_NAME.a)",
    )


def run(args: argparse.Namespace) -> int:
    extensions = _extensions.chosen(args.names)
    if args.output and len(extensions) > 1:
        names = ", ".join(extension.name for extension in extensions)
        raise LltmJitError(
            f"expected one extension with --output, but got {len(extensions)}: {names}"
        )
    archiver = shutil.which("ar")
    if archiver is None:
        raise ToolchainError("ar was not found; it comes with the C++ compiler's binutils")
    for info in build_all(extensions):
        output = args.output or Path(f"liblltm_jit_{info.name}.a")
        objects = sorted(info.directory.glob("*.o"))
        output.unlink(missing_ok=True)  # ar would add to what is there
        if subprocess.run([archiver, "rcs", output, *objects]).returncode:
            return 1  # ar has said why
        print(f"{output}: {many(len(objects), 'object')}")
    return 0
