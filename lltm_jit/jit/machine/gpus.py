"""The GPUs of this machine, asked of the driver's management library.

Asking the CUDA runtime instead would create a context: slow, and it would spoil a later fork.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..user import settings

# Compiled into for a machine without GPU: 8.x runs sm_80, 9.x sm_90, later ones compile the PTX.
_ARCHITECTURES_WITHOUT_GPU = ("8.0", "9.0+PTX")

_ARCHITECTURE = r"(\d+)\.(\d+)([af]?)(\+PTX)?"

# torch's names in TORCH_CUDA_ARCH_LIST; it has them in no public place.
NAMED_ARCHITECTURES = {
    "Kepler+Tesla": ("3.7",),
    "Kepler": ("3.5+PTX",),
    "Maxwell+Tegra": ("5.3",),
    "Maxwell": ("5.0", "5.2+PTX"),
    "Pascal": ("6.0", "6.1+PTX"),
    "Volta+Tegra": ("7.2",),
    "Volta": ("7.0+PTX",),
    "Turing": ("7.5+PTX",),
    "Ampere+Tegra": ("8.7",),
    "Ampere": ("8.0", "8.6+PTX"),
    "Ada": ("8.9+PTX",),
    "Hopper": ("9.0+PTX",),
    "Blackwell+Tegra": ("11.0",),
    "Blackwell": ("10.0", "10.3", "12.0", "12.1+PTX"),
}


def compute_capabilities() -> list[tuple[int, int]]:
    """The compute capability of each GPU; empty without GPU or driver."""
    found = []
    with _management_library() as nvml:
        count = ctypes.c_uint()
        if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        for index in range(count.value):
            device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            numbers = ctypes.byref(major), ctypes.byref(minor)
            if (
                nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
                and nvml.nvmlDeviceGetCudaComputeCapability(device, *numbers) == 0
            ):
                found.append((major.value, minor.value))
    return found


def architectures(supported: list[str]) -> tuple[str, ...]:
    """The architectures to compile for, as numbers in torch's spelling."""
    wanted = settings.text("TORCH_CUDA_ARCH_LIST")
    if wanted and wanted != "native":
        parts = [part for part in re.split(r"[; ]+", wanted) if part]
        return tuple(arch for part in parts for arch in NAMED_ARCHITECTURES.get(part, (part,)))
    capabilities = compute_capabilities()
    if not capabilities:
        return _ARCHITECTURES_WITHOUT_GPU
    numbers = re.findall(r"\b(\d+)\.(\d+)\b", " ".join(supported))
    newest = max(((int(major), int(minor)) for major, minor in numbers), default=(99, 0))
    return tuple(
        dict.fromkeys(architecture(capability, newest) for capability in sorted(capabilities))
    )


def why_too_old(title: str, architectures: Iterable[str], least: tuple[int, int]) -> str:
    """Which of the architectures the CUDA sources are not written for; empty if all will do."""
    for architecture in architectures:
        told = re.fullmatch(_ARCHITECTURE, architecture)
        if told is None or (int(told[1]), int(told[2])) >= least:
            continue
        given = settings.text("TORCH_CUDA_ARCH_LIST")
        listed = given and given != "native"
        asks = f"TORCH_CUDA_ARCH_LIST={given!r} asks" if listed else "a GPU of this machine asks"
        number = f"{least[0]}.{least[1]}"
        return (
            f"{title} has CUDA kernels for compute capability {number} and later, but {asks} for "
            f"{architecture}; set TORCH_CUDA_ARCH_LIST to architectures from {number} on, with "
            "which it runs on such GPUs and on the CPU"
        )
    return ""


def architecture(capability: tuple[int, int], newest: tuple[int, int] = (99, 0)) -> str:
    """What is compiled for a GPU, by an nvcc that knows architectures up to the newest."""
    if capability > newest:  # a GPU younger than nvcc: let the driver compile the newest PTX
        return f"{newest[0]}.{newest[1]}+PTX"
    # A build here is for this machine alone, so from Hopper on take the instructions that only
    # this architecture has ("a").
    suffix = "a" if capability >= (9, 0) else ""
    return f"{capability[0]}.{capability[1]}{suffix}"


def runs_any(architectures: Iterable[str], capability: tuple[int, int]) -> bool:
    """Whether code for one of these architectures runs on a GPU."""
    return any(runs_on(architecture, capability) for architecture in architectures)


def runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code for an architecture, as torch spells it, runs on a GPU."""
    told = re.fullmatch(_ARCHITECTURE, architecture)
    if told is None:
        return False  # a name that a later torch knows
    made = (int(told[1]), int(told[2]))
    if told[3]:
        return made == capability
    # Machine code runs on later minor versions of its generation, PTX on all that is later.
    portable = told[4] is not None
    return made <= capability and (portable or made[0] == capability[0])


def driver_version() -> str:
    """The version of the NVIDIA driver, such as ``580.65.06``; empty without a working driver."""
    with _management_library() as nvml:
        text = ctypes.create_string_buffer(80)  # as long as the library's own constant says
        if nvml is None or nvml.nvmlSystemGetDriverVersion(text, len(text)) != 0:
            return ""
        return text.value.decode()


@contextmanager
def _management_library() -> Iterator[ctypes.CDLL | None]:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
