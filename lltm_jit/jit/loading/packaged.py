"""Builds that were made elsewhere: libraries in a wheel, and builds without their compiler.

A build fits if all is the same that does not depend on the machine that made it: the sources, the
user's flags, torch, Python and the processor's kind. Another machine's compilers and system headers
may differ. A library for another torch crashes, and one of other sources computes something else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..machine import gpus
from ..machine.toolchain import includes
from ..request import flags
from ..request.request import TOOLS, WORDS, Request
from ..store import cache, files
from ..store.cache import DamagedBuild, Record
from ..user.progress import Reporter
from . import importing

_FOLDER = r"-(?:I|isystem|iquote|idirafter)"  # for headers, which another machine has elsewhere
_KINDS = r"-(?:g|G|lineinfo|fsanitize=.*)$"


def matching(request: Request, folder: Path) -> Record | None:
    """The record of the library that a folder of a wheel has for a request, if it fits.

    If it does not, a line tells why. A folder that other users may write to is passed over.
    """
    try:
        record = cache.read_record(folder, f"{request.spec.name}.json")
        problem = why_not(request, record) if record else ""
        if record and not problem:
            importing.check_library(record, files.Stamps())
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
    for name, then in made.items():
        if name not in TOOLS and then != here.get(name):
            yield f"{WORDS.get(name, name)} was {then} and is {here.get(name)}"
    for kind in ("cflags", "ldflags", *(["cuda_cflags"] if made["with_cuda"] else [])):
        before, now = _chosen(record.spec[kind]), _chosen(getattr(request.spec, kind))
        if before != now:
            yield f"{WORDS[kind]} were {before or 'none'} and are {now or 'none'}"
    kinds = ({word for word in each["cflags"] if re.match(_KINDS, word)} for each in (made, here))
    before, now = (" ".join(sorted(each)) for each in kinds)
    if before != now:
        yield f"it was built with {before or 'no debug flags'}, and {now or 'none'} are wanted"
    yield from _file_changes(request, record)
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


def _chosen(given: Any) -> str:
    """The flags that a user chose, as the compiler takes them: `-D N=4` as `-DN=4`."""
    joined = re.sub(rf"(?m)^(-[DULl]|{_FOLDER})\n", r"\1", "\n".join(flags.words(given)))
    return " ".join(word for word in joined.split("\n") if not re.match(_FOLDER, word))


def _file_changes(request: Request, record: Record) -> Iterator[str]:
    """The files that are others here. A source must be here; a header need not."""
    before, now = record.content["files"], request.content["files"]
    for label, then in before.items():
        path = files.place(request.base, label)
        if now.get(label, files.text_digest(path)) != then:
            yield f"{label} {'changed' if os.path.exists(path) or label in now else 'removed'}"
    yield from (f"{label} added" for label in now if label not in before)
    for label, then in record.inputs.files.items():
        # With a compiler, this is a machine of its own: others' headers may be another version.
        watched = label[:1] != "/" or not request.toolchain.cxx
        path = files.place(request.base, label)
        if watched and files.digest(path) not in (then, files.STALE):
            yield f"{label} changed"
