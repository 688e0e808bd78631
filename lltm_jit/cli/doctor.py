"""``doctor``: check whether this machine can build, and say what to fix.

examples:
  python -m lltm_jit doctor           one line per check; below each problem, how to fix it
  python -m lltm_jit doctor --json    the same, for programs; exits with 1 if builds would fail
"""

import argparse
import ctypes
import json
import os
import platform
import re
import shlex
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from lltm_jit import native
from lltm_jit.jit import ToolchainError, detect, inspect
from lltm_jit.jit.compile import jobs
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.machine.toolchain import find_cxx
from lltm_jit.jit.machine.tools import REPAIR, asked, cuda_cure, find_ninja, why_no_cxx
from lltm_jit.jit.request import flags
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache, private, retention
from lltm_jit.jit.store.retention import GIGABYTE
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.causes import cure_of

from . import _extensions

_DRIVER = Path("/sys/module/nvidia/version")
_NEWEST_TESTED = "2.13"  # the README names it, too
_STANDARD = "c++20" if torch.__version__ >= "2.13" else "c++17"  # like torch's own build
# It includes a header of torch, because torch decides how new the compiler must be.
_CXX = """\
#include <Python.h>
#include <c10/core/ScalarType.h>
extern "C" int answer() { return c10::isFloatingType(c10::ScalarType::Half) ? 42 : 0; }
"""
_CUDA = """\
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
extern "C" int launch(float* x) { twice<<<1, 32>>>(x); return cudaGetLastError(); }
"""


class Finding(NamedTuple):
    """What a check found: "ok", "warning" (it builds, but) or "problem" (it does not build)."""

    status: str
    text: str
    cure: str = ""


ok, warning, problem = (partial(Finding, status) for status in ("ok", "warning", "problem"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "print one JSON object: for each check its status, text and cure"
    parser.add_argument("--json", action="store_true", help=about)


def run(args: argparse.Namespace) -> int:
    findings: dict[str, Finding] = {}
    for name, check in checks().items():
        finding = findings[name] = outcome(check, findings)
        if not args.json:
            print(f"{finding.status:<8} {name:<18} {finding.text}", flush=True)
            if finding.cure:
                print(f"{'':<8} {'':<18} -> {finding.cure}", flush=True)
    problems = [name for name, finding in findings.items() if finding.status == "problem"]
    if args.json:
        print(json.dumps({name: each._asdict() for name, each in findings.items()}, indent=2))
    else:
        see = f"not ready to build: see {', '.join(problems)}"
        print(f"\n{see if problems else 'ready to build'}")
    return 1 if problems else 0


def checks() -> dict[str, Callable[[], Finding]]:
    """The checks by name; each may depend on earlier ones."""
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
        "memory": memory,
        **{f"build of {family}": partial(build, family) for family in native.families()},
    }


def outcome(check: Callable[[], Finding], before: dict[str, Finding]) -> Finding:
    """What a check finds; a check that raises is a problem, and the next one still runs."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - every error is reported
        for name, finding in before.items():
            if finding.text == str(error):
                return ok(f"skipped: see {name}")
        return problem(f"the check itself failed: {type(error).__name__}: {error}")


def chosen_settings() -> Finding:
    readers = {"flag": settings.flag, "count": settings.count, "limit": settings.count}
    for setting in settings.SETTINGS.values():
        try:
            readers.get(setting.kind, settings.text)(setting.name)
        except ToolchainError as error:
            return problem(str(error), "correct it, or unset it")
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        text = "LLTM_JIT_DISABLE_JIT forbids building; only existing builds load"
        return problem(text, "unset LLTM_JIT_DISABLE_JIT")
    if unknown := settings.unknown():
        return warning(", ".join(unknown), "correct the name, or unset it")
    given = ", ".join(f"{name}={value}" for name, value in settings.given().items())
    return ok(given or "all default")


def python() -> Finding:
    version = platform.python_version()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return problem(f"{version}, but {header} is missing", cure_of(f"{header}: No such file"))
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
    text = f"{tools.cxx_version} ({shlex.join(words)}); torch needs {_STANDARD.upper()}"
    if not tools.cxx_family:
        return warning(f"{text}, and is known to work with g++ and clang++", "set CXX to one")
    return ok(text)


def cxx_trial() -> Finding:
    """Compile, link against torch, and load, in the steps of a build."""
    tools, package = detect(), Path(torch.__file__).parent
    if tools.cxx is None:
        return ok("skipped: no compiler")
    given = [f"-std={_STANDARD}", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    given += ["-isystem", f"{package}/include", "-MMD", "-MF", "trial.d", "-c", "trial.cpp"]
    linked = ["trial.o", "-shared", f"-L{package}/lib", "-lc10", "-o", "trial.so"]
    compiler, began = shlex.split(tools.cxx), time.perf_counter()
    commands = [[*compiler, *given, "-o", "trial.o"], [*compiler, *linked]]
    if error := _trial("trial.cpp", _CXX, commands, load=True):
        return problem(f"{tools.cxx} fails: {error}", cure_of(error) or REPAIR)
    return ok(f"compiled, linked and loaded in {time.perf_counter() - began:.1f} s")


def cuda_trial() -> Finding:
    """Compile for the architectures of builds, and link. This needs no GPU."""
    tools, began = detect(), time.perf_counter()
    if not tools.cuda:
        return ok("skipped: builds are for the CPU")
    targets, how = " ".join(tools.architectures), flags.gencode(tools.architectures)
    command = [tools.nvcc or "nvcc", *how, "-shared", "-Xcompiler", "-fPIC", "trial.cu"]
    if error := _trial("trial.cu", _CUDA, [[*command, "-o", "trial.so"]], load=False):
        cure = cure_of(error) or "reinstall the CUDA toolkit, or set CUDA_HOME to another"
        return problem(f"{error} (for {targets})", cure)
    return ok(f"compiled and linked for {targets} in {time.perf_counter() - began:.1f} s")


def _trial(name: str, text: str, commands: list[list[str]], load: bool) -> str:
    """The first error of commands on a text, or of loading their result; empty without one."""
    with tempfile.TemporaryDirectory(prefix="lltm_jit-") as directory:
        Path(directory, name).write_text(text)
        for command in commands:
            status, said = asked(command, Path(directory))
            if status:
                lines = [line for line in said.splitlines() if line.strip()]
                errors = [line for line in lines if re.search("error|cannot find|fatal", line)]
                return next(iter(errors + lines), f"{command[0]} ends with status {status}")
        try:
            if load:
                ctypes.CDLL(f"{directory}/trial.so")
        except OSError as error:
            return str(error)
    return ""


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
    capabilities = gpus.compute_capabilities()
    if not capabilities:
        return ok("none, or no working NVIDIA driver")
    names = ", ".join(f"sm_{major}{minor}" for major, minor in capabilities)
    with suppress(OSError):
        names += f", driver {_DRIVER.read_text().strip()}"
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
        # A CPU build is right for a machine without a GPU, and wrong for one with a GPU.
        finding = problem if gpus.compute_capabilities() else warning
        return finding(f"{tools.cuda_missing}: builds are for the CPU", cuda_cure())
    text = f"{tools.nvcc_version} ({tools.nvcc}, CUDA root {tools.cuda_home})"
    if not Path(tools.cuda_home or "", "include", "cuda_runtime.h").exists():
        cure = "install the toolkit's headers too, or set CUDA_HOME to a whole toolkit"
        return problem(f"{text}: no include/cuda_runtime.h there", cure)
    # CUDA's minor versions are compatible with each other in both directions.
    same = tools.nvcc_version.startswith(f"{torch.version.cuda}.")
    return ok(text if same else f"{text}; torch has {torch.version.cuda}, which is compatible")


def builds_directory() -> Finding:
    directory = cache.builds_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    cure = "set TORCH_EXTENSIONS_DIR to a directory of your own"
    if not os.access(existing, os.W_OK | os.X_OK):
        return problem(f"{existing} is not writable", cure)
    if why_not := private.why_not_private(directory):
        return problem(why_not, cure)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return problem(f"{existing} is mounted noexec: libraries cannot be loaded", cure)
    held, most = sum(entry.size for entry in retention.entries()), retention.limit() // GIGABYTE
    free = shutil.disk_usage(existing).free / GIGABYTE
    text = f"{directory}: {held / GIGABYTE:.1f} of at most {most} GB (LLTM_JIT_CACHE_GB)"
    text += f", and {free:.1f} GB are free"
    if free < 0.1:
        return problem(text, "free some space, or set TORCH_EXTENSIONS_DIR elsewhere")
    return warning(text, "run `python -m lltm_jit cache prune --gb 1`") if free < 1 else ok(text)


def memory() -> Finding:
    with_cuda = detect().cuda
    count, a_job = jobs.job_count(with_cuda), jobs.memory_of_job(with_cuda)
    available = jobs.available_memory()
    text = f"{available / jobs.GIBIBYTE:.1f} GiB available for {jobs.in_words(count)}"
    text += f" of up to {a_job // jobs.GIBIBYTE} GiB"
    too_many = count > 1 and available < count * a_job
    return warning(text, f"set MAX_JOBS={jobs.fitting_jobs(with_cuda)}") if too_many else ok(text)


def build(family: str) -> Finding:
    spec = native.spec(family)
    if info := inspect(spec):
        return ok(f"ready in {info.directory}")
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        return ok("not built; LLTM_JIT_DISABLE_JIT forbids building")
    if too_old := gpus.why_too_old(family, Request(spec).architectures, spec.least_architecture):
        return problem(too_old, "set TORCH_CUDA_ARCH_LIST")
    return ok(f"not built yet; {_extensions.loader(spec)} builds it")
