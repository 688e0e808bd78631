"""The checks of ``doctor``. Each returns one finding, with one cure where something is wrong."""

from __future__ import annotations

import difflib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from lltm_jit import native
from lltm_jit.jit import ToolchainError, detect
from lltm_jit.jit.compile import jobs
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.machine.toolchain import cuda_cure, find_cxx, find_ninja, present
from lltm_jit.jit.store import cache, private
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.causes import cure_of
from lltm_jit.jit.user.settings import SETTINGS

from . import _extensions, _trial

_MEGABYTE = 10**6
_LOCK_AGE = 600  # seconds after which a lock file of torch's is more likely left than held
_ANOTHER_COMPILER = (
    "install one that works (Debian and Ubuntu: `apt-get install g++`), and set CXX to it"
)


@dataclass(frozen=True)
class Finding:
    """What a check found: "ok", "warning" (it builds, but) or "problem" (it does not build)."""

    status: str
    text: str
    cure: str = ""


def checks() -> dict[str, Callable[[], Finding]]:
    """The checks by name, in the order in which one depends on the other."""
    return {
        "settings": chosen_settings,
        "Python": python,
        "torch": torch_itself,
        "C++ compiler": cxx,
        "C++ trial build": cxx_trial,
        "ninja": ninja,
        "GPU": gpu,
        "nvcc": nvcc,
        "CUDA trial build": cuda_trial,
        "builds directory": builds_directory,
        "disk": disk,
        "memory": memory,
        "locks": locks,
        **{f"build of {family}": partial(build, family) for family in native.families()},
    }


def python() -> Finding:
    version = platform.python_version()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        return Finding(
            "problem",
            f"{version}, but {header} is missing",
            f"install Python's headers (Debian and Ubuntu: `apt-get install {package}`)",
        )
    return Finding("ok", f"{version}, headers in {header.parent}")


def torch_itself() -> Finding:
    text = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if torch.__version__ < "2.9":
        return Finding("problem", text, "run `python -m pip install 'torch>=2.9'`")
    return Finding("ok", text)


def cxx() -> Finding:
    words, version = find_cxx(), present().cxx_version
    compiler = shlex.join(words)
    if not words:
        return _no_cxx()
    if not version:
        return Finding("problem", f"{compiler} does not print its version", _ANOTHER_COMPILER)
    cpp_extension = _cpp_extension()
    oldest = ".".join(map(str, cpp_extension.MINIMUM_GCC_VERSION[:2]))
    wanted = f"torch needs g++ {oldest} or newer, and {_trial.STANDARD.upper()}"
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


def _no_cxx() -> Finding:
    given, usual = settings.text("CXX"), SETTINGS["CXX"].default
    if given == usual:
        install = "install one (Debian and Ubuntu: `apt-get install g++`), or set CXX to yours"
        return Finding("problem", "no C++ compiler was found", install)
    if shutil.which(usual):
        cure = f"unset CXX, which gives {usual}, or set it to a compiler that exists"
    else:
        cure = "set CXX to a compiler that exists (Debian and Ubuntu: `apt-get install g++`)"
    program = (given.split() or [given])[0]
    if os.sep not in program:
        why = "is not on PATH"
    elif os.path.exists(program):
        why = "is not a program that can be run"
    else:
        why = "does not exist"
    text = f"CXX is set to {given!r}, " + ("which" if program == given else f"and {program!r}")
    return Finding("problem", f"{text} {why}", cure)


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
    trial = _trial.cxx(tools)
    if trial.error:
        return Finding("problem", trial.error, cure_of(trial.error) or _ANOTHER_COMPILER)
    return Finding("ok", f"compiled, linked and loaded in {trial.seconds:.1f} s")


def ninja() -> Finding:
    try:
        path = find_ninja()
    except ToolchainError as error:
        return Finding("problem", str(error), "run `python -m pip install ninja`")
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    if done.returncode:
        return Finding("problem", f"{path} does not run", "run `python -m pip install -U ninja`")
    return Finding("ok", f"{done.stdout.strip()} ({path})")


def gpu() -> Finding:
    capabilities, version = gpus.compute_capabilities(), gpus.driver_version()
    driver = f"driver {version}" if version else "no NVIDIA driver that runs"
    if not capabilities:
        return Finding("ok", f"none, {driver}")
    names = ", ".join(f"sm_{major}{minor}" for major, minor in capabilities) + f", {driver}"
    if torch.version.cuda is None:
        return Finding(
            "warning",
            f"{names}, but this torch is built without CUDA",
            cuda_cure(),
        )
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
        return Finding(
            status,
            f"{tools.cuda_missing}: builds are for the CPU",
            cuda_cure(),
        )
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
    trial = _trial.cuda(tools)
    targets = " ".join(tools.architectures)
    if trial.error:
        cure = cure_of(trial.error) or "reinstall the CUDA toolkit, or set CUDA_HOME to another"
        return Finding("problem", f"{trial.error} (for {targets})", cure)
    return Finding("ok", f"compiled and linked for {targets} in {trial.seconds:.1f} s")


def chosen_settings() -> Finding:
    for setting in SETTINGS.values():
        read = {"flag": settings.flag, "count": settings.count, "limit": settings.count}.get(
            setting.kind, settings.text
        )
        try:
            read(setting.name)
        except ToolchainError as error:
            return Finding("problem", str(error), f"unset {setting.name}, or correct it")
    if wrong := present().not_understood:
        cure = "unset TORCH_CUDA_ARCH_LIST, or correct it"
        return Finding("problem", wrong, cure)
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        text = "LLTM_JIT_DISABLE_JIT forbids building; only what is built already is loaded"
        return Finding("problem", text, "unset LLTM_JIT_DISABLE_JIT")
    unknown = [name for name in os.environ if name.startswith("LLTM_JIT_") and name not in SETTINGS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], SETTINGS, n=1)
        cure = f"did you mean {near[0]}?" if near else "MAX_JOBS.env.example lists all settings"
        return Finding("warning", f"{unknown[0]} is not a setting", cure)
    given = ", ".join(f"{name}={value}" for name, value in settings.given().items())
    return Finding("ok", given or "all default")


def builds_directory() -> Finding:
    directory = cache.builds_directory()
    cure = "set TORCH_EXTENSIONS_DIR to a directory of your own"
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("problem", f"{existing} is not writable", cure)
    if problem := private.why_not_private(directory):
        return Finding("problem", problem, cure)
    if hasattr(os, "ST_NOEXEC") and os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Finding("problem", f"{existing} is mounted noexec: libraries cannot be loaded", cure)
    return Finding("ok", str(directory))


def disk() -> Finding:
    directory = cache.builds_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    size = f"{free / 10**9:.1f} GB" if free >= 10**9 else f"{free / _MEGABYTE:.1f} MB"
    text = f"{size} free at {existing}"
    if free < 100 * _MEGABYTE:
        return Finding("problem", text, "free some space, or set TORCH_EXTENSIONS_DIR elsewhere")
    if free < 1000 * _MEGABYTE:
        return Finding("warning", text, "run `python -m lltm_jit cache prune`")
    return Finding("ok", text)


def memory() -> Finding:
    with_cuda = detect().cuda
    count = jobs.job_count(with_cuda)
    available = jobs.available_memory() / jobs.GIBIBYTE
    a_job = 4 if with_cuda else 2
    text = f"{available:.1f} GiB available for {jobs.in_words(count)} of up to {a_job} GiB"
    if count > 1 and available < count * a_job:
        return Finding("warning", text, f"set MAX_JOBS={max(1, int(available / a_job))}")
    return Finding("ok", text)


def locks() -> Finding:
    """torch's own locks: ours end with their process, but a killed build leaves torch's behind."""
    now = time.time()
    # torch's default root has one more folder, for the versions of Python and CUDA.
    left = [*cache.root().glob("*/lock"), *cache.root().glob("py*/*/lock")]
    old = [path for path in left if path.is_file() and now - path.stat().st_mtime > _LOCK_AGE]
    if old:
        return Finding(
            "warning",
            f"torch.utils.cpp_extension.load waits for {old[0]}, left by a build that was killed",
            f"if no build is running, run `rm {old[0]}`",
        )
    return Finding("ok", "none left behind")


def build(family: str) -> Finding:
    extension = native.extension(family)
    info = extension.info(detect(family))
    if info is None and settings.flag("LLTM_JIT_DISABLE_JIT"):
        return Finding("ok", "not built, and not to be built: see settings")
    if info is None:
        wanted = native.spec(family, present())
        if too_old := gpus.why_too_old(family, wanted.architectures, wanted.least_architecture):
            return Finding("problem", too_old, "set TORCH_CUDA_ARCH_LIST")
        return Finding("ok", f"not built yet; {_extensions.loader(extension)} builds it")
    return Finding("ok", f"ready in {info.directory}")
