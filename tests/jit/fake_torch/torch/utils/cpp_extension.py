"""torch's build in small: a build file of the same form, run by ninja."""

import os
import shutil
import time

import torch

RULES = """ninja_required_version = 1.3
cxx = {cxx}
cflags = {includes} -fPIC {cflags}
rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out
  depfile = $out.d
  deps = gcc
rule cuda_compile
  command = {nvcc} -MD -MF $out.d {includes} {arches} {cuda_cflags} -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = $cxx $in -shared {ldflags} -o $out
"""


def load(
    name,
    sources,
    extra_cflags,
    extra_cuda_cflags,
    extra_ldflags,
    extra_include_paths,
    build_directory,
    with_cuda,
    verbose,
    is_python_module,
    is_standalone,
):
    if os.environ.get("FAKE_TORCH_MORE"):
        assert torch.library is None
    # Like torch's own: whoever finds the lock file of another waits for it to go.
    lock = os.path.join(build_directory, "lock")
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    if "FAKE_TORCH_WAIT" in os.environ:
        open(os.environ["FAKE_TORCH_WAIT"], "w").close()
        time.sleep(60)
    objects = []
    for source in sources:
        stem, suffix = os.path.splitext(os.path.basename(source))
        objects.append(stem + (".cuda.o" if suffix == ".cu" else ".o"))
    try:
        _write_ninja_file(
            path=os.path.join(build_directory, "build.ninja"),
            cflags=extra_cflags,
            cuda_cflags=extra_cuda_cflags,
            ldflags=extra_ldflags,
            include_paths=extra_include_paths,
            sources=sources,
            objects=objects,
            library_target=f"{name}.so",
            with_cuda=with_cuda,
        )
        raise AssertionError("the engine runs ninja itself")
    finally:
        os.unlink(lock)


def _write_ninja_file(
    path,
    cflags,
    cuda_cflags,
    ldflags,
    include_paths,
    sources,
    objects,
    library_target,
    with_cuda,
):
    cuda = os.environ.get("CUDA_HOME", "")
    wrapper = "ccache " if shutil.which("ccache") and "FAKE_TORCH_WRAPS" in os.environ else ""
    if os.environ.get("TORCH_NO_COMPILER_WRAPPER"):
        wrapper = ""
    if with_cuda:
        lib = "lib64" if os.path.exists(f"{cuda}/lib64") else "lib"
        ldflags = [*ldflags, f"-L{cuda}/{lib}"]
    text = RULES.format(
        cxx=wrapper + os.environ["CXX"],
        nvcc=wrapper + os.path.join(cuda, "bin", "nvcc"),
        includes=" ".join(f"-I{path}" for path in include_paths),
        cflags=" ".join(cflags),
        cuda_cflags=" ".join(cuda_cflags),
        arches=f"'{os.environ['TORCH_CUDA_ARCH_LIST']}'" if with_cuda else "",
        ldflags=" ".join(ldflags),
    )
    for source, target in zip(sources, objects, strict=True):
        rule = "cuda_compile" if source.endswith(".cu") else "compile"
        text += f"build {target}: {rule} {source.replace(' ', '$ ')}\n"
    text += f"build {library_target}: link {' '.join(objects)}\n"
    with open(path, "w") as file:
        file.write(text)
