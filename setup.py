"""Maps folders of the checkout into the wheel, so that an installed copy can build itself.

`kernels/` becomes `lltm_jit/kernels/`; `examples/scale_add/`, the template of `new --standalone`,
becomes `lltm_jit/template/`. With LLTM_JIT_PREBUILD=1 the kernels are compiled into the wheel as
well, to a library for each family, for the torch that is installed:
`LLTM_JIT_PREBUILD=1 python -m pip wheel --no-build-isolation --no-deps .`

Everything else about the package is in pyproject.toml.
"""

import os
import sys
import time
import types
from fnmatch import fnmatch
from pathlib import Path
from typing import ClassVar

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
FOLDERS = {"lltm_jit.kernels": "kernels", "lltm_jit.template": "examples/scale_add"}
SUFFIXES = ("h", "cuh", "cpp", "cu", "json", "md", "py", "toml")
SOURCE_PATTERNS = [f"**/*.{suffix}" for suffix in SUFFIXES]
# Benchmarks of the project itself, which are not installed with it.
CHECKOUT_ONLY = ("benchmark", "_*_benchmark", "_opponent", "_report", "_stylegan_*")


class Package(build_py):
    """The package without the modules that a checkout alone has."""

    def find_package_modules(self, package: str, directory: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, directory)
        if package != "lltm_jit.cli":
            return modules
        return [entry for entry in modules if not any(fnmatch(entry[1], p) for p in CHECKOUT_ONLY)]


def prebuilt() -> dict:
    """The arguments of setup() that compile each family, by the spec that an import compiles by."""
    # The engine is imported without the package around it, which would build the kernels.
    package = types.ModuleType("lltm_jit")
    package.__path__ = [str(HERE / "lltm_jit")]
    sys.modules["lltm_jit"] = package
    try:
        from lltm_jit import native
        from lltm_jit.jit import detect, variants
        from lltm_jit.jit.jobs import job_count
        from lltm_jit.jit.prebuilt import FOLDER, write
    except ImportError as error:
        raise SystemExit(
            f"LLTM_JIT_PREBUILD=1 needs torch: use --no-build-isolation ({error})"
        ) from None

    tools = detect()
    specs = {family: native.spec(family, tools) for family in native.families()}
    os.environ.setdefault("MAX_JOBS", str(job_count(tools.cuda)))
    os.environ.setdefault("CXX", tools.cxx or "")
    if tools.cuda:
        os.environ["CUDA_HOME"] = tools.cuda_home or ""
        os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(tools.architectures)
    from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

    def full_name(family: str) -> str:
        return f"lltm_jit.{FOLDER}.{family}"

    class Build(BuildExtension):
        seconds: ClassVar[dict[str, float]] = {}  # that each extension took, by its full name

        def run(self) -> None:
            super().run()
            for family, spec in specs.items():
                library = Path(self.get_ext_fullpath(full_name(family)))
                write(library, spec, tools, self.seconds[full_name(family)])
            for variant in variants.listed(native.kernels_directory()):
                variants.package(variant, library.parent / variants.VARIANTS, tools)

        def build_extension(self, ext: Extension) -> None:
            began = time.time()
            # Each has a folder of its own, for a source of core/ may be compiled for several.
            parent, self.build_temp = self.build_temp, os.path.join(self.build_temp, ext.name)
            super().build_extension(ext)
            self.build_temp = parent
            self.seconds[ext.name] = time.time() - began

    extensions = [
        (CUDAExtension if spec.with_cuda else CppExtension)(
            full_name(family),
            [str(source.relative_to(HERE)) for source in spec.sources],
            include_dirs=[str(path) for path in spec.include_paths],
            extra_compile_args={"cxx": list(spec.cflags), "nvcc": list(spec.cuda_cflags)},
            extra_link_args=list(spec.ldflags),
        )
        for family, spec in specs.items()
    ]
    return {"ext_modules": extensions, "cmdclass": {"build_py": Package, "build_ext": Build}}


wanted = os.environ.get("LLTM_JIT_PREBUILD", "").lower() in ("1", "true", "yes", "on")

setup(
    packages=[*find_packages(include=["lltm_jit", "lltm_jit.*"]), *FOLDERS],
    package_dir=FOLDERS,
    package_data=dict.fromkeys(FOLDERS, SOURCE_PATTERNS),
    **(prebuilt() if wanted else {"cmdclass": {"build_py": Package}}),
)
