"""Where builds are kept: ``<root>/lltm_jit/``, and the records that make them valid.

``<key>/`` is a build: a library, its record, its log and its build file. ``work/<place>/`` is where
a request is compiled, and ``objects/`` has the compiled objects of all builds. A process checks
what it finds before use, so that a damaged build is a cache miss, never a crash.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from ..user import settings
from ..user.errors import CacheError
from . import files, private
from .files import Inputs

SCHEMA = 13  # the records' version; a part of each key, so that versions share a root
# Digits of a key: the first 4 stand for name and constants, 20 for the request, 28 for the files.
NAME, REQUEST, FILES = 4, 20, 28
RECORD, LOG, BUILD_FILE = "ok.json", "build.log", "build.ninja"
FAILURE = "failure.json"  # the last build's error, in its work folder
WHEEL_FOLDER = "prebuilt"  # a package's folder of the libraries in its wheel
_KEY = r"[0-9a-f]{20,}"
_SPACE = (
    "free space on its disk (`python -m lltm_jit cache prune` removes old builds), or set "
    "TORCH_EXTENSIONS_DIR to a directory on another disk"
)
_NO_LOCKS = (
    "the file system does not support locks; set TORCH_EXTENSIONS_DIR to a directory on another "
    "one, such as a local disk"
)
# The cures for some of the system's refusals to write.
_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _SPACE),
    **dict.fromkeys((errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP), _NO_LOCKS),
}


class DamagedBuild(Exception):
    """A build directory that must not be used; the text says what is wrong with it."""


class Record(NamedTuple):
    """What was built: the contents of a build's ``ok.json``.

    ``spec`` is what was asked for, ``content`` is what the request made of it, and ``inputs`` are
    the files that the build was made from. ``steps`` are the seconds that each object took,
    ``toolchain`` is what the build was made with, and ``full`` are the objects that do not compile
    with narrow headers. ``symbols`` are the kernels' names in the code, and their types. ``folder``
    is where the record was found, or None.
    """

    key: str
    spec: dict[str, Any]
    content: dict[str, Any]
    inputs: Inputs
    library: str
    digest: str
    reason: str
    seconds: float
    compiled: int
    reused: int
    created: float
    steps: dict[str, float]
    toolchain: dict[str, Any]
    full: list[str]
    symbols: dict[str, list[str]] = {}  # noqa: RUF012 - nobody changes a default
    folder: Path | None = None

    @property
    def directory(self) -> Path:
        """The folder of this build, which may not be there yet."""
        return self.folder or builds_directory() / self.key

    @property
    def file(self) -> Path:
        """The library."""
        return self.directory / self.library

    @property
    def name(self) -> str:
        return self.content["name"]


_root: ContextVar[Path | None] = ContextVar("root", default=None)


@contextmanager
def at_root(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Use another root inside a ``with`` block; None or an empty path changes nothing."""
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


def work_directory(place: str) -> Path:
    """The folder where a request is compiled."""
    return builds_directory() / "work" / place


def check_private(place: Path | None = None) -> None:
    """Refuse a cache, or another place to load from, that other users may write to."""
    place = place or builds_directory()
    if problem := private.why_not_private(place):
        inside = place.is_relative_to(builds_directory())
        cure = _own_root() if inside else "use another place for it"
        raise CacheError(
            f"{problem}, so it may hold code that is not yours; {cure}, or set "
            "LLTM_JIT_TRUST_ROOT=1 if a group shares it on purpose"
        )


def _own_root() -> str:
    """How to choose another root, which a call's own build_directory overrides."""
    if _root.get() is not None:
        return "use a build_directory of your own that can be written"
    return "set TORCH_EXTENSIONS_DIR to a directory of your own that can be written"


@contextmanager
def writing() -> Iterator[None]:
    """Turn the system's refusals to write into a CacheError that says how to fix it."""
    try:
        yield
    except OSError as error:
        where = error.filename or builds_directory()
        cure = _CURES.get(error.errno or 0) or _own_root()
        raise CacheError(f"cannot write to {where}: {error.strerror or error}; {cure}") from error


def make_builds_directory() -> Path:
    """Make the directory for builds if it is missing, closed to other users."""
    directory = builds_directory()
    with writing():
        for path in reversed((directory.parent, *directory.parent.parents)):
            if not path.exists():
                path.mkdir(mode=0o755, exist_ok=True)
        make_directory(directory)
        # A user who can read a lock file can hold the lock for ever; the rest is private, too.
        for name in ("locks", "work", "objects"):
            make_directory(directory / name, 0o700)
    check_private()
    return directory


def make_directory(path: Path, mode: int = 0o755) -> None:
    """Make a directory in the root. Others may read it only if root made it."""
    try:
        path.mkdir(mode=0o700 if os.geteuid() else mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        set_mode(path)


def set_mode(path: Path) -> None:
    """Keep others from writing to a path, or give it to the group that shares the root, whatever
    the umask.
    """
    mode = path.stat().st_mode
    shared = settings.flag("LLTM_JIT_TRUST_ROOT")
    path.chmod((mode | (mode & 0o700) >> 3) & ~0o002 if shared else mode & ~0o022)


def read_record(directory: Path, name: str = RECORD) -> Record | None:
    """The record of a build, or None.

    Raises:
        DamagedBuild: the record cannot be read, or is not what was written; or others may write it.
    """
    if problem := private.why_not_private(directory / name):
        raise DamagedBuild(problem)
    try:
        values = files.read_json(directory / name)
        inputs = Inputs(**values.get("inputs", {}))
        return Record(**{**values, "inputs": inputs, "folder": directory})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedBuild(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise DamagedBuild(f"{name} is not what was written") from error


def write_record(file: Path, record: Record) -> None:
    """Write a record, which makes what lies beside it a build."""
    told = {**record._asdict(), "inputs": record.inputs._asdict()}
    del told["folder"]
    files.write_json(file, told)


def records(start: str = "") -> Iterator[Record]:
    """The usable records of the builds whose keys have this start; the last used comes first.

    A record is read when it is asked for: it has tens of kilobytes, and there may be hundreds.
    """
    for directory in directories(start):
        with suppress(DamagedBuild):
            if record := read_record(directory):
                yield record


def directories(start: str) -> list[Path]:
    """The builds whose keys have this start; the last used comes first.

    Reads only names, and the times of use if there are several builds.
    """
    parent = builds_directory()
    found: list[Path] = []
    with suppress(OSError):  # no folder
        names = [name for name in os.listdir(parent) if name.startswith(start)]
        found = [parent / name for name in names if re.fullmatch(_KEY, name)]
    return sorted(found, key=last_use, reverse=True) if len(found) > 1 else found


def last_use(directory: Path, record: str = RECORD) -> float:
    """When a build, or anything else with a record, was last used; 0 without a record."""
    try:
        return os.stat(f"{directory}/{record}").st_mtime
    except OSError:
        return 0.0


def mark_used(directory: Path, record: str = RECORD) -> None:
    """Note that a build, or anything else with a record, was used now."""
    with suppress(OSError):
        os.utime(directory / record)


def publish(work: Path, record: Record) -> None:
    """Move the built files to their place: their contents are on disk first, the record is last.

    A process that has loaded the previous build keeps that build's files.
    """
    with writing():
        if private.why_not_private(record.directory) or not record.directory.is_dir():
            # Move aside whatever stands there; pruning removes it with the work folders.
            with suppress(FileNotFoundError):
                os.replace(record.directory, work_directory(f"aside-{record.key}-{os.getpid()}"))
        make_directory(record.directory)
        (record.directory / RECORD).unlink(missing_ok=True)
        made = (record.library, LOG, BUILD_FILE)
        for name in filter(lambda name: (work / name).exists(), made):  # NVRTC has no build file
            set_mode(work / name)
            _sync(work / name)
            os.replace(work / name, record.directory / name)
        write_record(record.directory / RECORD, record)
        _sync(record.directory)
        _sync(record.directory.parent)


def put(library: Path, directory: Path) -> Path:
    """Put a library where torch would build, and return its path there.

    The path is a hard link, or a copy if there can be none, because the build may be removed before
    that directory is. If neither can be made, the library's own path is returned.
    """
    place = directory / library.name
    try:
        if place.is_file() and not place.is_symlink():
            theirs, ours = place.stat(), library.stat()
            if (theirs.st_size, theirs.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns):
                return place
        directory.mkdir(parents=True, exist_ok=True)  # the library may be from elsewhere
        with files.replacing(place) as partial:  # in one step: others may load the same build
            link_or_copy(library, partial)
    except OSError:
        return library
    return place


def link_or_copy(source: Path, target: Path) -> None:
    """Make a hard link to a file, or copy it where the file system has no hard links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        import shutil  # a cached load does not need it

        shutil.copy2(source, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
