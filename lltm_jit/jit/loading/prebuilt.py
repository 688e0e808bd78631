"""Libraries that were compiled when the package was built, so that an import needs no compiler.

They are in one folder of the package, one per extension, each next to the record of its build. A
library is used only if all of the record matches: one for another torch crashes, and one of other
sources computes something else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..compile.files_read import split_flags
from ..machine import gpus
from ..machine.toolchain import Toolchain, includes
from ..request.differences import WORDS
from ..request.fingerprint import Request, build_key
from ..request.spec import CUDA_SUFFIXES, BuildSpec
from ..store import cache, checked_json, contents, manifest
from ..store.cache import DamagedBuild, Record
from ..store.manifest import Manifest, folders
from ..user import settings
from ..user.progress import Reporter
from . import engine, importing
from .build_result import Build, BuildInfo, info_of

# With one of these set, the user wants a build of another kind.
_KINDS = ("LLTM_JIT_DEBUG", "CUDA_DEVICE_DEBUG", "LLTM_JIT_LINEINFO", "LLTM_JIT_SANITIZE")

# May differ on another machine, such as the folder of the sources, or is compared by its effect.
MAY_DIFFER = {
    *("cxx", "compiler", "scripts", "nvcc", "architectures", "with_cuda", "environment", "folder"),
    *("cflags", "cuda_cflags", "ldflags", "include_paths", "sources", "files"),
}
# Flags that users do not choose: a machine without nvcc may use a library with CUDA.
_GIVEN = r"-DWITH_CUDA$|-DCPU_CAPABILITY"
_SEARCHED = r"-(?:I|isystem|iquote|idirafter)(.*)"
_WITH_WORD = r"(?m)^(-(?:[DUILl]|isystem|iquote|idirafter))\n"  # flags whose value may stand apart


def put(spec: BuildSpec, toolchain: Toolchain, directory: Path) -> None:
    """Build an extension, and put its library into a folder of a wheel, next to its record."""
    info = engine.build(spec, toolchain)
    record = cache.read_record(info.directory)
    assert record is not None
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy2(info.library, directory)
    told = record._replace(places=[], reason="compiled when the package was built")
    checked_json.write(cache.wheel_record(directory, spec.name), told._asdict())


def find(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load what :func:`matching` finds."""
    found = matching(directory, spec, toolchain)
    if found is None:
        return None
    request, made_of, info, registers = found
    with importing.thread_lock(request.key):
        build = engine.loaded(spec, toolchain)
        return build or engine.adopt(spec, request.content, made_of, info, registers)


def matching(
    directory: Path, spec: BuildSpec, toolchain: Toolchain
) -> tuple[Request, Manifest, BuildInfo, list[str]] | None:
    """The library that a directory has for a spec, if it matches; if not, a line tells why.

    With the request, what it was made of, and what it registers.
    """
    path = cache.wheel_record(directory, spec.name)
    if not path.exists() or not settings.given().keys().isdisjoint(_KINDS):
        return None
    cache.check_private(path)
    request = Request.of(spec, toolchain)
    try:
        record = cache.record_in(path)
        cache.check_private(directory / record.library)
        problem = next(_misfits(record, directory, request), "")
    except (OSError, DamagedBuild):
        problem = "it or its record cannot be read"
    if problem:
        Reporter().say(f"the packaged library of {spec.name} is not used: {problem}")
        return None
    # The sources that are here can be edited here.
    own = record.manifest["own"].items()
    here = {label: then for label, then in own if _digest(spec, label) == then}
    made_of: Manifest = {**manifest.empty(), "own": here}
    info = info_of(record, spec, cached=True)
    key, library = build_key(request.key, made_of), directory / record.library
    info = info._replace(key=key, directory=directory, library=library)
    return request, made_of, info, record.registers


def _misfits(record: Record, directory: Path, request: Request) -> Iterator[str]:
    """Why the library must not be used here; empty if it may."""
    spec, here, made = request.spec, request.toolchain, record.toolchain
    for name, then in record.fingerprint.items():
        if name not in MAY_DIFFER and then != (now := request.content.get(name)):
            yield f"{WORDS.get(name, name)} was {then} and is {now}"
    for words, before, now in _flags(record, request):
        if before != now:
            yield f"{words} were {before or 'none'} and are {now or 'none'}"
    yield from _file_changes(record, request)
    if not includes(here.cpu_capability, made["cpu_capability"]):
        yield f"it needs {made['cpu_capability']}, and this processor has {here.cpu_capability}"
    if contents.digest(directory / record.library) != record.digest:
        yield f"{record.library} is not the file that was built"
    if not record.fingerprint["with_cuda"]:
        if spec.with_cuda and not here.recorded:
            yield "it has no CUDA kernels, but this machine can build them"
        return
    for capability in gpus.compute_capabilities():
        if not gpus.runs_any(record.fingerprint["architectures"], capability):
            yield f"it has no code for sm_{capability[0]}{capability[1]}"


def _flags(record: Record, request: Request) -> Iterator[tuple[str, str, str]]:
    """The flags that users chose, then and now, with what they are called."""
    spec, cuda = request.spec, record.fingerprint["with_cuda"]
    kinds = {"cflags": "the C++ flags", "ldflags": "the linker flags"}
    kinds |= {"cuda_cflags": "the CUDA flags"} if cuda else {}
    for kind, words in kinds.items():
        yield words, _chosen(record.asked.get(kind)), _chosen(spec.asked.get(kind))
    then, now = dict(record.toolchain["environment"]), dict(request.toolchain.environment)
    variables = ["CCC_OVERRIDE_OPTIONS"]
    variables += ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"] if cuda else []
    for name in variables:
        yield f"the flags in {name}", then.get(name, ""), now.get(name, "")
    if request.toolchain.cxx and record.fingerprint["cxx"]:
        commands = (record.fingerprint["cxx"], request.toolchain.cxx)
        before, after = (" ".join(re.findall(r"(?<= )-.*", command)) for command in commands)
        yield "the flags in CXX", before, after


def _chosen(flags: Iterable[str] | None) -> str:
    """Flags as the compiler takes them, `-D N=4` as `-DN=4`, without paths that are searched."""
    words = _words(flags)
    return " ".join(w for w in words if not re.match(_GIVEN, w) and not re.fullmatch(_SEARCHED, w))


def _words(flags: Iterable[str] | None) -> list[str]:
    return re.sub(_WITH_WORD, r"\1", "\n".join(split_flags(flags or ()))).split("\n")


def _file_changes(record: Record, request: Request) -> Iterator[str]:
    """The files that are others here. A source must be here; a header need not."""
    spec, before, now = request.spec, record.fingerprint["files"], request.content["files"]
    yield from (f"{label} changed" for label in before if _digest(spec, label) != before[label])
    yield from (f"{label} added" for label in now if label not in before)
    gone = [label for label in before if label not in now]
    # A toolchain without CUDA leaves these out, and they count all the same.
    yield from (f"{label} removed" for label in gone if Path(label).suffix not in CUDA_SUFFIXES)
    for label, then in record.manifest["own"].items():
        if _digest(spec, label) not in (then, ""):  # what is not there could not be compiled
            yield f"{label} changed"
    # What was found on an include path would now be found on those of now.
    given = [*record.fingerprint["include_paths"], *_searched(record.asked)]
    searched = folders(["" if folder == "." else folder for folder in given])
    folders_now = [*map(str, spec.include_paths), *_searched(spec.asked)]
    for label, then in manifest.content(record.manifest).items():
        for start in filter(label.startswith, searched):
            found = (os.path.join(folder, label[len(start) :]) for folder in folders_now)
            there = next(filter(os.path.isfile, found), "")
            if there != manifest.place(spec.base, label) and manifest.digest_if_any(there) not in (
                then,
                "",
            ):
                yield f"{label} changed"


def _searched(asked: dict[str, Any]) -> list[str]:
    """The include paths that a caller gave, as such or among the flags."""
    words = _words([*asked.get("cflags", ()), *asked.get("cuda_cflags", ())])
    found = [match[1] for match in (re.fullmatch(_SEARCHED, word) for word in words) if match]
    return [*asked.get("include_paths", ()), *found]


def _digest(spec: BuildSpec, label: str) -> str:
    return manifest.digest_if_any(manifest.place(spec.base, label))
