"""Writes the manifest of a build, from what its tools report that they read."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from ..request import unreported
from ..request.spec import BuildSpec
from ..store import cache
from ..store.manifest import (
    UNTOLD,
    Manifest,
    below,
    digest_if_any,
    empty,
    folders,
    is_settled,
    listed,
    outside,
    place,
    stamp_of,
)

# Where distributions put its headers.
_OF_COMPILER = r"/usr/(?:lib/gcc/|include/(?:[^/]+/)?c\+\+/\d)"
_OWN_BYTES = 4 << 20  # the most that is read of one file at each load
_READ_BYTES = 64 << 20  # the most that is read at all: for larger files the stamp alone decides
_SECOND = 1_000_000_000
_UNSAFE = [-1]  # in place of a stamp


class Writer:
    """Makes the manifest of a build, which began at ``since`` (nanoseconds) and looked for files in
    the directories of ``search``; CUDA's own headers are in ``cuda_home``.
    """

    def __init__(self, spec: BuildSpec, cuda_home: str | None, search: list[str], since: int):
        self._spec = spec
        self._since = since
        self._sources = {str(path) for path in spec.sources}
        self._texts = dict(spec.texts)
        self._near = folders([str(path.parent) for path in spec.sources])
        compilers = [path for path in search if re.match(_OF_COMPILER, path)]
        self._versioned = folders([*_versioned(), *compilers, str(cache.builds_directory())])
        self._outside = outside(filter(None, [cuda_home]))
        self._given = [str(path) for path in spec.include_paths]
        self._movable = folders([str(spec.base), *self._given])
        self._fixed = folders([path for path in search if path not in self._given])
        self._search = search
        self._labels: dict[str, str] = {}
        self._more: dict[str, list[str]] = {}  # labels of what a file asks for that is not reported
        self._skipped: set[str] = set()
        self._looked_for: set[str] = set()
        self._defined: set[str] = set()
        self._asks_by_macro = False
        self.edited: set[str] = set()  # labels of files that changed after the build began
        self.too_late = False  # whether a file came then that a search would have found
        self.manifest = empty()

    def add(self, paths: Iterable[str], *, linked: bool = False) -> list[str]:
        """Add files that were read; returns their labels, including those of the sources.

        Files that only the linker read include nothing.
        """
        found: list[str] = []
        for path in paths:
            found.append(self._labels.get(path) or self._enter(path, linked))
            found += self._more.get(path, ())
        return [label for label in dict.fromkeys(found) if label]

    def finish(self, looked_for: Iterable[str] = ()) -> Manifest:
        """Look at the folders that were searched, also for these names; everything is added now."""
        made_of = self.manifest
        own = [place(self._spec.base, label) for label in made_of["own"]]
        search = self._not_versioned([*self._given, *self._search])
        # An include in quotes looks beside the file first that it stands in.
        beside = (os.path.dirname(path) for path in (*self._sources, *own))
        every = self._not_versioned([*search, *beside])
        names = self._looked_for.union(looked_for, self._of_versions(every))
        if self._asks_by_macro:
            given = [*self._spec.cflags, *self._spec.cuda_cflags]
            given += [value for _, value in self._spec.constants]
            names |= self._defined | unreported.quoted(" ".join(given))
        present = _present(every, {*names, *_names([*own, *made_of["outside"]], every)})
        # All of it: a build that begins with this one's objects asks no compiler.
        made_of["search"] = [
            self._label(folder) for folder in dict.fromkeys([*self._given, *self._search])
        ]
        made_of["names"] = sorted(names)
        self.too_late = any(self._has_come(path, found.names) for path, found in present.items())
        for folder, found in present.items():
            real = os.path.realpath(folder)
            wanted = sorted(found.wanted)
            if wanted not in made_of["wanted"]:
                made_of["wanted"].append(wanted)
            entry = [sorted(found.names), made_of["wanted"].index(wanted)]
            made_of["folders"][self._label(folder)] = [
                *entry,
                real if real != folder else "",
                *found.stamp,
            ]
        return made_of

    def _not_versioned(self, folders: Iterable[str]) -> list[str]:
        return [path for path in dict.fromkeys(folders) if not below(path, self._versioned)]

    def _enter(self, path: str, linked: bool) -> str:
        if path in self._sources:
            label = self._spec.label(Path(path))
            if Path(path) not in self._texts and self._is_younger(path):  # and as it was again
                self.edited.add(label)
            else:
                given = self._texts.get(Path(path))
                text = Path(path).read_bytes() if given is None else given.encode()
                self._note(path, unreported.of(text))
        elif below(path, self._versioned):
            self._skipped.add(path)
            label = ""
        else:
            label = self._enter_file(path, linked)
        self._labels[path] = label
        return label

    def _enter_file(self, path: str, linked: bool) -> str:
        near, given = below(path, self._near), path
        own = near or not below(path, self._outside)
        path = _plain(path) if own else path
        try:
            status = os.stat(path)
        except OSError:
            self.edited.add(path)  # removed since it was read
            return path
        label = self._label(path) if own else path
        if status.st_size <= _OWN_BYTES and not linked:
            of_file = unreported.of_file
            look = of_file.__wrapped__ if own else of_file  # a stamp may hide an edit
            self._note(given, look(path, *stamp_of(path)))
        if own and status.st_size <= _OWN_BYTES:
            self.manifest["own"][label] = digest_if_any(path)
            self.manifest["movable"] &= not os.path.isabs(label)
        else:
            stamp = _safe_stamp(path)
            digest = _digest.__wrapped__ if stamp == _UNSAFE else _digest
            then = digest(path, *stamp) if status.st_size <= _READ_BYTES else ""
            self.manifest["outside"][path] = [then, *stamp]
            self.manifest["movable"] &= not own
            label = path
        if self._is_younger(path):
            self.edited.add(label)
        return label

    def _is_younger(self, path: str) -> bool:
        """Whether a file, or a link in its place, appeared, changed or vanished after the build
        started.
        """
        try:
            stamps = [os.stat(path).st_ctime_ns, os.lstat(path).st_ctime_ns]
        except OSError:
            return True
        # A file system that counts whole seconds rounds them down.
        whole = self._since // _SECOND * _SECOND
        now = time.time_ns()
        return any((self._since if s % _SECOND else whole) <= s <= now for s in stamps)

    def _has_come(self, folder: str, names: Iterable[str]) -> bool:
        """Whether a folder got one of the names after the start, too late for a compiler."""
        paths = [os.path.join(folder, name) for name in names]
        return bool(paths) and self._is_younger(folder) and any(map(self._is_younger, paths))

    def _label(self, path: str) -> str:
        """The path, relative to the base if another checkout would have the same file there."""
        if below(path, self._movable) and not below(path, self._fixed):
            return self._spec.label(Path(path))
        return path

    def _note(self, path: str, asked: unreported.Asks) -> None:
        self._defined |= asked.defined
        self._looked_for |= asked.looked_for
        self._asks_by_macro |= asked.by_macro
        present = set(filter(os.path.exists, asked.files))
        more = [self._enter_file(file, linked=True) for file in present]
        for absent in asked.files - present:  # named in a part that is not compiled
            more.append(absent)
            self.manifest["outside"][absent] = [""]
        for what in asked.unknown:
            # No file has this stamp, so the build is stale at once, and has a key of its own.
            more.append(label := f"{UNTOLD} ({what})")
            self.manifest["outside"][label] = ["", -1, time.time_ns()]
        self._more[path] = more

    def _of_versions(self, search: list[str]) -> set[str]:
        """The names of files that are left out, as far as a folder of the search may hide them."""
        every = _names(self._skipped, [path for path in self._search if path not in search])
        folders = {name.partition("/")[0] for name in every if "/" in name}
        hidden = {part for part in folders for path in search if os.path.isdir(f"{path}/{part}")}
        return {
            name if name.partition("/")[0] in hidden else name.partition("/")[0] for name in every
        }


def _names(paths: Iterable[str], search: list[str]) -> set[str]:
    """The names under which these files may have been found."""
    starts = folders(search)
    return {path[len(start) :] for path in paths for start in starts if path.startswith(start)}


class _Folder(NamedTuple):
    stamp: list[int]  # from before it was looked into
    names: set[str]
    wanted: set[str]


def _present(search: Iterable[str], names: Iterable[str]) -> dict[str, _Folder]:
    """For each folder of a search, and those below it that matter, which of the names it has."""
    found: dict[str, _Folder] = {}
    waiting = [(folder, set(names)) for folder in search]
    while waiting:
        folder, wanted = waiting.pop()
        below: dict[str, set[str]] = {}
        for name in wanted:
            first, _, rest = name.partition("/")
            below.setdefault(first, set()).update([rest] if rest else [])
        if ".." in below:  # which is not listed, and only there if the folder is
            waiting.append((_plain(f"{folder}/.."), below.pop("..")))
            waiting.append((os.path.dirname(folder), {os.path.basename(folder)}))
        entry = found.setdefault(folder, _Folder(_safe_stamp(folder), set(), set()))
        entry.wanted.update(below)
        there = listed(folder, below)
        entry.names.update(there)
        waiting += [(os.path.join(folder, name), below[name]) for name in there if below[name]]
    return found


@functools.lru_cache(maxsize=4096)
def _digest(path: str, *_stamp: int) -> str:
    """That of a file whose stamp stands for it: every build reads the same system headers."""
    return digest_if_any(path)


def _safe_stamp(path: str) -> list[int]:
    """A stamp, or one that equals nothing if a change right now could leave it the same."""
    stamp = stamp_of(path)
    return stamp if is_settled(stamp) else _UNSAFE


def _plain(path: str) -> str:
    """The path without ``..``, which the text alone may resolve wrongly."""
    if ".." not in path:
        return path
    plain = os.path.normpath(path)
    try:
        return plain if os.path.samefile(plain, path) else os.path.realpath(path)
    except OSError:
        return os.path.realpath(path)


def _versioned() -> list[str]:
    """Directories whose content changes with the version of torch or of Python."""
    import sysconfig  # a cached import does without it: 4 ms

    torchs = os.path.dirname(torch.__file__)
    return [torchs, os.path.realpath(torchs), sysconfig.get_path("include")]
