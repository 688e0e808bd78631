"""What the engine takes of torch's module: the linker's flags, and a build file of its form."""

import os

TORCH_LIB_PATH = "/lib"
CUDA_HOME = None

RULES = """ninja_required_version = 1.3
cxx = {cxx}
cflags = {includes} -fPIC {cflags}
cuda_cflags = {includes} {cuda_cflags}
ldflags = {ldflags}
rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out
  depfile = $out.d
  deps = gcc
rule cuda_compile
  command = {nvcc} -MD -MF $out.d $cuda_cflags -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = $cxx $in {shared} $ldflags -o $out

build one.o: compile one.cpp
build {name}: link one.o
"""


def _prepare_ldflags(ldflags, with_cuda, *how):
    return [*ldflags, f"-L{CUDA_HOME}/lib64"] if with_cuda else ldflags


def _write_ninja_file_to_build_library(path, name, is_standalone, **given):
    text = RULES.format(
        name=name,
        cxx=os.environ["CXX"],
        nvcc=os.path.join(CUDA_HOME or "", "bin", "nvcc"),
        includes=" ".join(f"-I{path}" for path in given["extra_include_paths"]),
        cflags=" ".join(given["extra_cflags"]),
        cuda_cflags=" ".join(given["extra_cuda_cflags"]),
        ldflags=" ".join(given["extra_ldflags"]),
        shared="" if is_standalone else "-shared",
    )
    with open(path, "w") as file:
        file.write(text)
