"""``cache list | why | prune | clear``: the builds on disk."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections import Counter

from lltm_jit import native
from lltm_jit.jit import Toolchain, cache, detect, inspect, retention
from lltm_jit.jit.builder import nearest
from lltm_jit.jit.fingerprint import fingerprint, reasons

from . import _build, _families
from ._cell import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    actions.add_parser("list", help="list the builds; a star marks those that an import loads")
    why_parser = actions.add_parser("why", help="say whether an import would build, and why")
    _families.add_argument(why_parser)
    prune = actions.add_parser("prune", help="remove all but the newest builds of each kind")
    prune.add_argument("--keep", type=positive, help="how many; default: LLTM_JIT_KEEP")
    actions.add_parser("clear", help="remove every build that no process has loaded")


def run(args: argparse.Namespace) -> int:
    return {"list": list_builds, "why": why, "prune": prune, "clear": clear}[args.action](args)


def list_builds(_: argparse.Namespace) -> int:
    toolchain = detect()
    found = [inspect(native.spec(family, toolchain), toolchain) for family in native.AT_IMPORT]
    current = {info.key for info in found if info}
    rows = [["", "key", "name", "made", "MB", "seconds", "because"]]
    for record in cache.records():
        mark = "*" if record.key in current else ""
        size = sum(file.stat().st_size for file in record.directory.iterdir()) / 1e6
        made = _build.local_time(record.created)
        name = record.fingerprint["name"]
        figures = [f"{size:.1f}", f"{record.seconds:.1f}"]
        rows.append([mark, record.key, name, made, *figures, _in_a_column(record.reason)])
    print(cache.builds_directory())
    print(_build.table(rows) if len(rows) > 1 else "no builds")
    return 0


def why(args: argparse.Namespace) -> int:
    toolchain = detect()
    for family in _families.chosen(args.families):
        print(f"{family}: {_families.loader(family)} {_loads_or_builds(family, toolchain)}")
    return 0


def _loads_or_builds(family: str, toolchain: Toolchain) -> str:
    packaged = native.packaged(native.spec(family, toolchain), toolchain)
    if packaged:
        return f"loads {packaged.info.library}, {packaged.info.reason}"
    spec = native.spec(family, toolchain)
    if info := inspect(spec, toolchain):
        return (
            f"loads {info.key}, built at {_build.local_time(info.created)} because: {info.reason}"
        )
    builds = [record for record in cache.records() if record.fingerprint["name"] == family]
    content = fingerprint(spec, toolchain)
    because = ", ".join(reasons(nearest(builds, content), spec, content))
    return f"builds it, because: {because}"


def prune(args: argparse.Namespace) -> int:
    return _report(retention.prune(args.keep))


def clear(_: argparse.Namespace) -> int:
    kept = {record.key: retention.remove(record.key) for record in cache.records()}
    shutil.rmtree(cache.failed_directory(), ignore_errors=True)
    return _report(kept)


def _report(kept: dict[str, str]) -> int:
    """Tell what became of builds: why each is kept, by its key; nothing where it is gone."""
    removed = [key for key, why_kept in kept.items() if not why_kept]
    for key in removed:
        print(f"removed {key}")
    print(f"{len(removed)} removed")
    for why_kept, count in Counter(filter(None, kept.values())).items():
        print(f"{count} {why_kept}, and kept")
    return 0 if set(kept.values()) <= {"", "in use"} else 1


def _in_a_column(reason: str) -> str:
    return textwrap.shorten(reason, 80, placeholder=" ...")
