"""The library that a package's wheel brings. Where there is none, a cached load needs no more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..store import cache

if TYPE_CHECKING:
    from ..machine.toolchain import Toolchain
    from ..request.spec import BuildSpec
    from .build_result import Build


def find(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load the library that a wheel brings in a directory; None if there is none that matches."""
    if not cache.wheel_record(directory, spec.name).exists():
        return None
    from . import prebuilt

    return prebuilt.find(directory, spec, toolchain)
