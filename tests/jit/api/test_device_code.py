"""Kernels whose code for the GPU alone is compiled, which the driver loads: here a fake one."""

from __future__ import annotations

import pytest
import torch
from engine_bench import load_variant

from lltm_jit import jit
from lltm_jit.jit import variants
from lltm_jit.jit.variants import Variant


class Driver:
    """That of a GPU: it takes any code but b"wrong", and has a kernel of every name but "none"."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []

    def cuInit(self, flags):
        return 0

    def cuLibraryLoadData(self, library, code, *options):
        self.loaded.append(code)
        library._obj.value = len(self.loaded)
        return 200 if code == b"wrong" else 0

    def cuLibraryGetKernel(self, kernel, library, name):
        kernel._obj.value = 1000 * library.value + len(name)
        return 500 * (name == b"none")

    def cuGetErrorString(self, status, words):
        words._obj.value = b"device kernel image is invalid"


@pytest.fixture
def device_code(cuda, monkeypatch) -> Variant:
    """A kernel whose code for the GPU alone is compiled."""
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setenv("FAKE_TORCH_CUDA", "13.0")
    source = cuda.write("mine/variants/mine_cuda.cu", "code\n")
    return Variant("mine.sums", source, (cuda.sources,), device_code=True)


def test_device_code_has_no_library_and_its_kernels_are_the_drivers(
    bench, device_code, monkeypatch
):
    driver = Driver()
    monkeypatch.setattr(variants.ctypes, "CDLL", lambda name: driver)
    for function in ("one", "three", "one"):
        assert load_variant(device_code, function) == 1000 + len(function)
    assert bench.counts == ["compile mine_cuda.cu"]
    assert driver.loaded == [b"code"]
    with pytest.raises(jit.BuildError, match=r"mine_cuda\.cu has no function 'none'"):
        load_variant(device_code, "none")


def test_device_code_is_loaded_with_its_build(bench, device_code, monkeypatch):
    """Nobody can remove or replace the file between its check and a call, nor does a call read."""
    driver = Driver()
    monkeypatch.setattr(variants.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    (build,) = variants.builds_of([device_code])
    assert driver.loaded == [b"code"]
    build.info.library.unlink()
    assert load_variant(device_code, "one") == 1003


def test_what_the_driver_says_of_code_is_told(bench, device_code, monkeypatch):
    bench.write("mine/variants/mine_cuda.cu", "wrong")
    monkeypatch.setattr(variants.ctypes, "CDLL", lambda name: Driver())
    message = r"cuLibraryLoadData\(\) of the GPU's driver failed with 200: device kernel image is"
    with pytest.raises(jit.LltmJitError, match=message):
        load_variant(device_code, "one")
