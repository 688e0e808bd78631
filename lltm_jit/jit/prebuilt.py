"""Libraries that were compiled when the package was built, so that an import needs no compiler.

They are in one folder of the package, one per extension, each next to the record of its build. A
library is used only if all of the record matches: one for another torch crashes, and one of other
sources computes something else.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from . import cache, engine, gpus, knobs, lock, manifest
from .build import Build, BuildInfo, info_of
from .cache import DamagedBuild, Record
from .fingerprint import Request, build_key
from .manifest import Manifest
from .progress import Reporter
from .reads import split_flags
from .spec import BuildSpec
from .toolchain import Toolchain, includes

FOLDER = "prebuilt"

# Who sets one of these wants a build of another kind.
_KINDS = ("LLTM_JIT_DEBUG", "CUDA_DEVICE_DEBUG", "LLTM_JIT_LINEINFO", "LLTM_JIT_SANITIZE")

_WORDS = {
    "torch_version": "torch",
    "python_abi": "the Python ABI",
    "machine": "the processor type",
}
# Of the flags that the toolchain gives: a machine without nvcc may use a library with CUDA.
_GIVEN = r"-DWITH_CUDA$|-DCPU_CAPABILITY"


def put(spec: BuildSpec, toolchain: Toolchain, directory: Path) -> None:
    """Build an extension, and put its library into a folder of a wheel, next to its record.

    Raises:
        BuildError, ToolchainError, CacheError: as :func:`engine.build`.
    """
    info = engine.build(spec, toolchain)
    record = cache.read_record(info.directory)
    assert record is not None
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy2(info.library, directory)
    told = replace(record, places=[], reason="compiled when the package was built")
    cache.write_json(record_path(directory, spec.name), asdict(told))


def record_path(directory: Path, name: str) -> Path:
    """The path of the record of an extension's library."""
    return directory / f"{name}.json"


def load(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load what :func:`inspect` finds.

    Raises:
        BuildError: the library matches, but cannot be imported.
        CacheError: others may write to it.
    """
    found = _find(directory, spec, toolchain)
    if found is None:
        return None
    request, info, made_of = found
    with lock.thread_lock(request.key):
        return engine.loaded(spec, toolchain) or engine.adopt(spec, request.content, made_of, info)


def inspect(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> BuildInfo | None:
    """The library that was packaged for a spec; None if there is none that matches.

    One that does not match is reported in a line.

    Args:
        directory: where the library is, next to its record.
        spec: what it should be built from.
        toolchain: what this machine has.

    Raises:
        CacheError: others may write there.
    """
    found = _find(directory, spec, toolchain)
    return found[1] if found else None


def _find(
    directory: Path, spec: BuildSpec, toolchain: Toolchain
) -> tuple[Request, BuildInfo, Manifest] | None:
    path = record_path(directory, spec.name)
    if not path.exists() or any(knobs.text(name) != knobs.KNOBS[name].default for name in _KINDS):
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
    # Of what it was made of, what is here can be edited here.
    own = record.manifest["own"].items()
    here = {label: then for label, then in own if _digest(spec, label) == then}
    made_of: Manifest = {**manifest.empty(), "own": here}
    info = info_of(record, spec, cached=True)
    info = replace(info, key=build_key(request.key, made_of), directory=directory)
    return request, replace(info, library=directory / record.library), made_of


def _misfits(record: Record, directory: Path, request: Request) -> Iterator[str]:
    """Why the library must not be used here; empty if it may."""
    spec, here, made = request.spec, request.toolchain, record.toolchain
    for name, words in _WORDS.items():
        if made[name] != getattr(here, name):
            yield f"{words} was {made[name]} and is {getattr(here, name)}"
    if (before := _macros(record.asked)) != (now := _macros(spec.asked)):
        yield f"the macros in the flags were {before or 'none'} and are {now or 'none'}"
    # A toolchain without CUDA leaves some sources out, and all of them count.
    sources, ours = record.fingerprint["files"], request.content["files"]
    yield from (f"{label} changed" for label in sources if _digest(spec, label) != sources[label])
    yield from (f"{label} added" for label in ours if label not in sources)
    for label, then in record.manifest["own"].items():
        if _digest(spec, label) not in (then, ""):  # what is not there could not be compiled
            yield f"{label} changed"
    if not includes(here.cpu_capability, made["cpu_capability"]):
        yield f"it needs {made['cpu_capability']}, and this processor has {here.cpu_capability}"
    if cache.digest(directory / record.library) != record.digest:
        yield f"{record.library} is not the file that was built"
    if not record.fingerprint["with_cuda"]:
        if spec.with_cuda and not here.recorded:
            yield "it has no CUDA kernels, but this machine can build them"
        return
    for capability in gpus.compute_capabilities():
        if not gpus.runs_any(record.fingerprint["architectures"], capability):
            yield f"it has no code for sm_{capability[0]}{capability[1]}"


def _digest(spec: BuildSpec, label: str) -> str:
    return manifest.digest(manifest.place(spec.base, label))


def _macros(asked: dict[str, list[str]]) -> str:
    """The macros among the flags that the caller passed."""
    flags = [flag for kind in ("cflags", "cuda_cflags") for flag in asked.get(kind, ())]
    # As the compiler takes them: `-D N=4` is `-DN=4`.
    words = re.sub(r"(?m)^(-[DU])\n", r"\1", "\n".join(split_flags(flags))).splitlines()
    return " ".join(
        word for word in words if re.match(r"-[DU]", word) and not re.match(_GIVEN, word)
    )
