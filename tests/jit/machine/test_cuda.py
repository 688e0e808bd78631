"""What is found of CUDA on a machine: toolkits, architectures, GPUs."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from small_files import script, write
from torch.utils import cpp_extension

from lltm_jit import jit, native
from lltm_jit.jit.compile import builder, ninja
from lltm_jit.jit.loading import engine
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache

CUDA = {"FAKE_TORCH_CUDA": "13.0", "TORCH_CUDA_ARCH_LIST": "8.0;9.0a"}


def test_cuda_build_and_changed_architectures(cuda, toolkit):
    first = cuda.run(**CUDA)
    assert cuda.counts == ["compile one.cpp", "compile three.cu", "compile two.cpp", "link"]
    assert first["architectures"] == ["8.0", "9.0a"]
    assert (
        "building _C for sm_80, sm_90a (nvcc 13.0, 3 files, 2 jobs): first build" in first["said"]
    )
    assert cuda.run(**CUDA)["cached"]
    second = cuda.run(**{**CUDA, "TORCH_CUDA_ARCH_LIST": "8.0;12.0a"})
    assert second["reason"] == "the architectures changed from 9.0a to 12.0a"
    assert cuda.counts == ["compile three.cu", "link"]


def test_a_gpu_that_has_no_code_is_told_once(cuda, toolkit, monkeypatch, capfd):
    """Where the architectures were chosen, and the kernels would fail at their launch."""
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: [(9, 0), (12, 0)])
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    for expected in (1, 0):
        cuda.load()
        told = "none for this machine's GPU of 12.0: its kernels cannot run there; add 12.0"
        assert capfd.readouterr().err.count(told) == expected


def test_without_nvcc(cuda, monkeypatch, capfd):
    """The package's own sources have code for the CPU; what a user's have is not known."""
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    problem = "nvcc was not found (CUDA_HOME is /nowhere)"
    with pytest.raises(jit.ToolchainError, match=re.escape(f"_C needs CUDA, but {problem}; inst")):
        cuda.load()
    cuda.first(ours=True, around=str(cuda.directory))
    assert f"without CUDA, {problem}" in capfd.readouterr().err


@pytest.mark.parametrize("ours", [False, True])
def test_a_library_in_a_wheel_needs_no_nvcc(cuda, toolkit, monkeypatch, ours):
    """Without it, our own sources for the GPU are not even asked for; but they must be the same."""
    place = cuda.directory / cache.WHEEL_FOLDER
    around = {"ours": True, "around": str(cuda.directory), "packaged": str(place)}
    spec = cuda.spec(**(around if ours else {}))
    engine.package(spec, place)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert jit.inspect(spec).directory == place
    cuda.write("three.cu", "edited\n")
    assert jit.inspect(spec) is None


def test_nvcc_behind_a_wrapper_script_tells_its_real_root(cuda, tmp_path, monkeypatch):
    root = cuda.write_nvcc("real-cuda")
    wrapper = script(tmp_path / "wrappers" / "nvcc", f'exec {root}/bin/nvcc "$@"')
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")
    found = jit.detect()
    assert (found.nvcc, found.cuda_home) == (str(wrapper), str(root))
    assert (found.nvcc_version, found.cuda) == ("13.0.88", True)


@pytest.fixture
def packages(cuda, tmp_path, monkeypatch) -> Path:
    """The CUDA root of the Python packages that nvcc is in, on a machine that has no other."""
    (tmp_path / "nvidia").mkdir()
    shutil.move(cuda.write_nvcc(), tmp_path / "nvidia" / "cu13")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    which = shutil.which

    def elsewhere(name, mode=os.F_OK | os.X_OK, path=None):
        places = (path or os.environ["PATH"]).split(os.pathsep)
        found = [which(name, mode, place) for place in places]
        return next((each for each in found if each and "/usr/local" not in each), None)

    monkeypatch.setattr(shutil, "which", elsewhere)
    return tmp_path / "nvidia" / "cu13"


def test_nvcc_of_a_python_package(cuda, packages, monkeypatch):
    found = jit.detect()
    assert (found.nvcc, found.cuda_home) == (str(packages / "bin" / "nvcc"), str(packages))
    monkeypatch.setattr("torch.version.cuda", "12.8")
    assert jit.detect().cuda_missing == "nvcc was not found"


def test_the_cuda_runtime_of_python_packages_is_linked(cuda, packages):
    """It has no link without a version, by which linkers look for it."""
    library = write(packages / "lib" / "libcudart.so.13")
    text = ninja.BuildFile(Request(cuda.spec())).text
    assert str(library) in text
    assert "-lcudart" not in text


def test_nvcc_of_another_major_version_is_not_used(cuda, toolkit, monkeypatch):
    monkeypatch.setattr("torch.version.cuda", "12.8")
    assert jit.detect().cuda_missing == "nvcc is 13.0.88, but torch needs CUDA 12.8"


@pytest.mark.parametrize(
    ("listed", "present", "expected"),
    [
        ("", [(9, 0)], ("9.0a",)),
        ("", [(8, 0), (8, 0)], ("8.0",)),
        ("", [(12, 0), (8, 6)], ("8.6", "12.0a")),
        ("", [(13, 1)], ("12.0+PTX",)),  # newer than this nvcc
        ("", [], ("8.0", "9.0+PTX")),
        ("native", [(9, 0)], ("9.0a",)),
        ("8.0;9.0+PTX", [(9, 0)], ("8.0", "9.0+PTX")),
        ("8.0 9.0", [], ("8.0", "9.0")),
        ("Ampere;Hopper", [], ("8.0", "8.6+PTX", "9.0+PTX")),
        ("Ampere+Tegra 9.0a", [], ("8.7", "9.0a")),
    ],
)
def test_architectures(cuda, toolkit, monkeypatch, listed, present, expected):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: present)
    assert jit.detect().architectures == expected


@pytest.mark.parametrize("wrong", ["banana", "9.0x", "9", "sm_90", "9.0,8.0", "9.0+ptx", "hopper"])
def test_what_is_no_architecture_is_refused_before_anything_is_compiled(
    cuda, toolkit, monkeypatch, wrong
):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", f"8.0;{wrong}")
    with pytest.raises(jit.ToolchainError) as told:
        builder.check(Request(cuda.spec()))
    assert str(told.value) == (
        "expected TORCH_CUDA_ARCH_LIST to have architectures, such as '8.0;9.0a' or '9.0+PTX', but "
        f"got {wrong!r} in '8.0;{wrong}'"
    )
    builder.check(Request(cuda.spec()._replace(with_cuda=False)))


@pytest.mark.parametrize(
    ("listed", "present", "asks"),
    [
        ("7.0;8.0", [(9, 0)], "TORCH_CUDA_ARCH_LIST='7.0;8.0' asks for 7.0"),
        ("Volta", [], "TORCH_CUDA_ARCH_LIST='Volta' asks for 7.0+PTX"),
        ("", [(7, 0), (8, 0)], "a GPU of this machine asks for 7.0"),
        ("native", [(7, 0)], "a GPU of this machine asks for 7.0"),
        ("7.5+PTX", [(9, 0)], ""),
        ("8.0 9.0a", [(7, 0)], ""),
        ("", [(8, 0), (9, 0)], ""),
    ],
)
def test_architectures_that_kernels_are_not_written_for(
    cuda, toolkit, monkeypatch, listed, present, asks
):
    """Those of the package; a user's own kernels are compiled for any."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: present)
    builder.check(Request(cuda.spec()))
    family = Request(cuda.spec(least_architecture=native.LEAST_ARCHITECTURE))
    with pytest.raises(jit.ToolchainError) if asks else nullcontext() as told:
        builder.check(family)
    assert not asks or str(told.value) == (
        f"_C has CUDA kernels for compute capability 7.5 and later, but {asks}; set "
        "TORCH_CUDA_ARCH_LIST to architectures from 7.5 on, with which it runs on such GPUs and "
        "on the CPU"
    )


@pytest.mark.parametrize("name", gpus.NAMED_ARCHITECTURES)
def test_names_of_architectures_mean_what_they_mean_to_torch(monkeypatch, name):
    flags = []
    for listed in (name, ";".join(gpus.NAMED_ARCHITECTURES[name])):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
        flags.append(cpp_extension._get_cuda_arch_flags())
    assert flags[0] == flags[1]


MANAGEMENT_LIBRARY = """
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(index + 8ul);
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = static_cast<int>(reinterpret_cast<unsigned long>(device));
  *minor = 0;
  return 0;
}
}
"""


def test_gpus_through_the_management_library(tmp_path, monkeypatch):
    source = write(tmp_path / "nvml.cpp", MANAGEMENT_LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["c++", "-shared", "-fPIC", source, "-o", library], check=True)
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: load(str(tmp_path / name)))
    assert gpus.compute_capabilities() == [(8, 0), (9, 0)]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: load(str(tmp_path / "not-there")))
    assert gpus.compute_capabilities() == []
