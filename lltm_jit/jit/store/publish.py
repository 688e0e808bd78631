"""From a directory to build in to a build in its place.

A build becomes visible when its directory is renamed, and valid through ``ok.json``, which is
written last. The caller holds the key's lock.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from ..user import settings
from . import cache, checked_json
from .cache import BUILD_FILE, Record

INLINE = "inline"  # the folder of sources that were given as strings, one for each name


def new_directory(key: str) -> Path:
    """A fresh directory to build in. Leftovers of killed builders of the same key are removed.

    Nobody else can be working in them.
    """
    with cache.writing():
        remove_leftovers(key)
        return Path(tempfile.mkdtemp(prefix=f"tmp-{key}-", dir=cache.builds_directory()))


def lock_of_inline(name: str) -> str:
    """The lock of the sources that were given as strings; two names that share one only wait."""
    return f"inline-{hashlib.sha256(name.encode()).hexdigest()[:2]}"


def remove_leftovers(key: str) -> None:
    """Remove what killed builders of a key left."""
    for leftover in cache.builds_directory().glob(f"tmp-{key}-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def publish(built: Path, record: Record) -> None:
    """Put a finished build into place: contents to disk, one rename, then the record.

    A build that is already there (damaged, or without a record because its builder was killed) is
    moved aside; a process that has it loaded keeps its files.
    """
    with cache.writing():
        for name in (record.library, cache.LOG, BUILD_FILE):
            _sync(built / name)
        _move(built, record.directory)
        _sync(record.directory.parent)
        checked_json.write(record.directory / cache.RECORD, record._asdict())
        _sync(record.directory)


def keep_objects(built: Path, record: Record) -> None:
    """Put what a failed build finished where later builds look for objects."""
    with cache.writing():
        checked_json.write(built / cache.RECORD, record._asdict())
        _move(built, record.directory)


def _move(built: Path, directory: Path) -> None:
    built.chmod(cache.mode())
    for path in built.iterdir():
        set_mode(path)
    remove_whole(directory)
    os.replace(built, directory)


def put(library: Path, directory: Path) -> Path:
    """Put a library where torch would build, and return its path there.

    That is another name of the same file, or a copy if there can be none, because the build may be
    removed before that directory is. If neither can be made, the library's own path is returned.
    """
    place = directory / library.name
    partial = directory / f"{library.name}.{os.getpid()}-{threading.get_ident()}.partial"
    try:
        if _stamp(place) == _stamp(library) and not place.is_symlink():
            return place
        directory.mkdir(parents=True, exist_ok=True)  # of a build that another directory holds
        try:
            os.link(library, partial)
        except OSError:
            shutil.copy2(library, partial)
        os.replace(partial, place)  # in one step: others may load the same build
    except OSError:
        partial.unlink(missing_ok=True)
        return library
    return place


def _stamp(path: Path) -> tuple[int, int]:
    """What a file has in common with a copy of it; nothing if there is no file."""
    if not path.is_file():
        return (0, 0)
    status = path.stat()
    return (status.st_size, status.st_mtime_ns)


def set_mode(path: Path) -> None:
    """Close a file to others, or give it to the group that shares the root, whatever the umask."""
    mode = path.stat().st_mode
    shared = settings.flag("LLTM_JIT_TRUST_ROOT")
    path.chmod((mode | (mode & 0o700) >> 3) & ~0o002 if shared else mode & ~0o022)


def remove_whole(directory: Path) -> None:
    """Remove a directory, or whatever is there, in one step, so that nobody finds half of it."""
    aside = Path(tempfile.mkdtemp(prefix=f"tmp-{directory.name}-", dir=cache.builds_directory()))
    with suppress(FileNotFoundError):  # nothing there, or somebody else was quicker
        os.replace(directory, aside / "old")
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
