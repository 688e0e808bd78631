"""Start a build from the objects of an earlier one, so that an edit compiles one file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache as cache_calls
from pathlib import Path

from . import cache
from .cache import ObjectRecord, Record
from .fingerprint import Fingerprint, flags_key
from .spec import BuildSpec

_KEPT = (".ninja_log", ".ninja_deps", "build.ninja")
_REST = "rest.ninja"


@dataclass(frozen=True)
class Seed:
    """The objects taken over.

    ``build_file`` makes the others and the library; None when torch must write it first.
    """

    objects: tuple[str, ...] = ()
    build_file: Path | None = None


def seed(
    directory: Path,
    spec: BuildSpec,
    fingerprint: Fingerprint,
    earlier: Iterable[Record],
    places: list[str],
) -> Seed:
    """Fill an empty directory from the most similar build with the same flags.

    An object is taken only when every file it was made from has the same content as then. ninja
    itself would go by time stamps: it gets a build file that leaves these objects as they are.
    Objects are copied, for the compiler writes into existing files. ``places`` are the paths that
    torch writes into its build file.
    """
    flags = flags_key(fingerprint)
    digests = {
        str(path): fingerprint["files"][spec.label(path)] for path in (*spec.sources, *spec.headers)
    }
    candidates = [record for record in earlier if record.flags_key == flags]
    record = max(
        candidates,
        key=lambda record: (len(_reusable(record, digests)), record.places == places),
        default=None,
    )
    if record is None:
        return Seed()
    good = [name for name in _reusable(record, digests) if _intact(record, name)]
    if not good and record.places != places:
        return Seed()
    with cache.writing():
        for name in (*_KEPT, *good):
            try:
                shutil.copy2(record.directory / name, directory / name)
            except FileNotFoundError:
                return Seed()  # not whole, or pruned just now: only speed is lost
        if record.places != places:
            return Seed(tuple(good))
        lines = (directory / "build.ninja").read_text("utf-8").splitlines(keepends=True)
        made = tuple(f"build {name}: " for name in good)
        (directory / _REST).write_text(
            "".join(line for line in lines if not line.startswith(made)), "utf-8"
        )
    return Seed(tuple(good), directory / _REST)


def _reusable(record: Record, digests: dict[str, str]) -> list[str]:
    """The objects of a build whose every file has the content it had then."""
    return [
        name
        for name, made in record.objects.items()
        if made["files"] and made["files"].items() <= digests.items()
    ]


def _intact(record: Record, name: str) -> bool:
    try:
        return cache.digest(record.directory / name) == record.objects[name]["digest"]
    except OSError:
        return False


def describe_objects(
    directory: Path, ninja: Path, spec: BuildSpec, fingerprint: Fingerprint
) -> dict[str, ObjectRecord]:
    """For each object of a finished build its digest, and which of the spec's files made it."""
    done = subprocess.run(
        [ninja, "-t", "deps"], cwd=directory, capture_output=True, text=True, errors="replace"
    )
    by_name: dict[str, list[Path]] = {}
    for path in (*spec.sources, *spec.headers):
        by_name.setdefault(path.name, []).append(path)

    @cache_calls
    def of_spec(line: str) -> Path | None:
        candidates = by_name.get(line.rpartition("/")[2], [])  # spares resolving system headers
        real = (directory / line).resolve() if candidates else None
        return next((path for path in candidates if path.resolve() == real), None)

    found: dict[str, ObjectRecord] = {}
    for block in done.stdout.split("\n\n"):
        lines = block.splitlines()
        header = re.match(r"(.+): #deps \d+, .*\(VALID\)", lines[0]) if lines else None
        if header:
            paths = [path for path in map(of_spec, map(str.strip, lines[1:])) if path]
            found[header[1]] = {
                "digest": cache.digest(directory / header[1]),
                "files": {str(path): fingerprint["files"][spec.label(path)] for path in paths},
            }
    return found
