"""How two builds differ: in their flags alone, and in words, which say why one is needed."""

from __future__ import annotations

import os
from typing import Any

from ..store import manifest
from ..store.cache import Record
from .fingerprint import Fingerprint, flags, whole
from .spec import BuildSpec

WORDS = {
    "torch": "torch",
    "cuda": "torch's CUDA",
    "python": "the Python ABI",
    "machine": "the processor type",
    "processor": "the processor",
    "cxx": "the compiler's command",
    "compiler": "the compiler",
    "nvcc": "nvcc",
    "architectures": "the architectures",
    "cflags": "the C++ flags",
    "cuda_cflags": "the CUDA flags",
    "ldflags": "the linker flags",
    "include_paths": "the include paths",
    "environment": "the compile environment",
    "with_cuda": "CUDA",
    "constants": "the constants",
    "libraries": "torch's place",
}


def differences(old: Fingerprint, new: Fingerprint) -> list[str]:
    """What changed from one build to another, one phrase per change, with the old and new value."""
    found = []
    before, after = old.get("files", {}), new["files"]
    found += [f"{name} changed" for name in after if name in before and before[name] != after[name]]
    # The libraries that an include brings in are not of interest.
    found += [f"{name} added" for name in after if name not in before and not os.path.isabs(name)]
    found += [f"{name} removed" for name in before if name not in after and not os.path.isabs(name)]
    for entry, words in WORDS.items():
        if old.get(entry) != new.get(entry):
            found.append(_value_change(words, old.get(entry), new.get(entry)))
    if not found and old.get("scripts") != new.get("scripts"):
        found.append("the script that calls the compiler changed")
    return found


def nearest(earlier: list[Record], content: Fingerprint) -> Record | None:
    """The build to compare with: of the same kind, and as similar as possible.

    That is the newest one, or the newest with the same flags if there is one.
    """
    similar = [
        record
        for record in earlier
        if record.fingerprint["files"].keys() & content["files"].keys()
        and record.fingerprint.get("constants") == content.get("constants")
        and _kind(record.fingerprint) == _kind(content)
    ]
    now = flags(content)
    return min(
        similar,
        key=lambda record: (
            flags(record.fingerprint) != now,
            len(differences(record.fingerprint, content)),
        ),
        default=None,
    )


def _kind(content: Fingerprint) -> set[str]:
    """What makes a build for a debugger or a profiler different: it replaces no ordinary one."""
    return {"-g", "-lineinfo"} & {*content["cflags"], *content["cuda_cflags"]}


def reasons(old: Record | None, spec: BuildSpec, new: Fingerprint) -> list[str]:
    """Why a build is needed, one phrase per reason."""
    if old is None:
        return ["first use" if "constants" in new else "first build"]
    there = old.fingerprint.get("folder")
    if there != new.get("folder"):
        return [f"the last build was in another folder, {there}"]
    changes = manifest.changes(old.manifest, spec.base)
    now = manifest.content(old.manifest)
    untold = {name for name in changes.files if name.startswith(manifest.UNTOLD)}
    for name in changes.files - untold:
        now[name] = manifest.digest_if_any(manifest.place(spec.base, name))
        if not now[name]:
            del now[name]
    before = whole(old.fingerprint, old.manifest)
    phrases = differences(before, {**new, "files": now | new["files"]})
    phrases += [f"{name} came or went on its search path" for name in sorted(changes.names)]
    phrases += [f"{name} may have changed" for name in sorted(untold)]
    return phrases or ["the cached build cannot be used"]


def in_short(reasons: list[str]) -> str:
    """The first three reasons, and how many more there are."""
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more


def _value_change(words: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):
        gone = " ".join(str(item) for item in old if item not in new)
        come = " ".join(str(item) for item in new if item not in old)
        if not gone and not come:
            return f"{words} changed order"
        return f"{words} changed from {gone or 'nothing'} to {come or 'nothing'}"
    return f"{words} changed from {old} to {new}"
