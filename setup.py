"""Maps folders of the checkout into the wheel, so that an installed copy can build itself.

`kernels/` becomes `lltm_jit/kernels/`; the examples that `new` copies become
`lltm_jit/templates/...`. With LLTM_JIT_PREBUILD=1 the kernels are compiled into the wheel as well,
to a library for each family, for the torch that is installed:
`LLTM_JIT_PREBUILD=1 python -m pip wheel --no-build-isolation --no-deps .`

Everything else about the package is in pyproject.toml.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
TEMPLATES = ("scale_add", "unit_rows", "soft_clip", "peephole")
FOLDERS = {
    "lltm_jit.kernels": "kernels",
    **{f"lltm_jit.templates.{name}": f"examples/{name}" for name in TEMPLATES},
}
SUFFIXES = ("h", "cuh", "cpp", "cu", "json", "md", "py", "toml")
SOURCE_PATTERNS = [f"**/*.{suffix}" for suffix in SUFFIXES]


def prebuilt() -> dict:
    """The arguments of setup() that put a build of each family into the wheel."""
    os.environ["LLTM_JIT_AT_IMPORT"] = "0"
    sys.path.insert(0, str(HERE))
    try:
        from lltm_jit import native
        from lltm_jit.jit.loading.engine import build_all, package
        from lltm_jit.jit.store.cache import WHEEL_FOLDER
    except ImportError as error:
        raise SystemExit(
            f"LLTM_JIT_PREBUILD=1 needs torch: use --no-build-isolation ({error})"
        ) from None

    class Build(build_ext):
        def run(self) -> None:
            place = Path(self.get_ext_fullpath(f"lltm_jit.{WHEEL_FOLDER}.any")).parent
            build_all([native.spec(family) for family in native.families()])
            for family in native.families():
                package(native.spec(family), place)

    # An extension without sources makes it a wheel for this platform.
    extension = Extension(f"lltm_jit.{WHEEL_FOLDER}", [])
    return {"ext_modules": [extension], "cmdclass": {"build_ext": Build}}


wanted = os.environ.get("LLTM_JIT_PREBUILD", "").lower() in ("1", "true", "yes", "on")
# An editable install adds the checkout to sys.path, as it is. With folders mapped, setuptools would
# add a finder, which comes last: beside a checkout named lltm_jit, that folder would be imported.
folders = {} if "editable_wheel" in sys.argv else FOLDERS

setup(
    packages=[*find_packages(include=["lltm_jit", "lltm_jit.*"]), *folders],
    package_dir=folders or {"": "."},
    package_data={
        "lltm_jit": ["py.typed"],
        "lltm_jit.jit.compile": ["forms/**/*.h", "standard/*"],
        **dict.fromkeys(folders, SOURCE_PATTERNS),
    },
    **(prebuilt() if wanted else {}),
)
