"""``log``: what the compilers said in the last build, or in the last one that failed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lltm_jit.jit import CacheError, cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", action="store_true", help="print where the log lies, no more")


def run(args: argparse.Namespace) -> int:
    log = newest_log()
    if args.path:
        print(log)
        return 0
    print(log.read_text("utf-8", errors="replace"), end="")
    return 0


def newest_log() -> Path:
    """The log that was written last, of a failed build or of one that is kept.

    Raises:
        CacheError: there is none.
    """
    builds = cache.builds_directory()
    logs = [*builds.glob(f"*/{cache.LOG}"), *builds.glob("failed/*.log")]
    if not logs:
        raise CacheError(f"no build log in {builds}: nothing was built yet")
    return max(logs, key=os.path.getmtime)
