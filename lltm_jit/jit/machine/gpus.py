"""The GPUs of this machine, asked of the driver's management library.

Asking the CUDA runtime would create a context, which is slow and breaks a later fork.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable

from ..user import settings

# The default without a GPU: 8.x runs sm_80, 9.x runs sm_90, and later GPUs compile the PTX.
_ARCHITECTURES_WITHOUT_GPU = ("8.0", "9.0+PTX")

_ARCHITECTURE = r"(\d+)\.(\d+)([af]?)(\+PTX)?"

# torch's names in TORCH_CUDA_ARCH_LIST; torch has no public table of them.
NAMED_ARCHITECTURES = {
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
    found, count = [], ctypes.c_uint()
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))  # the count stays 0 if this fails
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        numbers = ctypes.byref(major), ctypes.byref(minor)
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
            and nvml.nvmlDeviceGetCudaComputeCapability(device, *numbers) == 0
        ):
            found.append((major.value, minor.value))
    nvml.nvmlShutdown()
    return found


def architectures(
    newest: tuple[int, int], there: Iterable[tuple[int, int]] | None = None
) -> tuple[str, ...]:
    """The architectures to compile for, as numbers in torch's spelling. The compiler knows
    architectures up to ``newest``; ``there`` are the GPUs, if they are known.
    """
    wanted = re.findall(r"[^; ]+", settings.text("TORCH_CUDA_ARCH_LIST"))
    if wanted and wanted != ["native"]:
        return tuple(arch for name in wanted for arch in NAMED_ARCHITECTURES.get(name, (name,)))
    capabilities = compute_capabilities() if there is None else there
    found = (architecture(capability, newest) for capability in sorted(capabilities))
    return tuple(dict.fromkeys(found)) or _ARCHITECTURES_WITHOUT_GPU


def why_wrong(architectures: Iterable[str]) -> str:
    """What is wrong with a name that is no architecture; empty if all names can be right."""
    wrong = next((name for name in architectures if not re.fullmatch(_ARCHITECTURE, name)), "")
    return wrong and (
        "expected TORCH_CUDA_ARCH_LIST to have architectures, such as '8.0;9.0a' or '9.0+PTX', but "
        f"got {wrong!r} in {settings.text('TORCH_CUDA_ARCH_LIST')!r}"
    )


def why_too_old(title: str, architectures: Iterable[str], least: tuple[int, int]) -> str:
    """Why an architecture is too old for the CUDA sources; empty if none is."""
    told = filter(None, (re.fullmatch(_ARCHITECTURE, name) for name in architectures))
    old = next((each[0] for each in told if (int(each[1]), int(each[2])) < least), "")
    if not old:
        return ""
    given = settings.text("TORCH_CUDA_ARCH_LIST") or "native"
    asks = "a GPU of this machine" if given == "native" else f"TORCH_CUDA_ARCH_LIST={given!r}"
    number = f"{least[0]}.{least[1]}"
    return (
        f"{title} has CUDA kernels for compute capability {number} and later, but {asks} asks for "
        f"{old}; set TORCH_CUDA_ARCH_LIST to architectures from {number} on, with which it runs on "
        "such GPUs and on the CPU"
    )


def architecture(capability: tuple[int, int], newest: tuple[int, int] = (99, 0)) -> str:
    """The architecture to compile for a GPU, by an nvcc that knows those up to the newest."""
    if capability > newest:  # a GPU younger than nvcc: let the driver compile the newest PTX
        return f"{newest[0]}.{newest[1]}+PTX"
    # A build here is for this machine alone, so from Hopper on take the instructions that only
    # this architecture has ("a").
    suffix = "a" if capability >= (9, 0) else ""
    return f"{capability[0]}.{capability[1]}{suffix}"


def number(architecture: str) -> tuple[int, int]:
    """The compute capability in torch's name of an architecture; zeros in any other name."""
    told = re.fullmatch(_ARCHITECTURE, architecture)
    return (int(told[1]), int(told[2])) if told else (0, 0)


def runs_any(architectures: Iterable[str], capability: tuple[int, int]) -> bool:
    """Whether code for one of these architectures, as torch spells them, runs on a GPU."""
    for told in filter(None, (re.fullmatch(_ARCHITECTURE, name) for name in architectures)):
        major, minor = int(told[1]), int(told[2])
        if (major, minor) == capability:
            return True
        # Machine code runs on later minor versions of its generation, PTX on all later ones.
        if (major, minor) < capability and not told[3] and (told[4] or major == capability[0]):
            return True
    return False
