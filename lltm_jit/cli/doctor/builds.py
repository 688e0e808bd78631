"""Whether settings, the directory for builds and memory allow builds, and which there are."""

import os
import shutil
import time
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import ToolchainError, detect, inspect
from lltm_jit.jit.compile import jobs
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache, private, retention
from lltm_jit.jit.store.retention import GIGABYTE
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.settings import SETTINGS

from .. import _extensions
from .trial import Finding, ok, problem, warning

_LOCK_AGE = 600  # seconds after which torch's lock file was more likely left behind than is held


def chosen_settings() -> Finding:
    readers = {"flag": settings.flag, "count": settings.count, "limit": settings.count}
    for setting in SETTINGS.values():
        try:
            readers.get(setting.kind, settings.text)(setting.name)
        except ToolchainError as error:
            return problem(str(error), "correct it, or unset it")
    if wrong := detect().not_understood:
        return problem(wrong, "unset TORCH_CUDA_ARCH_LIST, or correct it")
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        text = "LLTM_JIT_DISABLE_JIT forbids building; only existing builds load"
        return problem(text, "unset LLTM_JIT_DISABLE_JIT")
    if unknown := settings.unknown():
        return warning(", ".join(unknown), "correct the name, or unset it")
    given = ", ".join(f"{name}={value}" for name, value in settings.given().items())
    return ok(given or "all default")


def _existing() -> Path:
    """The directory for builds, or the one in which it will be made."""
    directory = cache.builds_directory()
    return next(path for path in (directory, *directory.parents) if path.exists())


def builds_directory() -> Finding:
    directory, existing = cache.builds_directory(), _existing()
    cure = "set TORCH_EXTENSIONS_DIR to a directory of your own"
    if not os.access(existing, os.W_OK | os.X_OK):
        return problem(f"{existing} is not writable", cure)
    if why_not := private.why_not_private(directory):
        return problem(why_not, cure)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return problem(f"{existing} is mounted noexec: libraries cannot be loaded", cure)
    held = sum(entry.size for entry in retention.entries()) / GIGABYTE
    limit = f"{retention.limit() // GIGABYTE} GB (LLTM_JIT_CACHE_GB)"
    return ok(f"{directory}, with {held:.1f} of at most {limit}")


def disk() -> Finding:
    existing = _existing()
    free = shutil.disk_usage(existing).free / GIGABYTE
    text = f"{free:.1f} GB free at {existing}"
    if free < 0.1:
        return problem(text, "free some space, or set TORCH_EXTENSIONS_DIR elsewhere")
    return warning(text, "run `python -m lltm_jit cache prune --gb 1`") if free < 1 else ok(text)


def memory() -> Finding:
    with_cuda = detect().cuda
    count = jobs.job_count(with_cuda)
    available = jobs.available_memory() / jobs.GIBIBYTE
    a_job = jobs.memory_of_job(with_cuda) // jobs.GIBIBYTE
    text = f"{available:.1f} GiB available for {jobs.in_words(count)} of up to {a_job} GiB"
    if count > 1 and available < count * a_job:
        return warning(text, f"set MAX_JOBS={jobs.fitting_jobs(with_cuda)}")
    return ok(text)


def locks() -> Finding:
    """torch's own locks: ours end with their process, but a killed build leaves torch's behind."""
    # torch's default root has one more folder, for the versions of Python and CUDA.
    left = [*cache.root().glob("*/lock"), *cache.root().glob("py*/*/lock")]
    for path in filter(Path.is_file, left):
        if time.time() - path.stat().st_mtime > _LOCK_AGE:
            said = f"torch.utils.cpp_extension.load waits for {path}, left by a killed build"
            return warning(said, f"if no build is running, run `rm {path}`")
    return ok("none left behind")


def build(family: str) -> Finding:
    spec = native.spec(family)
    if info := inspect(spec):
        return ok(f"ready in {info.directory}")
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        return ok("not built; LLTM_JIT_DISABLE_JIT forbids building")
    if too_old := gpus.why_too_old(family, Request(spec).architectures, spec.least_architecture):
        return problem(too_old, "set TORCH_CUDA_ARCH_LIST")
    return ok(f"not built yet; {_extensions.loader(spec)} builds it")
