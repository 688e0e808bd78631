"""Maps folders of the checkout into the wheel, so that an installed copy can build itself.

`kernels/` becomes `lltm_jit/kernels/`; `examples/scale_add/`, the template of `new --standalone`,
becomes `lltm_jit/template/`.

Everything else about the package is in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = {"lltm_jit.kernels": "kernels", "lltm_jit.template": "examples/scale_add"}
SOURCE_PATTERNS = [f"**/*.{suffix}" for suffix in ("h", "cuh", "cpp", "cu", "md")]

setup(
    packages=[*find_packages(include=["lltm_jit", "lltm_jit.*"]), *FOLDERS],
    package_dir=FOLDERS,
    package_data=dict.fromkeys(FOLDERS, SOURCE_PATTERNS),
)
