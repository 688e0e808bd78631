"""Whether a file or a directory is safe to load code from: nobody else can change it."""

from __future__ import annotations

import functools
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ..user import settings


def why_not_private(place: Path) -> str:
    """Why another user could write to a file or a directory, or replace it; empty if none could.

    Loading a library runs its code, so loading from somebody else's directory means running their
    programs. Every directory on the path is checked, starting with the user's home, as OpenSSH does
    for its keys: the owner of a directory above the home controls what this user runs anyway.
    """
    if settings.flag("LLTM_JIT_TRUST_ROOT"):
        return ""
    trusted = _trusted()
    home = os.path.expanduser("~") if "HOME" in os.environ else ""
    within = str(place.parent if place.is_file() else place)  # where nobody may put another file
    for path, status in _ways_to(str(place)).items():
        if status is None or (path != within and home.startswith(path.rstrip("/") + "/")):
            continue  # it is above the home, or missing
        if status.st_uid not in trusted:
            return f"{path} belongs to user {status.st_uid}, but you are user {os.geteuid()}"
        if stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and path != within):
            continue  # only its owner can replace it
        if status.st_mode & stat.S_IWOTH or (
            status.st_mode & stat.S_IWGRP and not _is_own_group(path, status.st_gid)
        ):
            mode = stat.S_IMODE(status.st_mode)
            return f"other users may write to {path} (mode {mode:o}; fix: `chmod go-w {path}`)"
    return ""


@functools.cache
def _trusted() -> set[int]:
    """This user, and the owners of / and of this code, who could change anything anyway.

    In a user namespace, both owners may be the one that stands for all users outside it.
    """
    owners = {os.stat("/").st_uid}
    with suppress(OSError):  # the program may be a single file
        owners.add(os.stat(__file__).st_uid)
    with suppress(OSError, ValueError):
        owners.discard(int(Path("/proc/sys/kernel/overflowuid").read_text("ascii")))
    return {os.geteuid(), 0, *owners}


_Ways: TypeAlias = "dict[str, os.stat_result | None]"


def _ways_to(path: str, found: _Ways | None = None) -> _Ways:
    """A path and all directories on the way to it, also through links, as far as they exist."""
    found = {} if found is None else found
    while path not in found:
        found[path] = None
        parent = os.path.dirname(path)
        with suppress(OSError):  # it is missing, or this user may not look there
            status = found[path] = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                target = os.path.join(os.path.realpath(parent), os.readlink(path))
                _ways_to(os.path.normpath(target), found)
        path = parent
    return found


def _is_own_group(path: str | Path, group: int) -> bool:
    """Whether a group has no other member, as with private groups and umask 002."""
    with suppress(OSError, AttributeError):  # no list of users, or no call for it
        os.getxattr(path, "system.posix_acl_access")
        return False  # the group's bits stand for a list of users
    return _is_group_of(group, os.geteuid())


@functools.cache  # a directory service may take long to list everybody
def _is_group_of(group: int, user: int) -> bool:
    """Whether a user is the only one in a group."""
    import grp
    import pwd

    try:
        me, entry = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    users = {*entry.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == group)}
    if me.pw_gid == group and entry.gr_name == me.pw_name:
        users.add(me.pw_name)  # a directory service need not list everybody
    return users == {me.pw_name}
