"""The GPUs of this machine, asked of the driver's management library.

Asking the CUDA runtime instead would create a context: slow, and it would spoil a later fork.
"""

from __future__ import annotations

import ctypes
import sys


def compute_capabilities() -> list[tuple[int, int]]:
    """The compute capability of each GPU; empty without GPU or driver."""
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        return _query(nvml)
    finally:
        nvml.nvmlShutdown()


def _query(nvml: ctypes.CDLL) -> list[tuple[int, int]]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found = []
    for index in range(count.value):
        device = ctypes.c_void_p()
        major, minor = ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            continue
        if (
            nvml.nvmlDeviceGetCudaComputeCapability(
                device, ctypes.byref(major), ctypes.byref(minor)
            )
            == 0
        ):
            found.append((major.value, minor.value))
    return found
