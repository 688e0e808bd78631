"""Whether Python, torch, the compilers and the GPU can be used, each with a trial."""

from __future__ import annotations

import logging
import platform
import shlex
import sysconfig
import time
from pathlib import Path
from types import ModuleType

import torch

from lltm_jit.jit import ToolchainError
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.machine.toolchain import find_cxx, present
from lltm_jit.jit.machine.tools import REPAIR, asked, cuda_cure, find_ninja, why_no_cxx
from lltm_jit.jit.user.causes import cure_of

from . import trial
from .trial import Finding

_NEWEST_TESTED = "2.13"  # as the README says, too


def python() -> Finding:
    version = platform.python_version()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        cure = cure_of("Python.h: No such file or directory")
        return Finding("problem", f"{version}, but {header} is missing", cure)
    return Finding("ok", f"{version}, headers in {header.parent}")


def torch_itself() -> Finding:
    text = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if torch.__version__ < "2.9":
        return Finding("problem", text, "run `python -m pip install 'torch>=2.9'`")
    if torch.__version__ >= f"{_NEWEST_TESTED}.99":
        text += f": newer than {_NEWEST_TESTED}, the newest that was tested"
        return Finding("warning", text, f"if something fails, install torch=={_NEWEST_TESTED}.0")
    return Finding("ok", text)


def cxx() -> Finding:
    words, version = find_cxx(), present().cxx_version
    compiler = shlex.join(words)
    if not words or not version:
        return Finding("problem", *why_no_cxx(words))
    cpp_extension = _cpp_extension()
    oldest = ".".join(map(str, cpp_extension.MINIMUM_GCC_VERSION[:2]))
    wanted = f"torch needs g++ {oldest} or newer, and {trial.STANDARD.upper()}"
    # torch asks one program; of several words, the trial build tells whether they work.
    if (
        len(words) == 1
        and not cpp_extension.get_compiler_abi_compatibility_and_version(words[0])[0]
    ):
        return Finding(
            "warning",
            f"{version} is not one that torch is known to work with: {wanted}",
            "install a newer g++ or clang++, and set CXX to it",
        )
    return Finding("ok", f"{version} ({compiler}); {wanted}")


def _cpp_extension() -> ModuleType:
    """torch's module, which takes a second to import, as only a doctor may."""
    logger = logging.getLogger("torch.utils.cpp_extension")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns where there is no GPU, which is a check of its own
    try:
        from torch.utils import cpp_extension
    finally:
        logger.setLevel(level)
    return cpp_extension


def cxx_trial() -> Finding:
    tools = present()
    if tools.cxx is None:
        return Finding("ok", "skipped: no compiler")
    began = time.perf_counter()
    if error := trial.cxx(tools):
        return Finding("problem", f"{tools.cxx} fails: {error}", cure_of(error) or REPAIR)
    return Finding("ok", f"compiled, linked and loaded in {time.perf_counter() - began:.1f} s")


def ninja() -> Finding:
    try:
        path = find_ninja()
    except ToolchainError as error:
        return Finding("problem", str(error), "run `python -m pip install ninja`")
    status, said = asked([str(path), "--version"])
    if status:
        return Finding("problem", f"{path} does not run", "run `python -m pip install -U ninja`")
    return Finding("ok", f"{said.strip()} ({path})")


def gpu() -> Finding:
    capabilities, version = gpus.compute_capabilities(), gpus.driver_version()
    driver = f"driver {version}" if version else "no working NVIDIA driver"
    if not capabilities:
        return Finding("ok", f"none, {driver}")
    names = ", ".join(f"sm_{major}{minor}" for major, minor in capabilities) + f", {driver}"
    if torch.version.cuda is None:
        return Finding("warning", f"{names}, but this torch is built without CUDA", cuda_cure())
    if not torch.cuda.is_available():
        return Finding(
            "problem",
            f"{names}, but torch cannot use it: the driver is older than CUDA "
            f"{torch.version.cuda}, or CUDA_VISIBLE_DEVICES hides it",
            "update the NVIDIA driver, or install a torch for an older CUDA",
        )
    return Finding("ok", f"{names}; {torch.cuda.get_device_name(0)}")


def nvcc() -> Finding:
    tools = present()
    if torch.version.cuda is None:
        return Finding("ok", "not needed: this torch is built without CUDA")
    if tools.cuda_missing:
        # Without a GPU a CPU build is what one wants; with one it is not.
        status = "problem" if gpus.compute_capabilities() else "warning"
        return Finding(status, f"{tools.cuda_missing}: builds are for the CPU", cuda_cure())
    text = f"{tools.nvcc_version} ({tools.nvcc}, CUDA root {tools.cuda_home})"
    if not (Path(tools.cuda_home or "") / "include" / "cuda_runtime.h").exists():
        return Finding(
            "problem",
            f"{text}: no include/cuda_runtime.h there",
            "install the toolkit's headers too, or set CUDA_HOME to a whole toolkit",
        )
    if not tools.nvcc_version.startswith(f"{torch.version.cuda}."):
        # Within a major version CUDA promises that both directions work.
        return Finding("ok", f"{text}; torch has {torch.version.cuda}, which is compatible")
    return Finding("ok", text)


def cuda_trial() -> Finding:
    tools = present()
    if not tools.cuda:
        return Finding("ok", "skipped: builds are for the CPU")
    tools.check_architectures()
    targets, began = " ".join(tools.architectures), time.perf_counter()
    if error := trial.cuda(tools):
        cure = cure_of(error) or "reinstall the CUDA toolkit, or set CUDA_HOME to another"
        return Finding("problem", f"{error} (for {targets})", cure)
    seconds = time.perf_counter() - began
    return Finding("ok", f"compiled and linked for {targets} in {seconds:.1f} s")
