"""What a build was made of: the files that were read for it, and what was looked for in vain.

A build is current while every file is as it was, and no file has come that a search would now find
first. The user's own files are compared by content. For all others a stamp of size, times and inode
stands for the content as long as it is equal, as in git's index: the time of an inode's last change
cannot be set back.

The headers of torch, Python and the compiler are left out: the key of a build has their versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch

from . import cache
from .spec import BuildSpec

_OUTSIDE = ("/usr/", "/lib/", "/lib64/", "/opt/", "/nix/", "/Library/", "/Applications/")
_OF_COMPILER = (
    r"/usr/(?:lib/gcc/|include/(?:[^/]+/)?c\+\+/\d)"  # where distributions put its headers
)
_OWN_BYTES = 4 << 20  # the most that is read of one file at each load
_READ_BYTES = 64 << 20  # the most that is read at all: for larger files the stamp alone decides
_SECOND = 1_000_000_000
_TICK_NS = 50_000_000  # how far apart two changes are that surely have two times
_COARSE_TICK_NS = 2 * _SECOND  # the same where a file system counts whole seconds

_HAS_INCLUDE = rb"__has_(?:include(?:_next)?|embed)\s*\(\s*([^)]*)"
_DEFINED = rb"#\s*define\s+\w+\s+([<\"][^>\"\n]+[>\"])"
_QUOTED = rb"[<\"][^<>\"]+[>\"]"


class Manifest(TypedDict):
    """As it lies in ``ok.json``.

    ``own`` has digests by label, ``outside`` has digest and stamp by path. ``search`` is where the
    tools look for files, and ``names`` are those they look for besides the ones they found.
    ``folders`` are all that were looked into: in each, the names that it has, the place in
    ``wanted`` of the names that it might have, where it leads to if it is a link, and its stamp.
    ``movable``: another checkout has the same files.
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
        """Whether they concern what was made of these files."""
        return not (self.files.isdisjoint(files) and self.names.isdisjoint(parts(files)))


def parts(names: Iterable[str]) -> set[str]:
    """The names of all folders and files in these paths."""
    return {part for name in names for part in name.split("/")}


def empty() -> Manifest:
    """That of a build which read nothing."""
    return Manifest(own={}, outside={}, search=[], names=[], wanted=[], folders={}, movable=True)


def own_files(manifest: Manifest, base: Path) -> list[Path]:
    """Where the user's files lie."""
    return [Path(place(base, label)) for label in manifest["own"]]


def is_own(path: str) -> bool:
    """Whether a file seems to be the user's, and of no library."""
    others = (*_OUTSIDE, *_folders(_prefixes()), *_folders([os.path.dirname(torch.__file__)]))
    return os.path.isabs(path) and not _below(path, others)


def content(manifest: Manifest) -> dict[str, str]:
    """The digests of all files, by label."""
    return manifest["own"] | {path: entry[0] for path, entry in manifest["outside"].items()}


def key(manifest: Manifest) -> str:
    """One value for all that was read and looked for, whatever the times."""
    outside = {path: entry[0] or entry for path, entry in manifest["outside"].items()}
    present = {folder: entry[0] for folder, entry in manifest["folders"].items()}
    text = json.dumps([manifest["own"], outside, present], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def changes(manifest: Manifest, base: Path, recorded: bool = False) -> Changes:
    """What differs from the time of the build. Starts no process.

    Where the compilers are but recorded, the libraries and headers of theirs may be gone as well.
    """
    own = manifest["own"].items()
    files = {label for label, then in own if digest(place(base, label)) != then}
    for path, (then, *stamp) in manifest["outside"].items():
        now = stamp_of(path)
        if now == stamp or (recorded and (not now or (not then and now[0] == stamp[0]))):
            continue
        if not then or digest(path) != then:
            files.add(path)
    names: set[str] = set()
    for label, (then, wanted, real, *stamp) in manifest["folders"].items():
        folder = place(base, label)
        if stamp_of(folder) != stamp:
            there = _listed(folder, manifest["wanted"][wanted])
            names.update(there - set(then) if recorded else there ^ set(then))
            if real and os.path.realpath(folder) != real and not recorded:
                names.update(then)  # it is another one
    return Changes(files, names)


def place(base: Path, label: str) -> str:
    """Where the file of a label lies."""
    return label if os.path.isabs(label) else os.path.normpath(os.path.join(base, label))


def digest(path: str) -> str:
    """The digest of a file, empty where it cannot be read."""
    try:
        return cache.digest(Path(path))
    except OSError:
        return ""


class Writer:
    """Makes the manifest of a build that began at a time.

    Args:
        spec: what was built.
        cuda_home: where CUDA's own headers lie.
        search: the directories where the compilers and the linker looked.
        since: when the build began, in nanoseconds.
    """

    def __init__(self, spec: BuildSpec, cuda_home: str | None, search: list[str], since: int):
        self._spec = spec
        self._since = since
        self._sources = {str(path) for path in spec.sources}
        self._texts = dict(spec.texts)
        self._near = _folders([str(path.parent) for path in spec.sources])
        compilers = [path for path in search if re.match(_OF_COMPILER, path)]
        self._versioned = _folders([*_versioned(), *compilers, str(cache.builds_directory())])
        self._outside = (*_OUTSIDE, *_folders([*_prefixes(), *filter(None, [cuda_home])]))
        self._given = [str(path) for path in spec.include_paths]
        self._movable = _folders([str(spec.base), *self._given])
        self._fixed = _folders([path for path in search if path not in self._given])
        self._search = search
        self._labels: dict[str, str] = {}
        self._skipped: set[str] = set()
        self._looked_for: set[str] = set()
        self._defined: set[str] = set()
        self._asks_by_macro = False
        self.edited: set[str] = set()  # labels of files that changed after the build began
        self.too_late = False  # whether a file came then that a search would have found
        self.manifest = empty()

    def add(self, paths: Iterable[str]) -> list[str]:
        """Enter files that were read; their labels, those of the sources among them."""
        found = [self._labels.get(path) or self._enter(path) for path in paths]
        return [label for label in dict.fromkeys(found) if label]

    def look_for(self, names: Iterable[str]) -> None:
        """Enter names that were looked for, found or not."""
        self._looked_for.update(names)

    def finish(self) -> Manifest:
        """Look at the folders that were searched; the manifest is complete."""
        made_of = self.manifest
        own = [place(self._spec.base, label) for label in made_of["own"]]
        search = self._not_versioned([*self._given, *self._search])
        # An include in quotes looks beside the file first that it stands in.
        beside = (os.path.dirname(path) for path in (*self._sources, *own))
        every = self._not_versioned([*search, *beside])
        names = self._looked_for | self._of_versions(every)
        if self._asks_by_macro:
            given = [*self._spec.cflags, *self._spec.cuda_cflags]
            given += [value for _, value in self._spec.constants]
            names |= self._defined | _names_in(re.findall(_QUOTED, os.fsencode(" ".join(given))))
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
        return [path for path in dict.fromkeys(folders) if not _below(path, self._versioned)]

    def _enter(self, path: str) -> str:
        if path in self._sources:
            label = self._spec.label(Path(path))
            if Path(path) not in self._texts and self._is_younger(path):  # and as it was again
                self.edited.add(label)
            self._scan(path)
        elif _below(path, self._versioned):
            self._skipped.add(path)
            label = ""
        else:
            label = self._enter_file(path)
        self._labels[path] = label
        return label

    def _enter_file(self, path: str) -> str:
        near = _below(path, self._near)
        own = near or not _below(path, self._outside)
        path = _plain(path) if own else path
        try:
            status = os.stat(path)
        except OSError:
            self.edited.add(path)  # removed since it was read
            return path
        label = self._label(path) if own else path
        if status.st_size <= _OWN_BYTES:
            self._scan(path)
        if own and status.st_size <= _OWN_BYTES:
            self.manifest["own"][label] = digest(path)
            self.manifest["movable"] &= not os.path.isabs(label)
        else:
            then = digest(path) if status.st_size <= _READ_BYTES else ""
            self.manifest["outside"][path] = [then, *_safe_stamp(path)]
            self.manifest["movable"] &= not own
            label = path
        if self._is_younger(path):
            self.edited.add(label)
        return label

    def _is_younger(self, path: str) -> bool:
        """Whether a file, or a link in its place, came or changed after the build began."""
        for status in (os.stat(path), os.lstat(path)):
            stamp = status.st_ctime_ns
            # A file system that counts whole seconds rounds them down.
            since = self._since if stamp % _SECOND else self._since // _SECOND * _SECOND
            if since <= stamp <= time.time_ns():
                return True
        return False

    def _has_come(self, folder: str, names: Iterable[str]) -> bool:
        """Whether a folder got one of the names after the build began: too late for a compiler."""
        paths = [os.path.join(folder, name) for name in names]
        try:
            return bool(paths) and self._is_younger(folder) and any(map(self._is_younger, paths))
        except OSError:
            return True  # gone again

    def _label(self, path: str) -> str:
        """Relative to the base where another checkout would have the same file in its place."""
        if _below(path, self._movable) and not _below(path, self._fixed):
            return self._spec.label(Path(path))
        return path

    def _scan(self, path: str) -> None:
        """Note what a file asks for by ``__has_include``, which no compiler tells."""
        given = self._texts.get(Path(path))
        text = Path(path).read_bytes() if given is None else given.encode()
        self._defined.update(_names_in(re.findall(_DEFINED, text)))
        if b"__has_" in text:
            asked = re.findall(_HAS_INCLUDE, text.replace(b"\\\n", b""))
            literal = [words for words in asked if words[:1] in (b"<", b'"')]
            self._looked_for |= _names_in(literal)
            self._asks_by_macro |= len(literal) < len(asked)

    def _of_versions(self, search: list[str]) -> set[str]:
        """The names of files that are left out, as far as a folder of the search may hide them."""
        every = _names(self._skipped, [path for path in self._search if path not in search])
        folders = {name.partition("/")[0] for name in every if "/" in name}
        hidden = {part for part in folders for path in search if os.path.isdir(f"{path}/{part}")}
        return {
            name if name.partition("/")[0] in hidden else name.partition("/")[0] for name in every
        }


def _names_in(words: list[bytes]) -> set[str]:
    return {os.fsdecode(word.strip(b'<>" \t')) for word in words}


def _names(paths: Iterable[str], search: list[str]) -> set[str]:
    """By which names these files may have been found."""
    starts = _folders(search)
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
        entry = found.setdefault(folder, _Folder(_safe_stamp(folder), set(), set()))
        entry.wanted.update(below)
        there = _listed(folder, below)
        entry.names.update(there)
        waiting += [(os.path.join(folder, name), below[name]) for name in there if below[name]]
    return found


def _listed(folder: str, names: Iterable[str]) -> set[str]:
    """Which of the names a folder has; none where there is no folder."""
    try:
        return set(names).intersection(os.listdir(folder))
    except OSError:
        return set()


def stamp_of(path: str) -> list[int]:
    """What of a file's record changes whenever its content does; empty where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _safe_stamp(path: str) -> list[int]:
    """A stamp, or one that nothing equals where a change just now could leave it as it is."""
    stamp = stamp_of(path)
    if stamp:
        tick = _TICK_NS if stamp[2] % _SECOND else _COARSE_TICK_NS
        if stamp[2] > time.time_ns() - tick:
            return [-1]
    return stamp


def _plain(path: str) -> str:
    """The path without ``..``, which need not be what the text alone gives."""
    if ".." not in path:
        return path
    plain = os.path.normpath(path)
    try:
        return plain if os.path.samefile(plain, path) else os.path.realpath(path)
    except OSError:
        return os.path.realpath(path)


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return f"{path}/".startswith(folders)


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.join(path, "") for path in paths)


def _versioned() -> list[str]:
    """Directories whose content changes with torch's version, or with Python's."""
    import sysconfig  # a cached import does without it: 4 ms

    torchs = os.path.dirname(torch.__file__)
    return [torchs, os.path.realpath(torchs), sysconfig.get_path("include")]


def _prefixes() -> list[str]:
    return [sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__))]
