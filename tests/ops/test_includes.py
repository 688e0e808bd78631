"""What the files of kernels/ may include, so that families stay apart and compile quickly."""

import re
from pathlib import Path

import pytest

from lltm_jit import native
from lltm_jit.jit.store import files

KERNELS = native.kernels_directory()
FILES = sorted(path for path in KERNELS.rglob("*") if path.suffix in (".h", ".cuh", ".cpp", ".cu"))
ALONE = ("bindings.cpp", "core/python/variant.cpp")  # those that may read what is heavy
SOURCES = [path for path in FILES if path.suffix == ".cpp" and not str(path).endswith(ALONE)]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
HEAVY = ("torch/csrc/", "torch/library.h", "pybind11/", "Python.h")
WIDE = {"torch/extension.h", "torch/torch.h", "torch/all.h", "ATen/ATen.h", "ATen/Functions.h"}
# Two seconds, since they come to all devices. An operator's <op>_ops.h and tensors' own functions
# do not.
DEVICES = re.compile(r"ATen/(cpu/Utils|ops/(?!from_blob)\w+(?<!_ops))\.h")
TENSORS = ("ATen/core/", "ATen/ops/", "ATen/EmptyTensor.h")
CPU_KERNELS = [path for path in SOURCES if path.parent.name == "cpu" or "_cpu" in path.stem]


def label(path):
    return path.relative_to(KERNELS).as_posix()


def includes(path, mark):
    """The names that a file includes between quotes or between angle brackets."""
    return [name for found, name in INCLUDE.findall(path.read_text()) if found == mark]


def included_files(path):
    """A file, and what it includes from kernels/."""
    return map(Path, files.closure([str(path)], [str(KERNELS)]))


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_family_includes_core_and_itself(path):
    family = label(path).split("/")[0]
    ours = [name for name in includes(path, "<") if (KERNELS / name).is_file()]
    for name in (*includes(path, '"'), *ours):
        assert name.split("/")[0] in {"core", family}, f"{label(path)} includes {name}"
        assert (KERNELS / name).is_file(), f"there is no kernels/{name}"


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".cu"], ids=label)
def test_a_cuda_source_includes_nothing_of_torch(path):
    """Neither itself nor through a header of ours: nvcc needs a minute more for it."""
    for file in included_files(path):
        wrong = [name for name in includes(file, "<") if name.startswith(TORCH)]
        assert wrong == [], f"{label(path)} comes to {wrong} in {label(file)}"


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_heavy_headers_of_torch_are_read_once_a_family(path):
    """The dispatcher's and autograd's by bindings.cpp, pybind11's by variant.cpp."""
    for file in included_files(path):
        wrong = [name for name in includes(file, "<") if name.startswith(HEAVY)]
        assert wrong == [], f"{label(path)} comes to {wrong} in {label(file)}"


@pytest.mark.parametrize("family", native.families())
def test_bindings_do_without_pybind11(family):
    """It takes three seconds more, and has a unit of its own beside them: variant.cpp."""
    for file in included_files(KERNELS / family / "bindings.cpp"):
        wrong = [name for name in includes(file, "<") if name.startswith("pybind11/")]
        assert wrong == [], f"{family}/bindings.cpp comes to {wrong} in {label(file)}"


@pytest.mark.parametrize("path", FILES, ids=label)
def test_only_narrow_headers_of_torch_are_included(path):
    names = includes(path, "<")
    assert [name for name in names if name in WIDE or DEVICES.fullmatch(name)] == []


@pytest.mark.parametrize("path", CPU_KERNELS, ids=label)
def test_a_cpu_kernel_includes_no_header_of_tensors(path):
    """It takes pointers and sizes; the header of tensors alone would double what it takes."""
    for file in included_files(path):
        wrong = [name for name in includes(file, "<") if name.startswith(TENSORS)]
        assert wrong == [], f"{label(path)} comes to {wrong} in {label(file)}"
