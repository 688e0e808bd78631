"""``cache``: list builds, explain why one is needed, remove old ones.

examples:
  python -m lltm_jit cache list             what there is, how large and how old
  python -m lltm_jit cache why rnn          would an import build it, and why?
  python -m lltm_jit cache prune --gb 5     remove the least recently used entries, down to 5 GB
"""

import argparse
import textwrap
from collections import Counter
from datetime import datetime

from lltm_jit import native
from lltm_jit.jit import ToolchainError, inspect
from lltm_jit.jit.compile import builder
from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.request.request import Request, previous, reasons
from lltm_jit.jit.store import cache, retention
from lltm_jit.jit.store.retention import GIGABYTE, Entry
from lltm_jit.jit.user import settings

from . import _extensions
from .lltm import positive

_KINDS = {"build": "builds", "work": "folders of compilations", "object": "objects"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="{list,why,prune,clear}", required=True)
    actions.add_parser("list", help="list builds; * marks those that the package would load")
    why_parser = actions.add_parser("why", help="say whether a load would compile, and why")
    _extensions.add_argument(why_parser)
    about = "remove the least recently used entries, but none used within an hour"
    about_gb = "gigabytes that may stay (default: LLTM_JIT_CACHE_GB, or 20)"
    prune_parser = actions.add_parser("prune", help=about)
    prune_parser.add_argument("--gb", type=positive, metavar="N", help=about_gb)
    actions.add_parser("clear", help="remove everything; programs that run keep what they loaded")


def run(args: argparse.Namespace) -> int:
    return {"list": list_builds, "why": why}.get(args.action, remove)(args)


def list_builds(_: argparse.Namespace) -> int:
    current = {info.key for info in map(inspect, map(native.spec, native.OWN)) if info}
    found = [*retention.entries()]
    sizes = {entry.path: entry.size for entry in found}
    rows = [["", "key", "name", "made", "MB", "seconds", "because"]]
    for record in cache.records():
        mark = "*" if record.key in current else ""
        size = f"{sizes.get(record.directory, 0) / 1e6:.1f}"
        reason = textwrap.shorten(record.reason, 80, placeholder=" ...")
        made = [_time(record.created), size, f"{record.seconds:.1f}", reason]
        rows.append([mark, record.key, record.name, *made])
    print(cache.builds_directory())
    print(in_columns(rows) if len(rows) > 1 else "no builds")
    print(f"\n{_sizes(found)}" if found else "")
    limit = retention.limit() / GIGABYTE
    print(f"{sum(sizes.values()) / GIGABYTE:.1f} of at most {limit:.0f} GB (LLTM_JIT_CACHE_GB)")
    return 0


def why(args: argparse.Namespace) -> int:
    for extension in _extensions.chosen(args.names):
        head = f"{extension.name}: {_extensions.loader(extension)}"
        if info := inspect(extension):
            made = f"made {_time(info.created)} in {info.seconds:.1f} s"
            print(f"{head} loads {info.library}, {made}: {info.reason}")
            continue
        print(f"{head} would build it, because:")
        with _extensions.requested(extension) as request:
            told = [("  - ", reason) for reason in reasons(request, previous(request))]
            if fails := _why_it_fails(request):
                told.append(("  ", f"That would fail: {fails}"))
        for start, text in told:
            print(textwrap.fill(text, 100, initial_indent=start, subsequent_indent="    "))
    return 0


def _why_it_fails(request: Request) -> str:
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        return "LLTM_JIT_DISABLE_JIT forbids building"
    try:
        builder.check(request)
    except ToolchainError as error:
        return str(error)
    return ""


def remove(args: argparse.Namespace) -> int:
    """Do what ``prune`` or ``clear`` says; print what is gone, and what is kept and why."""
    if args.action == "prune":
        told = retention.prune(args.gb and args.gb * GIGABYTE)
    else:
        told = [(entry, retention.remove(entry)) for entry in [*retention.entries()]]
    gone = [entry for entry, why_kept in told if not why_kept]
    print(f"removed:\n{_sizes(gone)}" if gone else "nothing is removed")
    for entry, why_kept in told:
        print(f"{entry.path} {why_kept}\n" if why_kept else "", end="")
    return 0 if len(gone) == len(told) else 1


def _sizes(found: list[Entry]) -> str:
    """The number and the size of the entries of each kind."""
    sizes, counts = Counter[str](), Counter[str]()
    for entry in found:
        sizes[entry.kind] += entry.size
        counts[entry.kind] += entry.path.suffix != ".json"  # an object has one beside it
    return in_columns([(str(counts[k]), _KINDS[k], f"{sizes[k] / 1e6:.1f} MB") for k in counts])


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
