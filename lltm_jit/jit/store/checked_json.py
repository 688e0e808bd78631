"""JSON files of the cache, which begin with a digest of themselves."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from ..user import settings

_CHECK = "check"


def read(path: Path) -> dict[str, Any]:
    """Read what :func:`write` wrote.

    Raises:
        ValueError: it is something else.
    """
    # A pipe in place of a file is empty, and nobody waits for it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        text = file.read()
    head, _, body = text.partition(b"\n")
    if head != _head(body):
        raise ValueError(f"{path} is not what was written")
    values = json.loads(text)
    del values[_CHECK]
    return values


def write(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file, completely or not at all, with a digest of itself."""
    body = json.dumps(value).encode()[1:]
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(_head(body) + b"\n" + body)
            file.flush()
            shared = settings.flag("LLTM_JIT_TRUST_ROOT")
            partial.chmod(0o664 if shared else 0o644)  # whatever the umask
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # there only where it failed, as on a full disk


def _head(body: bytes) -> bytes:
    return b'{"%s": "%s",' % (_CHECK.encode(), hashlib.sha256(body).hexdigest().encode())
