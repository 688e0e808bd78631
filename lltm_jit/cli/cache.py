"""``cache list | why | prune | clear``: the builds on disk."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections import Counter

from lltm_jit import native
from lltm_jit.jit import BuildSpec, Toolchain, ToolchainError, detect, inspect
from lltm_jit.jit.loading.build_result import in_columns
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.request.checks import check_tools
from lltm_jit.jit.request.differences import nearest, reasons
from lltm_jit.jit.request.fingerprint import fingerprint
from lltm_jit.jit.store import cache, retention
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.progress import many

from . import _build, _extensions
from .lltm import positive

EXAMPLES = """\
examples:
  {prog} cache list               where builds are, how large and how old
  {prog} cache why rnn            would an import build it, and why?
  {prog} cache prune --keep 2     keep two builds of each extension"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="{list,why,prune,clear}", required=True)
    actions.add_parser("list", help="list builds; * marks those that the package would load")
    why_parser = actions.add_parser("why", help="say whether a load would compile, and why")
    _extensions.add_argument(why_parser)
    prune = actions.add_parser("prune", help="remove all but the newest builds of each extension")
    prune.add_argument(
        "--keep",
        type=positive,
        metavar="N",
        help="builds to keep for each extension and set of flags (default: LLTM_JIT_KEEP, or 5)",
    )
    actions.add_parser("clear", help="remove every build; programs that run keep theirs")


def run(args: argparse.Namespace) -> int:
    return {"list": list_builds, "why": why, "prune": prune, "clear": clear}[args.action](args)


def list_builds(_: argparse.Namespace) -> int:
    current = set()
    for family in native.OWN:
        toolchain = detect(family)
        if info := inspect(native.spec(family, toolchain), toolchain):
            current.add(info.key)
    rows = [["", "key", "name", "made", "MB", "seconds", "because"]]
    for record in cache.records():
        mark = "*" if record.key in current else ""
        size = retention.size_of(record.directory) / 1e6
        made = _build.local_time(record.created)
        name = record.fingerprint["name"]
        reason = textwrap.shorten(record.reason, 80, placeholder=" ...")
        figures = [f"{size:.1f}", f"{record.seconds:.1f}"]
        rows.append([mark, record.key, name, made, *figures, reason])
    print(cache.builds_directory())
    print(in_columns(rows) if len(rows) > 1 else "no builds")
    for key, size in retention.header_sizes().items():
        print(f"precompiled header {key}: {size / 1e6:.0f} MB")
    return 0


def why(args: argparse.Namespace) -> int:
    for extension in _extensions.chosen(args.names):
        with cache.at_root(extension.root):
            loads, because, fails = _outcome(extension, detect(extension.name))
        end = ", because:" if because else ""
        print(f"{extension.name}: {_extensions.loader(extension)} {loads}{end}")
        for reason in because:
            print(textwrap.fill(reason, 100, initial_indent="  - ", subsequent_indent="    "))
        if fails:
            told = f"That would fail: {fails}"
            print(textwrap.fill(told, 100, initial_indent="  ", subsequent_indent="  "))
    return 0


def _outcome(extension: Extension, toolchain: Toolchain) -> tuple[str, list[str], str]:
    """What loading would do, for what reasons, and why it would fail."""
    packaged = extension.packaged_info(toolchain)
    if packaged:
        return f"loads {packaged.library}, {packaged.reason}", [], ""
    spec = extension.spec(toolchain)
    if info := inspect(spec, toolchain):
        made = f"{_build.local_time(info.created)} in {info.seconds:.1f} s"
        told = f"{made} by {toolchain.compiler}, not found now" if toolchain.recorded else made
        return f"loads {info.key}, made {told}", info.reason.split(", "), ""
    builds = [*cache.named(extension.name)]
    content = fingerprint(spec, toolchain)
    because = reasons(nearest(builds, content), spec, content)
    return "would build it", because, _why_it_fails(spec, toolchain)


def _why_it_fails(spec: BuildSpec, toolchain: Toolchain) -> str:
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        return "LLTM_JIT_DISABLE_JIT forbids building"
    try:
        check_tools(spec, toolchain)
    except ToolchainError as error:
        return str(error)
    return ""


def prune(args: argparse.Namespace) -> int:
    return _report(retention.prune(args.keep))


def clear(_: argparse.Namespace) -> int:
    # Also those that this version cannot read. One without a record is about to get it, or a prune
    # removes it.
    builds = [build.name for build in cache.directories("") if cache.last_use(build)]
    kept = {key: retention.remove(key) for key in builds}
    shutil.rmtree(cache.failed_directory(), ignore_errors=True)
    for key in retention.prune_headers(keep=0):
        print(f"removed precompiled header {key}")
    return _report(kept)


def _report(kept: dict[str, str]) -> int:
    """Print what was removed, and why the others are kept; ``kept`` is empty for removed builds."""
    removed = [key for key, why_kept in kept.items() if not why_kept]
    for key in removed:
        print(f"removed {key}")
    print(f"{many(len(removed), 'build') if removed else 'no build'} removed")
    for why_kept, count in Counter(filter(None, kept.values())).items():
        print(f"{count} kept: {why_kept}")
    return 0 if set(kept.values()) <= {""} else 1
