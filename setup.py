"""Maps the C++ and CUDA sources of `kernels/` into the wheel as `lltm_jit/kernels/`.

Everything else about the package is in pyproject.toml.
"""

from setuptools import find_packages, setup

SOURCE_PATTERNS = [f"**/*.{suffix}" for suffix in ("h", "cuh", "cpp", "cu", "md")]

setup(
    packages=[*find_packages(include=["lltm_jit", "lltm_jit.*"]), "lltm_jit.kernels"],
    package_dir={"lltm_jit.kernels": "kernels"},
    package_data={"lltm_jit": ["py.typed"], "lltm_jit.kernels": SOURCE_PATTERNS},
)
