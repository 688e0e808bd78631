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


def test_a_family_includes_core_and_itself():
    for path in FILES:
        ours = [name for name in includes(path, "<") if (KERNELS / name).is_file()]
        for name in (*includes(path, '"'), *ours):
            near = {"core", label(path).split("/")[0]}
            assert name.split("/")[0] in near, f"{label(path)} includes {name}"
            assert (KERNELS / name).is_file(), f"there is no kernels/{name}"


def test_only_narrow_headers_of_torch_are_included():
    for path in FILES:
        names = includes(path, "<")
        wrong = [name for name in names if name in WIDE or DEVICES.fullmatch(name)]
        assert wrong == [], f"{label(path)} includes {wrong}"


# Which files come to no header that begins so, neither themselves nor through a header of ours.
WITHOUT = {
    # nvcc needs a minute more for it.
    "CUDA sources": ([path for path in FILES if path.suffix == ".cu"], TORCH),
    # bindings.cpp reads the dispatcher's and autograd's, variant.cpp pybind11's, once a family.
    "sources": (SOURCES, HEAVY),
    # It takes three seconds more, and has a unit of its own beside them: variant.cpp.
    "bindings": ([KERNELS / name / "bindings.cpp" for name in native.families()], ("pybind11/",)),
    # They take pointers and sizes; the header of tensors alone would double what they take.
    "CPU kernels": (CPU_KERNELS, TENSORS),
}


@pytest.mark.parametrize("files", WITHOUT)
def test_heavy_headers_are_read_where_they_are_needed(files):
    paths, heavy = WITHOUT[files]
    assert paths
    for path in paths:
        for file in included_files(path):
            wrong = [name for name in includes(file, "<") if name.startswith(heavy)]
            assert wrong == [], f"{label(path)} comes to {wrong} in {label(file)}"
