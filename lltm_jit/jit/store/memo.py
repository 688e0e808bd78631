"""What the compilers answered when they were last asked, which costs a process each.

An answer holds as long as the files it was read from are the same, by inode, size and times: the
inode's change time cannot be set back, so a replaced compiler is always noticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..user.errors import LltmJitError
from . import cache, checked_json, files, private

# Where ccache reads which compiler to start.
_CCACHE = ("CCACHE_COMPILER", "CCACHE_CONFIGPATH", "CCACHE_DIR", "CCACHE_PATH", "CCACHE_PREFIX")


class Memo:
    """Answers of tools, kept in a file of the cache; works read-only, and without any file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self._changed = False
        try:
            if private.why_not_private(path):
                return  # somebody else may have written it
            self._known = checked_json.read(path)
        except (OSError, ValueError, LltmJitError):
            return  # none, or a setting that cannot be used, which the build will tell

    def recall(self, command: list[str], probe: Callable[[list[str]], Any]) -> dict[str, Any]:
        # Also the compiler that a ccache starts: the next word, or the next of its name on PATH.
        programs = [found for word in command for found in _all_on_path(word)]
        read = [*programs, *ccache_files()] if any(map(is_ccache, programs)) else programs
        chosen = [f"{name}={os.environ[name]}" for name in _CCACHE if name in os.environ]
        name = "\n".join([*programs, *command, *chosen])
        entry = self._known.get(name)
        if entry and entry["files"] == _stamps({*read, *entry["files"]}):
            return entry
        entry = probe(command)
        entry["files"] = _stamps([*read, *entry.pop("watch")])
        if entry["version"]:  # else the next process asks again
            self._known[name], self._changed = entry, True
        return entry

    def save(self) -> None:
        if not self._changed:
            return
        try:
            cache.make_builds_directory()
            checked_json.write(self._path, self._known)
        except (OSError, LltmJitError):
            return  # only a memo: the next process asks the compilers again


def _all_on_path(word: str) -> list[str]:
    """All programs of a name, the one that is started first."""
    folders = [""] if os.path.dirname(word) else os.get_exec_path()
    found = (shutil.which(word, path=folder or None) for folder in folders)
    return list(dict.fromkeys(filter(None, found)))


def ccache_files() -> list[str]:
    """Where a ccache reads its settings."""
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folders = ("/etc", os.environ.get("CCACHE_DIR") or "~/.ccache", f"{settings}/ccache")
    files = [os.path.expanduser(f"{folder}/ccache.conf") for folder in folders]
    return [*files, *filter(None, [os.environ.get("CCACHE_CONFIGPATH")])]


def is_ccache(program: str) -> bool:
    return os.path.basename(os.path.realpath(program)) == "ccache"


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    return {path: files.stamp_of(path) for path in paths}
