"""Whether Python, torch, the compilers and the GPU can be used."""

import platform
import shlex
import sysconfig
import time
from pathlib import Path

import torch

from lltm_jit.jit import detect
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.machine.toolchain import find_cxx
from lltm_jit.jit.machine.tools import REPAIR, asked, cuda_cure, find_ninja, why_no_cxx
from lltm_jit.jit.user.causes import cure_of
from lltm_jit.jit.user.errors import ToolchainError

from . import trial
from .trial import Finding, ok, problem, warning

_NEWEST_TESTED = "2.13"  # as the README says, too


def python() -> Finding:
    version = platform.python_version()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        cure = cure_of("Python.h: No such file or directory")
        return problem(f"{version}, but {header} is missing", cure)
    return ok(f"{version}, headers in {header.parent}")


def torch_itself() -> Finding:
    text = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if torch.__version__ < "2.9":
        return problem(text, "run `python -m pip install 'torch>=2.9'`")
    if torch.__version__ >= f"{_NEWEST_TESTED}.99":
        text += f": newer than {_NEWEST_TESTED}, the newest that was tested"
        return warning(text, f"if something fails, install torch=={_NEWEST_TESTED}.0")
    return ok(text)


def cxx() -> Finding:
    words, tools = find_cxx(), detect()
    if not words or not tools.cxx_version:
        return problem(*why_no_cxx(words))
    text = f"{tools.cxx_version} ({shlex.join(words)}); torch needs {trial.STANDARD.upper()}"
    if not tools.cxx_family:
        return warning(f"{text}, and is known to work with g++ and clang++", "set CXX to one")
    return ok(text)


def cxx_trial() -> Finding:
    tools = detect()
    if tools.cxx is None:
        return ok("skipped: no compiler")
    began = time.perf_counter()
    if error := trial.cxx(tools):
        return problem(f"{tools.cxx} fails: {error}", cure_of(error) or REPAIR)
    return ok(f"compiled, linked and loaded in {time.perf_counter() - began:.1f} s")


def ninja() -> Finding:
    try:
        path = find_ninja()
    except ToolchainError as error:
        return problem(str(error), "run `python -m pip install ninja`")
    status, said = asked([str(path), "--version"])
    if status:
        return problem(f"{path} does not run", "run `python -m pip install -U ninja`")
    return ok(f"{said.strip()} ({path})")


def gpu() -> Finding:
    capabilities, version = gpus.compute_capabilities(), gpus.driver_version()
    driver = f"driver {version}" if version else "no working NVIDIA driver"
    if not capabilities:
        return ok(f"none, {driver}")
    names = ", ".join(f"sm_{major}{minor}" for major, minor in capabilities) + f", {driver}"
    if torch.version.cuda is None:
        return warning(f"{names}, but this torch is built without CUDA", cuda_cure())
    if not torch.cuda.is_available():
        why = (
            f"the driver is older than CUDA {torch.version.cuda}, or CUDA_VISIBLE_DEVICES hides it"
        )
        cure = "update the NVIDIA driver, or install a torch for an older CUDA"
        return problem(f"{names}, but torch cannot use it: {why}", cure)
    return ok(f"{names}; {torch.cuda.get_device_name(0)}")


def nvcc() -> Finding:
    tools = detect()
    if torch.version.cuda is None:
        return ok("not needed: this torch is built without CUDA")
    if tools.cuda_missing:
        # Without a GPU a CPU build is what one wants; with one it is not.
        finding = problem if gpus.compute_capabilities() else warning
        return finding(f"{tools.cuda_missing}: builds are for the CPU", cuda_cure())
    text = f"{tools.nvcc_version} ({tools.nvcc}, CUDA root {tools.cuda_home})"
    if not (Path(tools.cuda_home or "") / "include" / "cuda_runtime.h").exists():
        cure = "install the toolkit's headers too, or set CUDA_HOME to a whole toolkit"
        return problem(f"{text}: no include/cuda_runtime.h there", cure)
    # Within a major version CUDA promises that both directions work.
    same = tools.nvcc_version.startswith(f"{torch.version.cuda}.")
    return ok(text if same else f"{text}; torch has {torch.version.cuda}, which is compatible")


def cuda_trial() -> Finding:
    tools = detect()
    if not tools.cuda:
        return ok("skipped: builds are for the CPU")
    tools.check_architectures()
    targets, began = " ".join(tools.architectures), time.perf_counter()
    if error := trial.cuda(tools):
        cure = cure_of(error) or "reinstall the CUDA toolkit, or set CUDA_HOME to another"
        return problem(f"{error} (for {targets})", cure)
    return ok(f"compiled and linked for {targets} in {time.perf_counter() - began:.1f} s")
