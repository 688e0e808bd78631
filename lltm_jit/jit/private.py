"""Whether a directory is safe to load code from: nobody else can change what is in it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from . import knobs


def why_not_private(directory: Path) -> str:
    """Why another user could write to this directory or replace it; empty if none could.

    Loading a library runs its code, so loading from somebody else's directory means running their
    programs. Every directory on the path is checked, starting with the user's home, as OpenSSH does
    for its keys: whoever owns the home directory controls what this user runs anyway.
    """
    if sys.platform == "win32" or knobs.flag("LLTM_JIT_TRUST_ROOT"):
        return ""
    trusted = (os.geteuid(), 0, os.stat("/").st_uid)  # who owns / could change anything anyway
    home = Path.home() if "HOME" in os.environ else None
    for path in _ways_to(directory):
        if home and path != directory and (path == home or path in home.parents):
            continue
        try:
            status = path.lstat()
        except OSError:
            continue  # not there, so nothing is loaded from it
        if status.st_uid not in trusted:
            return f"{path} belongs to user {status.st_uid}, but you are user {os.geteuid()}"
        if stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and path != directory):
            continue  # nobody but its owner can put another in its place
        if status.st_mode & stat.S_IWOTH or (
            status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
        ):
            mode = stat.S_IMODE(status.st_mode)
            return f"other users may write to {path} (mode {mode:o}; fix: `chmod go-w {path}`)"
    return ""


def _ways_to(path: Path, found: dict[Path, None] | None = None) -> dict[Path, None]:
    """A path and all directories on the way to it, also through links."""
    found = {} if found is None else found
    for place in (path, *path.parents):
        if place not in found:
            found[place] = None
            if os.path.islink(place):  # no where this user may not look
                parent = os.path.realpath(place.parent)
                _ways_to(Path(os.path.normpath(os.path.join(parent, os.readlink(place)))), found)
    return found


def _is_own_group(group: int) -> bool:
    """Whether this user is the group's only member, as with private groups and umask 002."""
    import grp
    import pwd

    try:
        me, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    users = {*entry.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == group)}
    if me.pw_gid == group and entry.gr_name == me.pw_name:
        users.add(me.pw_name)  # a directory service need not list everybody
    return users == {me.pw_name}
