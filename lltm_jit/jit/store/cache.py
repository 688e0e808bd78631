"""Where builds are kept: ``<root>/lltm_jit/<key>/``, complete or not at all.

A process checks what it finds before use, so that a damaged build is a cache miss, never a crash.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..user import settings
from ..user.errors import CacheError
from . import checked_json, private
from .contents import digest_of

if TYPE_CHECKING:
    from .manifest import Manifest

SCHEMA = 10
# How far a key tells what is built: by which name, with which constants, with which flags, by which
# request, and from which files. So builds that have these in common are found by their names.
NAME, CONSTANTS, FLAGS, REQUEST, FILES = 3, 6, 10, 20, 28
RECORD = "ok.json"
LOG = "build.log"
BUILD_FILE = "build.ninja"
WHEEL_FOLDER = "prebuilt"  # of a package: the libraries that its wheel brings
_KEY = r"[0-9a-f]{20,}"
_SPACE = (
    "free space on its disk (`python -m lltm_jit cache prune` removes old builds), or set "
    "TORCH_EXTENSIONS_DIR to a directory on another disk"
)
_CURE = "set TORCH_EXTENSIONS_DIR to a directory of your own that can be written"


class DamagedBuild(Exception):
    """A build directory that must not be used; the text says what is wrong with it."""


class ObjectRecord(TypedDict):
    """One object file of a build; ``files`` are indices into the list of all files read."""

    digest: str
    files: list[int]


class Record(NamedTuple):
    """The contents of a build's ``ok.json``.

    ``fingerprint`` is what was requested; ``manifest`` and ``read`` are the files that the build
    was made from. ``build_file`` is the digest of ninja's build file, ``decided`` is what decided
    its content beside the fingerprint, ``asked`` are the arguments of ``load``, ``toolchain``
    is what it was built with, and ``registers`` are the blocks of operators that its library brings
    (``blocks.py``). A build that failed has neither a build file nor a library, and is
    kept for the objects that it finished.
    """

    key: str
    fingerprint: dict[str, Any]
    manifest: "Manifest"
    read: list[str]
    library: str
    digest: str
    reason: str
    seconds: float
    compiled: int
    reused: int
    created: float
    places: list[str]
    objects: dict[str, ObjectRecord]
    build_file: str
    decided: list[str]
    asked: dict[str, Any]
    toolchain: dict[str, Any]
    registers: list[str]
    failed: bool = False
    schema: int = SCHEMA

    @property
    def directory(self) -> Path:
        """Where this build is."""
        return (failed_directory() if self.failed else builds_directory()) / self.key


_root: ContextVar[Path | None] = ContextVar("root", default=None)


@contextmanager
def at_root(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Use another root inside a ``with`` block; None changes nothing."""
    token = _root.set(Path(directory).absolute() if directory else _root.get())
    try:
        yield
    finally:
        _root.reset(token)


def root() -> Path:
    """The root for extensions, the same as torch's."""
    chosen = _root.get()
    if chosen is not None:
        return chosen
    given = os.path.expanduser(settings.text("TORCH_EXTENSIONS_DIR"))
    if not given:
        from torch import _appdirs  # torch's public name for the same costs setuptools' import

        given = _appdirs.user_cache_dir(appname="torch_extensions")
    return Path(given).absolute()


def builds_directory() -> Path:
    """The directory of all builds."""
    return root() / "lltm_jit"


def failed_directory() -> Path:
    """The directory of what failed builds leave: messages, logs, and finished objects."""
    return builds_directory() / "failed"


def failed_log(key: str) -> Path:
    """Where the log of a failed build is kept."""
    return failed_directory() / f"{key}.log"


def wheel_record(directory: Path, name: str) -> Path:
    """The path of the record of an extension's library in a wheel."""
    return directory / f"{name}.json"


def check_private(place: Path | None = None) -> None:
    """Refuse a cache, or another place to load from, that other users may write to."""
    if problem := private.why_not_private(place or builds_directory()):
        cure = "use another place for it" if place else "set TORCH_EXTENSIONS_DIR to a directory"
        raise CacheError(
            f"{problem}, so it may hold code that is not yours; {cure} of your own, or set "
            "LLTM_JIT_TRUST_ROOT=1 if a group shares it on purpose"
        )


@contextmanager
def writing() -> Iterator[None]:
    """Turn the system's refusals to write into a CacheError that says how to fix it."""
    try:
        yield
    except OSError as error:
        place = error.filename or builds_directory()
        cure = _SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else _CURE
        raise CacheError(f"cannot write to {place}: {error.strerror or error}; {cure}") from error


def make_builds_directory() -> Path:
    """Make the directory for builds if it is missing, closed to other users."""
    directory = builds_directory()
    with writing():
        for path in reversed((directory.parent, *directory.parent.parents)):
            if not path.exists():
                # The umask alone opens none to a group.
                shared = settings.flag("LLTM_JIT_TRUST_ROOT")
                path.mkdir(mode=0o777 if shared else 0o755, exist_ok=True)
        make_directory(directory)
        make_directory(directory / "locks", 0o700)  # who can read a lock file can hold it for ever
        make_directory(directory / "failed")
    check_private()
    return directory


def mode() -> int:
    """The mode of directories in the root: others may read only what root builds."""
    if settings.flag("LLTM_JIT_TRUST_ROOT"):
        return stat.S_IMODE(root().stat().st_mode)
    return 0o700 if os.geteuid() else 0o755


def make_directory(path: Path, most: int = 0o777) -> None:
    """Make a directory in the root: closed to others, or as open as a root that a group shares."""
    try:
        path.mkdir(mode=mode() & most)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        if settings.flag("LLTM_JIT_TRUST_ROOT"):
            path.chmod(mode())  # whatever the umask


def read_record(directory: Path) -> Record | None:
    """The record of a build, or None.

    Raises:
        DamagedBuild: the record cannot be read, or is not what was written; or others may write it.
    """
    if problem := private.why_not_private(directory / RECORD):
        raise DamagedBuild(problem)
    try:
        record = record_in(directory / RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedBuild(f"{RECORD} cannot be read: {error.strerror}") from error
    if record.key != directory.name:
        raise DamagedBuild(f"{RECORD} belongs to build {record.key}")
    return record


def record_in(file: Path) -> Record:
    """The record in a file.

    Raises:
        OSError: the file cannot be read.
        DamagedBuild: it is not what was written.
    """
    try:
        values = checked_json.read(file)
    except ValueError as error:
        raise DamagedBuild(f"{file.name} is not what was written") from error
    if values.get("schema") != SCHEMA:
        raise DamagedBuild(f"{file.name} has another schema")
    try:
        return Record(**values)
    except TypeError as error:
        raise DamagedBuild(f"{file.name} has missing or unknown entries") from error


def records(start: str = "", *, failed: bool = False) -> list[Record]:
    """The usable records of builds whose keys have this start, or of those that failed; newest
    first.

    Each is some tens of kilobytes of JSON, and there may be hundreds.
    """
    found = read_records(directories(start, failed=failed))
    return sorted(found, key=lambda record: record.created, reverse=True)


def named(name: str = "") -> Iterator[Record]:
    """The usable records of the builds of this name, or of any; the one used last first.

    Each is read when it is asked for.
    """
    found = read_records(directories(digest_of(name)[:NAME] if name else ""))
    return (record for record in found if name in ("", record.fingerprint["name"]))


def read_records(builds: Iterable[Path]) -> Iterator[Record]:
    """The records of builds, of those that have a usable one; each is read when it is asked for."""
    for directory in builds:
        with suppress(DamagedBuild):
            if record := read_record(directory):
                yield record


def directories(start: str, *, failed: bool = False) -> list[Path]:
    """The builds whose keys have this start, or those that failed; the one used last first.

    Reads only names, and of several builds the times.
    """
    parent = failed_directory() if failed else builds_directory()
    uses = uses_of(str(parent), start)
    return [parent / name for name in sorted(uses, key=uses.__getitem__, reverse=True)]


def uses_of(parent: str, start: str = "") -> dict[str, float]:
    """When the builds in a folder whose keys have this start were last used, 0 without a record."""
    with suppress(OSError):  # no folder
        names = [name for name in os.listdir(parent) if name.startswith(start)]
        return {name: last_use(f"{parent}/{name}") for name in names if re.fullmatch(_KEY, name)}
    return {}


def last_use(directory: str | Path, record: str = RECORD) -> float:
    """When a build, or anything else with a record, was last used."""
    try:
        return os.stat(f"{directory}/{record}").st_mtime
    except OSError:
        return 0.0  # removed just now


def mark_used(directory: Path, record: str = RECORD) -> None:
    """Note that a build, or anything else with a record, was used now."""
    with suppress(OSError):
        os.utime(directory / record)
