"""Wheels of other projects with compiled kernels, for use in a setup.py.

The libraries that a package loads from its own folder during its import go into its wheel, next to
the sources, with a record of their compatibility. :func:`lltm_jit.load` finds them there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from .loading import engine
from .loading.reload import given_modules
from .request.request import Request
from .store.cache import WHEEL_FOLDER
from .user.errors import BuildError


def arguments(package: str) -> dict[str, Any]:
    """Return the arguments of ``setup()`` for a wheel that contains a package's compiled kernels.

    Args:
        package: the package to import while the wheel is built. The sources of its kernels must be
            in its own folder.

    Raises:
        BuildError: while the wheel is built, if importing the package loads no such kernels.

    Example:
        In a setup.py::

            setup(**wheel.arguments("scale_add"))
    """

    class Build(build_ext):
        def run(self) -> None:
            if not self.inplace:  # an editable install is there to be edited
                folders = self.distribution.package_dir or {}
                sys.path.insert(0, str(Path(folders.get("", ".")).absolute()))
                _put(package, Path(self.build_lib).absolute())

    # An extension without sources makes it a wheel for this platform.
    return {
        "ext_modules": [Extension(f"{package}.{WHEEL_FOLDER}", [])],
        "cmdclass": {"build_ext": Build},
    }


def _put(package: str, build_folder: Path) -> None:
    """Import a package, and copy the libraries that it loads to its folder in the wheel."""
    module = import_module(package)
    assert module.__file__ is not None
    folder = Path(module.__file__).resolve().parent
    found = False
    for _, build in given_modules():
        base = Path(Request(build.spec).base or "/").resolve()
        if not base.is_relative_to(folder):
            continue
        place = build_folder.joinpath(*package.split("."), base.relative_to(folder), WHEEL_FOLDER)
        engine.package(build.spec, place)
        found = True
    if not found:
        raise BuildError(f"importing {package} loads no extension with sources in {folder}")
