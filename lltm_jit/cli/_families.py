"""Which families of kernels a command is about, and what there is of each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lltm_jit import native
from lltm_jit.jit import BuildInfo, LltmJitError, Toolchain, engine

ALL = "all"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument for :func:`chosen`, a list of families."""
    parser.add_argument(
        "families",
        nargs="*",
        metavar="FAMILY",
        help=f"a folder of kernels/, or {ALL}; default: {' and '.join(native.AT_IMPORT)}, which an "
        "import loads",
    )


def chosen(names: Sequence[str]) -> list[str]:
    """The families named; by default those that an import loads.

    Raises:
        LltmJitError: there is no family of a name.
    """
    if ALL in names:
        return native.families()
    return [known(name) for name in dict.fromkeys(names)] or list(native.AT_IMPORT)


def known(name: str) -> str:
    """The name of a family, after a look whether there is one.

    Raises:
        LltmJitError: there is none of this name.
    """
    families = native.families()
    if name not in families:
        raise LltmJitError(f"no family {name!r}; there are {', '.join(families)}")
    return name


def ready(family: str, toolchain: Toolchain) -> BuildInfo | None:
    """What loading a family would use; None where it would have to compile. Builds nothing."""
    spec = native.spec(family, toolchain)
    packaged = native.packaged(spec, toolchain)
    return packaged.info if packaged else engine.inspect(spec, toolchain)


def loader(family: str) -> str:
    """In words, what loads a family."""
    return "an import" if family in native.AT_IMPORT else "its first use"
