"""What a build was made from: the files that were read, and the names that were looked for in vain.

A build is current as long as every file is unchanged, and no file has appeared that a search would
now find first. The user's own files are compared by content. For all others, size, times and inode
stand for the content as long as they are equal, as in git's index: the time of an inode's last
change cannot be set back.

The headers of torch, Python and the compiler are left out, because the key of a build has their
versions.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch

from . import checked_json, contents
from .contents import is_settled, stamp_of

_OUTSIDE = ("/usr/", "/lib/", "/lib64/", "/opt/", "/nix/")

_MACHINES = 64  # of which the stamps of a file are kept
UNTOLD = "what no compiler reports"  # the start of entries that make a build stale at once


class Manifest(TypedDict):
    """The manifest as it is stored in ``ok.json``.

    ``own`` maps labels to digests, ``outside`` maps paths to digest and stamp. ``search`` is where
    the tools look for files, and ``names`` are those that they look for in addition to the ones
    they found. ``folders`` are all directories that were searched: for each, the names in it, the
    index in ``wanted`` of the names that could be in it, where it leads to if it is a link, and its
    stamp. ``movable`` says whether another checkout has the same files.
    """

    own: dict[str, str]
    outside: dict[str, list[Any]]
    search: list[str]
    names: list[str]
    wanted: list[list[str]]
    folders: dict[str, list[Any]]
    movable: bool


class Changes(NamedTuple):
    """What is different now: files by label, and names that came or went where files are found."""

    files: set[str]
    names: set[str]

    def touch(self, files: Iterable[str]) -> bool:
        """Whether the changes concern something that was made from these files."""
        return not (self.files.isdisjoint(files) and self.names.isdisjoint(parts(files)))


def parts(names: Iterable[str]) -> set[str]:
    """The names of all folders and files in these paths."""
    return {part for name in names for part in name.split("/")}


def empty() -> Manifest:
    """The manifest of a build that read nothing."""
    return Manifest(own={}, outside={}, search=[], names=[], wanted=[], folders={}, movable=True)


def own_files(manifest: Manifest, base: Path) -> list[Path]:
    """The paths of the user's files."""
    return [Path(place(base, label)) for label in manifest["own"]]


def is_own(path: str) -> bool:
    """Whether a file seems to belong to the user, not to a library."""
    others = outside([os.path.dirname(torch.__file__)])
    return os.path.isabs(path) and not below(path, others)


def outside(more: Iterable[str] = ()) -> tuple[str, ...]:
    """The directories of libraries, each with a slash at its end."""
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    return (*_OUTSIDE, *folders([sys.prefix, sys.base_prefix, packages, *more]))


def content(manifest: Manifest) -> dict[str, str]:
    """The digests of all files, by label."""
    return manifest["own"] | {path: entry[0] for path, entry in manifest["outside"].items()}


def key(manifest: Manifest) -> str:
    """The same value for the same files and searches, whatever the times."""
    outside = {path: entry[0] or entry for path, entry in manifest["outside"].items()}
    present = {folder: entry[0] for folder, entry in manifest["folders"].items()}
    text = json.dumps([manifest["own"], outside, present], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Stamps:
    """Stamps of files whose contents proved right: each machine that shares a cache has others."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "stamps.json"
        self._added = False

    @functools.cached_property
    def _known(self) -> dict[str, list[list[int]]]:
        try:
            return checked_json.read(self._file)
        except (OSError, ValueError):
            return {}

    def has(self, path: str, stamp: list[int]) -> bool:
        """Whether a file had this stamp when it was read."""
        return stamp in self._known.get(path, [])

    def add(self, path: str, stamp: list[int]) -> None:
        """Note a stamp that a file had before it was read."""
        if is_settled(stamp):
            self._known[path] = [*self._known.get(path, []), stamp][-_MACHINES:]
            self._added = True

    def save(self) -> None:
        """Keep what was added, where that can be written."""
        if self._added:
            with suppress(OSError):
                checked_json.write(self._file, self._known)


def changes(
    manifest: Manifest, base: Path, recorded: bool = False, stamps: Stamps | None = None
) -> Changes:
    """What changed since the build. Starts no process.

    If the compilers are only recorded, their libraries and headers may be missing as well. Stamps
    that others have are looked up in ``stamps``, and added to them.
    """
    own = manifest["own"].items()
    files = {label for label, then in own if text_digest(place(base, label)) != then}
    for path, (then, *stamp) in manifest["outside"].items():
        now = stamp_of(path)
        if now == stamp or (recorded and (not now or (not then and now[:1] == stamp[:1]))):
            continue
        if stamps and stamps.has(path, now):
            continue
        if not then or digest_if_any(path) != then:
            files.add(path)
        elif stamps:
            stamps.add(path, now)
    names: set[str] = set()
    for label, (then, wanted, real, *stamp) in manifest["folders"].items():
        folder = place(base, label)
        now = stamp_of(folder)
        if now == stamp or (stamps and stamps.has(folder, now)):
            continue
        there = listed(folder, manifest["wanted"][wanted])
        others = there ^ set(then)
        if real and os.path.realpath(folder) != real:
            others.update(then)  # it is another one
        if stamps and not others:
            stamps.add(folder, now)
        names.update(others - set(then) if recorded else others)
    return Changes(files, names)


def place(base: Path, label: str) -> str:
    """The path of a label's file."""
    return label if os.path.isabs(label) else os.path.normpath(os.path.join(base, label))


def digest_if_any(path: str) -> str:
    """The digest of a file, empty if it cannot be read."""
    try:
        return contents.digest(Path(path))
    except OSError:
        return ""


def text_digest(path: str) -> str:
    """The same of a text, whose content is known to a process that has read it."""
    try:
        return contents.of(path).digest
    except OSError:
        return ""


def listed(folder: str, names: Iterable[str]) -> set[str]:
    """Which of the names a folder has; none if there is no folder."""
    try:
        return set(names).intersection(os.listdir(folder))
    except OSError:
        return set()


def below(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is one of these :func:`folders`, or below one."""
    return f"{path}/".startswith(places)


def folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.join(path, "") for path in paths)
