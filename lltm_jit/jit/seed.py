"""Start a build from the objects of an earlier one, so that an edit compiles one file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache as cache_calls
from pathlib import Path

from . import cache
from .cache import BUILD_FILE, ObjectRecord, Record
from .fingerprint import Fingerprint, commands_key, flags_key
from .spec import BuildSpec

_LOGS = (".ninja_log", ".ninja_deps")


@dataclass(frozen=True)
class Seed:
    """The objects taken over, by name.

    ``build_file`` makes the others and the library; None when torch must write it first.
    """

    objects: dict[str, ObjectRecord] = field(default_factory=dict)
    build_file: str | None = None


def seed(
    directory: Path,
    ninja: Path,
    spec: BuildSpec,
    fingerprint: Fingerprint,
    earlier: Iterable[Record],
    places: list[str],
) -> Seed:
    """Fill an empty directory from the most similar build with the same flags.

    An object is taken only when every file of the spec that it was made from has the same content
    as then. Objects are copied, for the compiler writes into existing files. ``places`` are the
    paths that torch writes into its build file, which may be that of another variant of the source.
    """
    flags, commands = flags_key(fingerprint), commands_key(fingerprint)
    digests = {
        str(path): fingerprint["files"][spec.label(path)] for path in (*spec.sources, *spec.headers)
    }
    candidates = [other for other in earlier if commands_key(other.fingerprint) == commands]
    record = max(
        (other for other in candidates if other.flags_key == flags),
        key=lambda record: (len(_reusable(record, digests)), record.places == places),
        default=None,
    )
    good = _intact_objects(record, digests) if record else {}
    # That of a build which failed may be why it failed.
    written = (other for other in candidates if other.places == places and not other.failed)
    writer = next(filter(_build_file_is_intact, written), None)
    try:
        if record and good:
            for name in (*_LOGS, *good):
                shutil.copy2(record.directory / name, directory / name)
        if writer is None:
            return Seed(good)
        shutil.copy2(writer.directory / BUILD_FILE, directory / BUILD_FILE)
        return Seed(good, _without_touched(directory, ninja, spec, good))
    except OSError:  # not whole, or removed just now: only speed is lost
        for leftover in directory.iterdir():
            leftover.unlink()
        return Seed()


def _without_touched(
    directory: Path, ninja: Path, spec: BuildSpec, good: dict[str, ObjectRecord]
) -> str:
    """A build file that leaves alone what only the time stamps of the spec's files make outdated.

    Contents have decided about those files already. About all others ninja decides, by time.
    """

    @cache_calls
    def time_of(path: str) -> float:
        try:
            return (directory / path).stat().st_mtime_ns
        except OSError:
            return float("inf")

    def newer(name: str, paths: Iterable[str]) -> bool:
        return any(time_of(path) > time_of(name) for path in paths)

    touched = [name for name, made in good.items() if newer(name, made["files"])]
    if touched:
        own = _finder(directory, spec)
        touched = [
            name
            for name, paths in dependencies(directory, ninja).items()
            if name in touched and not newer(name, (path for path in paths if not own(path)))
        ]
    if not touched:
        return BUILD_FILE
    starts = tuple(f"build {name}: ".encode() for name in touched)
    lines = (directory / BUILD_FILE).read_bytes().splitlines(keepends=True)
    rest = [line for line in lines if not line.startswith(starts)]
    (directory / "rest.ninja").write_bytes(b"".join(rest))
    return "rest.ninja"


def _reusable(record: Record, digests: dict[str, str]) -> list[str]:
    """The objects of a build whose every file has the content it had then."""
    return [
        name
        for name, made in record.objects.items()
        if made["files"] and made["files"].items() <= digests.items()
    ]


def _intact_objects(record: Record, digests: dict[str, str]) -> dict[str, ObjectRecord]:
    made = {name: record.objects[name] for name in _reusable(record, digests)}
    return {
        name: entry
        for name, entry in made.items()
        if _has_digest(record.directory / name, entry["digest"])
    }


def _build_file_is_intact(record: Record) -> bool:
    return _has_digest(record.directory / BUILD_FILE, record.build_file)


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return cache.digest(path) == digest
    except OSError:
        return False


def describe_objects(
    directory: Path, ninja: Path, spec: BuildSpec, fingerprint: Fingerprint
) -> dict[str, ObjectRecord]:
    """For each finished object of a build its digest, and which of the spec's files made it."""
    own = _finder(directory, spec)
    found: dict[str, ObjectRecord] = {}
    for name, paths in dependencies(directory, ninja).items():
        files = [path for path in map(own, paths) if path]
        found[name] = {
            "digest": cache.digest(directory / name),
            "files": {str(path): fingerprint["files"][spec.label(path)] for path in files},
        }
    return found


def dependencies(directory: Path, ninja: Path) -> dict[str, list[str]]:
    """For each finished object the files that it was made from, as the compiler named them."""
    done = subprocess.run(
        [ninja, "-t", "deps"], cwd=directory, capture_output=True, text=True, errors="replace"
    )
    found = {}
    for block in done.stdout.split("\n\n"):
        first, *rest = block.splitlines() or [""]
        header = re.match(r"(.+): #deps \d+, .*\(VALID\)", first)
        if header:
            found[header[1]] = [line.strip() for line in rest]
    return found


def _finder(directory: Path, spec: BuildSpec) -> Callable[[str], Path | None]:
    """A function that tells which of the spec's files a compiler means by a path, if any."""
    by_name: dict[str, list[Path]] = {}
    for path in (*spec.sources, *spec.headers):
        by_name.setdefault(path.name, []).append(path)

    @cache_calls
    def find(name: str) -> Path | None:
        candidates = by_name.get(name.rpartition("/")[2], [])  # spares resolving system headers
        real = (directory / name).resolve() if candidates else None
        return next((path for path in candidates if path.resolve() == real), None)

    return find
