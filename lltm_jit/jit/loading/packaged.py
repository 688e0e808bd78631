"""Builds that were made elsewhere: libraries in a wheel, and builds without their compiler.

A build fits if the sources, the user's flags, torch, Python and the processor's kind are the same.
The compilers and the system headers may differ from one machine to another. A library for another
torch crashes, and a library from other sources computes something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..machine import gpus
from ..machine.toolchain import includes
from ..request import flags
from ..request.request import TOOLS, Request, differences
from ..store import cache, files
from ..store.cache import DamagedBuild, Record
from ..user.progress import Reporter
from .build import check_library

_FOLDER = r"-(?:I|isystem|iquote|idirafter)"  # folders of headers, which differ between machines
_KINDS = r"-(?:g|G|lineinfo|fsanitize=.*)$"


def matching(request: Request, folder: Path) -> Record | None:
    """The record of the library that a folder of a wheel has for a request, if it fits.

    If it does not, a line tells why. A folder that other users may write to is passed over.
    """
    try:
        record = cache.read_record(folder, f"{request.spec.name}.json")
        problem = why_not(request, record) if record else ""
        if record and not problem:
            check_library(record, files.Stamps())
    except DamagedBuild as damage:
        problem = str(damage)
    if problem:
        Reporter().say(f"the packaged library of {request.spec.name} is not used: {problem}")
    return None if problem else record


def why_not(request: Request, record: Record) -> str:
    """Why a build that was made elsewhere must not be used here; empty if it may."""
    return next(_misfits(request, record), "")


def _misfits(request: Request, record: Record) -> Iterator[str]:
    made, here, tools = record.content, request.content, request.toolchain
    for name in ("schema", "name", "product"):
        if made.get(name) != here[name]:
            yield f"{name} was {made.get(name)} and is {here[name]}"
    kinds = ["cflags", "ldflags", *(["cuda_cflags"] if made["with_cuda"] else [])]
    before = _portable(made, record.spec, kinds)
    now = _portable(here, request.spec._asdict(), kinds)
    # A source must exist even if it is not compiled here.
    there = {each: files.text_digest(files.place(request.base, each)) for each in before["files"]}
    now["files"] = {each: there[each] for each in there if there[each]} | now["files"]
    yield from differences(before, now)
    for label, then in record.inputs.files.items():
        # A machine with a compiler may have other versions of the system's headers.
        watched = label[:1] != "/" or not tools.cxx
        if watched and files.digest(files.place(request.base, label)) not in (then, files.STALE):
            yield f"{label} changed"
    if not includes(tools.cpu_capability, record.toolchain["cpu_capability"]):
        needed = record.toolchain["cpu_capability"]
        yield f"it needs {needed}, and this processor has {tools.cpu_capability}"
    if not made["with_cuda"]:
        if request.with_cuda:
            yield "it has no CUDA kernels, but this machine can build them"
        return
    for capability in gpus.compute_capabilities():
        if not gpus.runs_any(made["architectures"], capability):
            yield f"it has no code for sm_{capability[0]}{capability[1]}"


def _portable(content: dict[str, Any], spec: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
    """The part of a build's content that another machine must share, with these kinds of flags."""
    same = {name: value for name, value in content.items() if name not in TOOLS}
    for kind in kinds:
        debug = [word for word in content[kind] if re.match(_KINDS, word)]
        same[kind] = _chosen(spec[kind]) + debug
    return {**same, "files": content["files"]}


def _chosen(given: Any) -> list[str]:
    """The flags that a user chose, as the compiler takes them: `-D N=4` as `-DN=4`."""
    joined = re.sub(rf"(?m)^(-[DULl]|{_FOLDER})\n", r"\1", "\n".join(flags.words(given)))
    return [word for word in joined.split("\n") if word and not re.match(_FOLDER, word)]
