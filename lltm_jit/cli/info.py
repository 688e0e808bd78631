"""``info``: show versions, and where and why each extension was built.

examples:
  python -m lltm_jit info                versions, and the builds that an import loads
  python -m lltm_jit info all --json     every family, as JSON for programs
"""

import argparse
import json

from lltm_jit._package import info_with
from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.loading.engine import inspect
from lltm_jit.jit.store import cache

from . import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    extensions = _extensions.chosen(args.names)
    builds = {each.name: inspect(each) for each in extensions}
    info = info_with({name: build for name, build in builds.items() if build})
    if args.json:
        families = {name: build._asdict() for name, build in info.families.items()}
        told = {**info._asdict(), "toolchain": info.toolchain._asdict(), "families": families}
        print(json.dumps(told, indent=2, default=str))
        return 0
    print(in_columns(info.facts()))
    for each in extensions:
        root, loader = each.root or cache.root(), _extensions.loader(each)
        missing = f"{each.name}: no build of its sources in {root} yet; {loader} makes one"
        print(f"\n{builds[each.name] or missing}")
    return 0
