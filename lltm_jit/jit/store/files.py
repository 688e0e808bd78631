"""The content of files, and whether a build is stale.

A build is current as long as each file that its tools read has the same digest, and no file has
come or gone in the user's own folders under a name that a tool looked for. So a header that appears
in front of another one makes the build stale, too.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from ..user import settings

AT_ONCE = os.O_RDONLY | os.O_NONBLOCK  # does not wait at a pipe in place of a file
STALE = ""  # in place of a digest: no file has it
UNKNOWN = "?"  # the same for a file without a known name: it always counts as changed
_SECOND = 1_000_000_000
_TICK_NS = 50_000_000  # two changes this far apart have different times
_COARSE_TICK_NS = 2 * _SECOND  # the same where a file system counts whole seconds
_CHECK = "check"  # the entry of a JSON file with a digest of the rest
_INCLUDE = re.compile(r'#[ \t]*(?:include|import)[ \t]*["<]([^">\n]+)[">]')


class Content(NamedTuple):
    """A text's digest, and the names that it includes.

    The includes ``in_doubt`` may be inside a comment.
    """

    digest: str
    includes: tuple[str, ...]
    in_doubt: tuple[str, ...]
    stamp: list[int]


_known: dict[str, Content] = {}  # a stamp stands for the content within a process


def text(path: str) -> Content:
    """The content of a text as it is now.

    Raises:
        OSError: it cannot be read.
    """
    known = _known.get(path)
    if known is not None and known.stamp == stamp_of(path):
        return known
    file = os.open(path, AT_ONCE)
    try:
        stamp = _stamp(os.fstat(file))
        settled = _is_settled(stamp)  # before reading, which takes time
        read = b"".join(iter(partial(os.read, file, stamp[1] + 1), b""))
    finally:
        os.close(file)
    includes = ((), ()) if b"\0" in read else _includes(os.fsdecode(read))  # a binary file has none
    found = Content(hashlib.sha256(read).hexdigest(), *includes, stamp)
    if settled:
        _known[path] = found
    return found


def _includes(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = {
        match.start(): match[1]
        for match in _INCLUDE.finditer(text)
        if not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
    }
    opened = {at: text.rfind("/*", 0, at) for at in found}
    in_doubt = (at for at in found if opened[at] >= 0 and text.find("*/", opened[at], at) < 0)
    return tuple(found.values()), tuple(found[at] for at in in_doubt)


def digest(path: str | Path) -> str:
    """The digest of a file's content; ``STALE`` if it cannot be read."""
    hasher = hashlib.sha256()
    try:
        file = os.open(path, AT_ONCE)
        try:
            while block := os.read(file, 1 << 16):  # larger blocks take fresh pages of the system
                hasher.update(block)
        finally:
            os.close(file)
    except (OSError, ValueError):  # a name with a null byte is no path at all
        return STALE
    return hasher.hexdigest()


def digest_of(value: Any) -> str:
    """A short digest of what JSON can hold."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def stamp_of(path: str) -> list[int]:
    """Metadata of a file, which changes with the file's content; empty if there is no file."""
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):
        return []


def _stamp(status: os.stat_result) -> list[int]:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return [status.st_dev, status.st_size, *times, status.st_ino]


def _is_settled(stamp: list[int]) -> bool:
    """Whether another change of the file would give it another stamp."""
    tick = _TICK_NS if stamp[3] % _SECOND else _COARSE_TICK_NS
    return stamp[3] <= time.time_ns() - tick


class Stamps:
    """Digests of files that this host has read since it booted, which may be kept in a folder.

    A stamp stands for a digest only on this host: file systems of images may have the same times
    and inodes for other contents, so the stamps of read-only file systems are not used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = _file_of_stamps(folder)

    @cached_property
    def _known(self) -> dict[str, list[Any]]:
        """A stamp and a digest for each path."""
        with suppress(OSError, ValueError):
            return read_json(self._file) if self._file else {}
        return {}

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The digests of files. Only files with unknown stamps are read."""
        found, added = {}, False
        for path in paths:
            try:  # one system call for each of hundreds of paths
                s = os.stat(path)
            except (OSError, ValueError):  # a name with a null byte is no path at all
                found[path] = STALE
                continue
            stamp = [s.st_dev, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
            *known, then = self._known.get(path, [STALE])
            if known == stamp and (_changeable.get(s.st_dev) or _is_changeable(path, s.st_dev)):
                found[path] = then
                continue
            settled = _is_settled(stamp)
            found[path] = digest(path)
            if settled:
                self._known[path] = [*stamp, found[path]]
                added = True
        if added:
            self._save(self._file)
        return found

    def keep_in(self, folder: Path) -> None:
        """Save the stamps in a build's folder, so that the first load need not read all files."""
        self._save(_file_of_stamps(folder))

    def _save(self, file: Path | None) -> None:
        with suppress(OSError):  # the folder is read-only, or others tidy up, too
            if file:
                write_json(file, self._known)
                kept = sorted(file.parent.glob("stamps-*"), key=os.path.getmtime)
                for old in kept[:-_HOSTS]:
                    old.unlink()


def _file_of_stamps(folder: Path | None) -> Path | None:
    return folder / f"stamps-{_boot()}.json" if folder and _boot() else None


@cache
def _boot() -> str:
    """What identifies this host since it booted; empty where the system does not say."""
    with suppress(OSError):
        told = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return digest_of([told, os.uname().nodename])[:8]
    return ""


def _is_changeable(path: str, device: int) -> bool:
    """Whether the file system of a path is mounted for writing."""
    if device not in _changeable:
        _changeable[device] = not os.statvfs(path).f_flag & os.ST_RDONLY
    return _changeable[device]


_HOSTS = 8  # the most hosts with stamps in a folder; each container and each boot is one
_changeable: dict[int, bool] = {}


class Inputs(NamedTuple):
    """What a build or an object was made from, ready for JSON.

    ``files`` are digests by label: a path relative to the base of the sources, or an absolute one.
    ``folders`` are the user's folders, each with what it has of ``names``: the parts of all paths
    by which a tool may have looked for a file.
    """

    files: dict[str, str] = {}  # noqa: RUF012 - nobody changes a default
    folders: dict[str, list[str]] = {}  # noqa: RUF012
    names: list[str] = []  # noqa: RUF012

    def changes(self, base: str, stamps: Stamps) -> list[str]:
        """The labels of files that changed, and in words the names that came or went."""
        outside = [label for label in self.files if label[:1] == "/"]
        now = stamps.digests(outside)
        for label in self.files.keys() - now.keys():
            now[label] = text_digest(place(base, label))
        found = [label for label, then in self.files.items() if now[label] != then]
        for label, had in self.folders.items():
            have = names_in(place(base, label), self.names)
            found += [f"{name} came or went in {label}" for name in sorted({*had} ^ have)]
        return found


def place(base: str, label: str) -> str:
    """The path of a label's file."""
    return label if label[:1] == "/" else os.path.normpath(os.path.join(base, label))


def text_digest(path: str) -> str:
    """The digest of a text; a process that has read it remembers it."""
    try:
        return text(path).digest
    except (OSError, ValueError):
        return STALE


def names_in(folder: str, names: Collection[str]) -> set[str]:
    """The names that a folder has, among the given ones; none if there is no folder."""
    try:
        return set(names).intersection(os.listdir(folder))
    except OSError:
        return set()


def looked_up(
    folders: Collection[str], paths: Iterable[str], tails: Collection[str] = ()
) -> tuple[list[str], dict[str, list[str]]]:
    """The names under which tools may have looked for files, and what the folders have of them.

    A tool does not tell by which name it found a path, so each part of the path counts, also inside
    a folder that has one of these names. ``tails`` are whole names: their first part counts, and
    the other parts count if a folder has the first.
    """
    firsts = {tail.partition("/")[0] for tail in tails}
    there = {name for folder in folders for name in names_in(folder, firsts)}
    inner = [tail for tail in tails if tail.partition("/")[0] in there]
    names = {part for path in (*paths, *firsts, *inner) for part in path.split("/")}
    names -= {"", ".", ".."}
    found: dict[str, list[str]] = {}
    waiting, inside = [*folders], set()
    while waiting:
        folder = waiting.pop()
        found[folder] = sorted(names_in(folder, names))
        for path in (f"{folder}/{name}" for name in found[folder]):
            real = os.path.realpath(path)  # a circle of links has no end
            if real not in inside and os.path.isdir(path):
                inside.add(real)
                waiting.append(path)
    return sorted(names), found


def closure(
    paths: Iterable[str],
    folders: Iterable[str],
    more: Callable[[str], Iterable[str]] = lambda path: (),
) -> dict[str, str]:
    """The digests of texts, and of what they include from their own or from these folders.

    Conditions are ignored, so this finds more than a compiler reads, but misses names made by
    macros. ``more`` tells further names that a text includes.
    """
    found: dict[str, str] = {}
    tried, waiting = set(), [*paths]
    while waiting:
        path = waiting.pop()
        if path in tried:
            continue
        tried.add(path)
        with suppress(OSError, ValueError):  # no file, or none that can be read
            content = text(path)
            found[path] = content.digest
            for name in (*content.includes, *more(path)):
                places = (os.path.dirname(path), *folders)
                waiting += [os.path.normpath(os.path.join(place, name)) for place in places]
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that begins with a digest of itself: what :func:`write_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    with open(os.open(path, AT_ONCE), "rb") as file:
        text = file.read()
    head, _, body = text.partition(b"\n")
    if head != _head(body):
        raise ValueError(f"{path} is not what was written")
    values = json.loads(text)
    del values[_CHECK]
    return values


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file with a digest of itself."""
    body = json.dumps(value).encode()[1:]
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(_head(body) + b"\n" + body)
        file.flush()
        shared = settings.flag("LLTM_JIT_TRUST_ROOT")
        partial.chmod(0o664 if shared else 0o644)  # whatever the umask
        os.fsync(file.fileno())


def _head(body: bytes) -> bytes:
    return b'{"%s": "%s",' % (_CHECK.encode(), hashlib.sha256(body).hexdigest().encode())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to inside a ``with`` block; then its file replaces another in one step."""
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # exists only after a failure, such as a full disk
