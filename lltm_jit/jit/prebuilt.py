"""Libraries that were compiled when the package was packaged, so that an import needs no compiler.

They lie in one folder of the package, one a family, and beside each stands what it was built for.
It is used only where all of that fits: a library for another torch crashes, and one of other
sources computes something else.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import cache, engine, gpus, knobs, lock, manifest
from .engine import Build, BuildInfo
from .fingerprint import Request, build_key
from .progress import Reporter
from .reads import split_flags
from .spec import (
    CUDA_SUFFIXES,
    CXX_SUFFIXES,
    HEADER_SUFFIXES,
    BuildSpec,
    files_below,
    files_of,
    included_files,
)
from .toolchain import Toolchain, includes

FOLDER = "prebuilt"
SCHEMA = 5

# Who sets one of these wants a build of another kind.
_KINDS = ("LLTM_JIT_DEBUG", "CUDA_DEVICE_DEBUG", "LLTM_JIT_LINEINFO", "LLTM_JIT_SANITIZE")

_WORDS = {
    "torch": "torch",
    "python": "the Python ABI",
    "machine": "the processor type",
    "sources": "the digest of the sources",
    "macros": "the macros in the flags",
}
# Of the flags that the toolchain gives: a machine without nvcc may use a library with CUDA.
_GIVEN = r"-DWITH_CUDA$|-DCPU_CAPABILITY"


def write(
    library: Path,
    spec: BuildSpec,
    toolchain: Toolchain,
    seconds: float,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write the record of a library that was just built, beside it.

    ``headers`` are the digests of what it was made of, by label, as its manifest has them: some may
    lie elsewhere than its sources.
    """
    record = {
        "schema": SCHEMA,
        "library": library.name,
        "digest": cache.digest(library),
        "fits": _requirements(spec, toolchain),
        "headers": dict(headers or {}),
        "cuda": spec.with_cuda,
        "architectures": list(spec.architectures),
        "compiler": toolchain.cxx_version,
        "nvcc": toolchain.nvcc_version if spec.with_cuda else None,
        "files": len(spec.sources),
        "seconds": round(seconds, 3),
        "created": time.time(),
    }
    cache.write_json(record_path(library.parent, spec.name), record)


def record_path(directory: Path, name: str) -> Path:
    """Where the record of an extension's library lies."""
    return directory / f"{name}.json"


def load(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load what :func:`inspect` finds.

    Raises:
        BuildError: the library fits, but cannot be imported.
    """
    info = inspect(directory, spec, toolchain)
    if info is None:
        return None
    request = Request.of(spec, toolchain)
    with lock.thread_lock(request.key):
        return engine.loaded(spec, toolchain) or engine.adopt(
            spec, request.content, manifest.of_files(spec, _files(spec)), info
        )


def inspect(directory: Path, spec: BuildSpec, toolchain: Toolchain) -> BuildInfo | None:
    """The library that was packaged for a spec; None where there is none that fits.

    One that does not fit is told in a line.

    Args:
        directory: where the library lies beside its record.
        spec: what the library was built from: a variant, or else the folder of its name in the
            first include path, and what its files include from there.
        toolchain: what this machine has.
    """
    path = record_path(directory, spec.name)
    if not path.exists() or any(knobs.text(name) != knobs.KNOBS[name].default for name in _KINDS):
        return None
    try:
        record = cache.read_json(path)
        problem = _misfit(record, directory, spec, toolchain)
    except (OSError, ValueError):
        problem = "it or its record cannot be read"
    if problem:
        Reporter().say(f"the packaged library of {spec.name} is not used: {problem}")
        return None
    made_of = manifest.of_files(spec, _files(spec))
    return BuildInfo(
        name=spec.name,
        key=build_key(Request.of(spec, toolchain).key, made_of),
        directory=directory,
        library=directory / record["library"],
        reason="compiled when the package was built",
        seconds=record["seconds"],
        cached=True,
        compiled=record["files"],
        reused=0,
        torch_version=toolchain.torch_version,
        cuda_version=toolchain.torch_cuda if record["cuda"] else None,
        compiler=record["compiler"],
        nvcc=record["nvcc"],
        architectures=tuple(record["architectures"]),
        sources=spec.sources,
        created=record["created"],
    )


def _requirements(spec: BuildSpec, toolchain: Toolchain) -> dict[str, str]:
    """What must be the same where the library is made and where it is used."""
    flags = [flag for kind in ("cflags", "cuda_cflags") for flag in spec.asked.get(kind, ())]
    # As the compiler takes them: `-D N=4` is `-DN=4`.
    words = re.sub(r"(?m)^(-[DU])\n", r"\1", "\n".join(split_flags(flags))).splitlines()
    macros = [word for word in words if re.match(r"-[DU]", word) and not re.match(_GIVEN, word)]
    root = _root(spec)
    digests = {path.relative_to(root).as_posix(): cache.digest(path) for path in _files(spec)}
    return {
        "torch": toolchain.torch_version,
        "python": toolchain.python_abi,
        "machine": toolchain.machine,
        "cpu_capability": toolchain.cpu_capability,
        "sources": hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest(),
        "macros": " ".join(macros),
    }


def files_of_load(spec: BuildSpec) -> list[Path]:
    """The files that lie where an extension of ``load`` has its sources."""
    given = Path(spec.asked["paths"][0])
    return files_below(given if given.is_dir() else spec.base)


def _root(spec: BuildSpec) -> Path:
    return spec.base if spec.asked else spec.include_paths[0]


def _files(spec: BuildSpec) -> list[Path]:
    """The files of an extension, and what they include from the first include path.

    Not those of the spec: a toolchain without CUDA leaves some out, and all of them count.
    """
    root = _root(spec)
    if spec.variant:
        return included_files(spec.sources, root)
    suffixes = CXX_SUFFIXES + CUDA_SUFFIXES + HEADER_SUFFIXES
    every = files_of_load(spec) if spec.asked else files_of(root / spec.name, root)
    return [path for path in every if path.suffix in suffixes]


def _misfit(record: dict[str, Any], directory: Path, spec: BuildSpec, tools: Toolchain) -> str:
    """Why the library must not be used here; empty when it may."""
    if record["schema"] != SCHEMA:
        return "its record has another schema"
    fits, here = record["fits"], _requirements(spec, tools)
    for name, words in _WORDS.items():
        if fits[name] != here[name]:
            return f"{words} was {fits[name]} and is {here[name]}"
    if not includes(here["cpu_capability"], fits["cpu_capability"]):
        return f"it needs {fits['cpu_capability']}, and this processor has {here['cpu_capability']}"
    for label, then in record["headers"].items():
        if manifest.digest(manifest.place(spec.base, label)) not in (then, ""):
            return f"{label} is another"  # one that is not there could not be compiled
    if cache.digest(directory / record["library"]) != record["digest"]:
        return f"{record['library']} is not the file that was built"
    if not record["cuda"]:
        here_too = spec.with_cuda and not tools.recorded
        return "it has no CUDA kernels, and here they can be built" if here_too else ""
    for capability in gpus.compute_capabilities():
        if not gpus.runs_any(record["architectures"], capability):
            return f"it has no code for sm_{capability[0]}{capability[1]}"
    return ""
