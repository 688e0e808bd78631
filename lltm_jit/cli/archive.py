"""``archive``: static libraries of the compiled objects, to link into a program of your own.

One a family: sources of core/ are compiled for several, to objects of the same name. A program may
link several of the libraries, for the linker takes such an object from the first alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from lltm_jit.jit import LltmJitError, ToolchainError

from . import _build, _families


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _families.add_argument(parser)
    parser.add_argument(
        "-o", "--output", type=Path, help="of one family; default: liblltm_jit_FAMILY.a"
    )


def run(args: argparse.Namespace) -> int:
    families = _families.chosen(args.families)
    if args.output and len(families) > 1:
        raise LltmJitError(
            f"expected one family beside --output, but got {len(families)}: {', '.join(families)}"
        )
    archiver = shutil.which("ar")
    if archiver is None:
        raise ToolchainError("ar was not found; it comes with the C++ compiler's binutils")
    for info in _build.make(families):
        output = args.output or Path(f"liblltm_jit_{info.name}.a")
        objects = sorted(info.directory.glob("*.o"))
        output.unlink(missing_ok=True)  # ar would add to what is there
        if subprocess.run([archiver, "rcs", output, *objects]).returncode:
            return 1  # ar has said why
        print(f"{output}: {len(objects)} objects")
    return 0
