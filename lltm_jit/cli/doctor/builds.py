"""Whether settings, the directory for builds and memory allow builds, and which there are."""

from __future__ import annotations

import os
import shutil
import time

from lltm_jit import native
from lltm_jit.jit import ToolchainError, detect
from lltm_jit.jit.compile import jobs
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.machine.toolchain import present
from lltm_jit.jit.store import cache, private
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.settings import SETTINGS

from .. import _extensions
from .trial import Finding

_MEGABYTE = 10**6
_LOCK_AGE = 600  # seconds after which torch's lock file was more likely left behind than is held


def chosen_settings() -> Finding:
    for setting in SETTINGS.values():
        read = {"flag": settings.flag, "count": settings.count, "limit": settings.count}.get(
            setting.kind, settings.text
        )
        try:
            read(setting.name)
        except ToolchainError as error:
            return Finding("problem", str(error), "correct it, or unset it")
    if wrong := present().not_understood:
        cure = "unset TORCH_CUDA_ARCH_LIST, or correct it"
        return Finding("problem", wrong, cure)
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        text = "LLTM_JIT_DISABLE_JIT forbids building; only existing builds load"
        return Finding("problem", text, "unset LLTM_JIT_DISABLE_JIT")
    if unknown := settings.unknown():
        return Finding("warning", ", ".join(unknown), "correct the name, or unset it")
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
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
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
    a_job = jobs.memory_of_job(with_cuda) // jobs.GIBIBYTE
    text = f"{available:.1f} GiB available for {jobs.in_words(count)} of up to {a_job} GiB"
    if count > 1 and available < count * a_job:
        return Finding("warning", text, f"set MAX_JOBS={jobs.fitting_jobs(with_cuda)}")
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
    info = extension.info()
    if info is None and settings.flag("LLTM_JIT_DISABLE_JIT"):
        return Finding("ok", "not built; LLTM_JIT_DISABLE_JIT forbids building")
    if info is None:
        wanted = native.spec(family, present())
        if too_old := gpus.why_too_old(family, wanted.architectures, wanted.least_architecture):
            return Finding("problem", too_old, "set TORCH_CUDA_ARCH_LIST")
        return Finding("ok", f"not built yet; {_extensions.loader(extension)} builds it")
    return Finding("ok", f"ready in {info.directory}")
