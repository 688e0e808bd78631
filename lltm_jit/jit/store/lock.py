"""One builder at a time per key, and what the waiting processes learn.

The lock is the operating system's, so it is released when its holder is gone, for whatever reason.
It is outside the build directory, which is moved and removed while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..user import cancel, settings
from ..user.errors import BuildError, CacheError
from ..user.progress import Follower, Reporter
from . import cache, checked_json, manifest

_open: set[int] = set()  # descriptors of this process's locks
_given: dict[str, int] = {}  # locks that this process was started with, by their names
_NOBODY = 90.0  # seconds: longer than NFS may say that a new file is not there
_INTRODUCTION = 1.0  # seconds in which a builder that has just begun writes who it is
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def _forget_threads() -> None:
    """A thread that held a lock does not exist in a forked child, and would never release it."""
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def build_lock(key: str, reporter: Reporter) -> Iterator[None]:
    """Hold a key's lock; a process that has to wait prints for whom, how long that one has built,
    and its progress.
    """
    cancel.check()
    cache.make_builds_directory()
    with file_lock(name_of(key), reporter, key):
        yield


@contextmanager
def try_lock(name: str, shared: bool = False) -> Iterator[int | None]:
    """Hold a lock, alone or with others that share it, and give its descriptor; None if it is held.

    Whoever gets the descriptor keeps the lock, such as a process that is started with it. A key's
    lock has the name that :func:`name_of` tells.
    """
    descriptor = _take(name, shared)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            _close(descriptor)


def _take(name: str, shared: bool = False) -> int | None:
    """A descriptor that holds a lock; None if the lock is held."""
    file = file_of(name)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, _mode())
    except FileNotFoundError:  # the cache was removed: the next try finds another
        cache.make_builds_directory()
        return None
    _open.add(descriptor)
    try:
        with suppress(PermissionError):  # another user's
            os.fchmod(descriptor, _mode())
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # or it was removed, and others lock another one
            return descriptor
    except BlockingIOError:
        pass
    except OSError as error:
        _close(descriptor)
        if error.errno not in _NO_LOCKS:
            raise
        raise CacheError(
            f"the file system of {file.parent} does not support locks; set TORCH_EXTENSIONS_DIR to "
            "a directory on another one, such as a local disk"
        ) from error
    _close(descriptor)
    return None


def _close(descriptor: int) -> None:
    _open.discard(descriptor)
    os.close(descriptor)


def take_over(key: str, descriptor: int) -> None:
    """Have :func:`build_lock` use a key's lock that this process was started with."""
    _given[name_of(key)] = descriptor


def give_up(key: str) -> None:
    """Release a lock that this process was started with, unless a build has used it."""
    if (descriptor := _given.pop(name_of(key), None)) is not None:
        os.close(descriptor)


@contextmanager
def file_lock(name: str, reporter: Reporter, key: str = "") -> Iterator[None]:
    """Hold a lock of any name; a key's is taken before others, and never while one is held."""
    owner, descriptor = file_of(name).with_suffix(".owner"), _given.pop(name, None)
    given = descriptor is not None
    if descriptor is None:
        logs: dict[Path, Follower] = {}

        def look() -> None:
            for log in cache.builds_directory().glob(f"tmp-{key}-*/{cache.LOG}"):
                logs.setdefault(log, Follower(reporter, log)).look()

        with cache.writing():
            descriptor = _wait_for(name, owner, reporter.say, look)
        if logs:
            reporter.close()
    try:
        told = {"pid": os.getpid(), "host": platform.node(), "space": _space()}
        with cache.writing():
            checked_json.write(owner, {**told, "since": time.time(), "given": given})
        yield
    finally:
        with suppress(OSError):  # what it says of a free lock misleads nobody
            owner.unlink()
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also that of a copy in a forked process
        _close(descriptor)


def _wait_for(name: str, owner: Path, say: Callable[[str], None], look: Callable[[], None]) -> int:
    """Wait for a lock as long as there is a builder that identifies itself; its descriptor."""
    said, came = False, time.monotonic()
    told = came
    while (descriptor := _take(name)) is None:
        cancel.check()
        if not said and not owner.exists() and time.monotonic() < came + _INTRODUCTION:
            time.sleep(0.02)
            continue
        if not said:
            say(f"waiting for {_describe(owner)}")
            said = True
        if _lives(owner):
            told = time.monotonic()
        elif time.monotonic() > told + _NOBODY:
            raise CacheError(
                f"{file_of(name)} is locked by a program that builds nothing; end it (`fuser "
                f"{file_of(name)}` shows which it is), or set TORCH_EXTENSIONS_DIR to another "
                "directory"
            )
        time.sleep(0.1)
        look()
    return descriptor


def _lives(owner: Path) -> bool:
    """Whether a builder identifies itself and, as far as can be seen, has not been killed since."""
    try:
        told = json.loads(owner.read_text("utf-8"))
        if (told["host"], told["space"]) == (platform.node(), _space()):
            with suppress(PermissionError):  # another user's
                os.kill(told["pid"], 0)
            return not has_ended(told["pid"])
    except (ProcessLookupError, FileNotFoundError):
        return False
    except (OSError, ValueError, KeyError, TypeError):  # not readable, or not written yet
        return True
    return True


def has_ended(pid: int) -> bool:
    """Whether a process is a zombie: it has ended, and its parent has not asked how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:  # no /proc here
        return False
    state = stat.rpartition(") ")[2][:1]  # the name before it may contain anything
    return state in ("Z", "X")


def _space() -> str:
    """The scope of process numbers; containers may share a host's name."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def if_free(key: str, action: Callable[[str], None]) -> None:
    """Do something to a key under its lock, or nothing while somebody builds it."""
    with suppress(OSError), try_lock(name_of(key)) as mine:
        if mine is not None:
            action(key)


def _mode() -> int:
    return 0o666 if settings.flag("LLTM_JIT_TRUST_ROOT") else 0o644


def name_of(key: str) -> str:
    """A few thousand locks serve all requests; two that share one merely wait for each other."""
    return key[cache.FLAGS : cache.FLAGS + 3]


def file_of(name: str) -> Path:
    """The file of a lock."""
    return cache.builds_directory() / "locks" / f"{name}.lock"


def _describe(owner: Path) -> str:
    try:
        told = json.loads(owner.read_text("utf-8"))
        since = time.strftime("%H:%M:%S", time.localtime(told["since"]))
        host = "" if told["host"] == platform.node() else f" on {told['host']}"
        process = f"process {told['pid']}{host}"
        if told.get("given"):  # only an import starts a process with locks
            return f"the package's own build, which an import began at {since} ({process})"
        return f"{process}, which has been building since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process that is building"


def record_failure(key: str, message: str, files: Iterable[str]) -> None:
    """Tell the processes that wait for this build why it failed, and because of which files."""
    stamps = {path: manifest.stamp_of(path) for path in files}
    with cache.writing():
        told = {"message": message, "time": time.time(), "files": stamps}
        checked_json.write(_failure_file(key), told)


def raise_failure_of_others(key: str, asked: float) -> None:
    """Raise the error of a build that failed while the caller waited for it.

    A process that asks later builds again, because what was missing may have been installed. So
    does one that finds that a file named by the error was edited.
    """
    try:
        told = checked_json.read(_failure_file(key))
    except (OSError, ValueError):
        return
    same = all(manifest.stamp_of(path) == stamp for path, stamp in told["files"].items())
    if same and asked < told["time"] <= time.time():
        raise BuildError(told["message"])


def forget_failure(key: str) -> None:
    """Remove the traces of a failed build after one that succeeded."""
    for file in (_failure_file(key), cache.failed_log(key)):
        file.unlink(missing_ok=True)


def _failure_file(key: str) -> Path:
    return cache.failed_directory() / f"{key}.json"
