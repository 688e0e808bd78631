"""``log``: show what the compilers printed in the last build.

examples:
  python -m lltm_jit log               the last build, even if it failed
  python -m lltm_jit log rnn | less
"""

import argparse
import os
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import CacheError
from lltm_jit.jit.store import cache

from . import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser, "whatever was built last", many=False)
    parser.add_argument("--path", action="store_true", help="print the path of the log instead")


def run(args: argparse.Namespace) -> int:
    name, root = args.name, ""
    if name and Path(name).exists() and name not in native.families():
        extension = _extensions.one(name)
        name, root = extension.name, extension.root
    with cache.at_root(root):
        log = _newest(name)
    print(f"{log}\n" if args.path else log.read_text("utf-8", errors="replace"), end="")
    return 0


def _newest(name: str | None) -> Path:
    """The newest log of an extension, or of any without a name; a failed build's counts, too."""
    builds = cache.builds_directory()
    found = [*builds.glob(f"*/{cache.LOG}"), *builds.glob(f"work/*/{cache.LOG}")]
    logs = {log: _built(log) for log in found}
    if not logs:
        raise CacheError(f"no build log in {builds}: nothing was built yet")
    found = [log for log, built in logs.items() if name in (None, built)]
    if not found:
        names = ", ".join(sorted({*logs.values()} - {""}))
        raise CacheError(f"no build log of {name!r} in {builds}; there are logs for {names}")
    return max(found, key=os.path.getmtime)


def _built(log: Path) -> str:
    """The name of the extension that was built, from the log's first line."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return file.readline().partition("# extension: ")[2].strip()
