"""``archive``: a static library of the compiled objects, to link into a program of your own."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from lltm_jit.jit import ToolchainError

from . import _build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("liblltm_jit.a"), help="%(default)s"
    )


def run(args: argparse.Namespace) -> int:
    archiver = shutil.which("ar")
    if archiver is None:
        raise ToolchainError("ar was not found; it comes with the C++ compiler's binutils")
    objects = sorted(_build.package_build().info.directory.glob("*.o"))
    args.output.unlink(missing_ok=True)  # ar would add to what is there
    if subprocess.run([archiver, "rcs", args.output, *objects]).returncode:
        return 1  # ar has said why
    print(f"{args.output}: {len(objects)} objects")
    return 0
