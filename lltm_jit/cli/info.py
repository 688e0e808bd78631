"""``info``: what is installed, and where, why and for what each extension was built."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from lltm_jit._package import PackageInfo, info_with
from lltm_jit.jit.loading.build_result import in_columns
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.store import cache

from . import _extensions

EXAMPLES = """\
examples:
  {prog} info                versions, and the builds that an import loads
  {prog} info all --json     every family, as JSON for programs"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    extensions = _extensions.chosen(args.names)
    info = collect(extensions)
    if args.json:
        families = {name: build._asdict() for name, build in info.families.items()}
        told = {**info._asdict(), "toolchain": info.toolchain._asdict(), "families": families}
        print(json.dumps(told, indent=2, default=str))
        return 0
    print(in_columns(info.facts()))
    for extension in extensions:
        name, root = extension.name, extension.root or cache.root()
        loader = _extensions.loader(extension)
        missing = f"{name}: no build of its sources in {root} yet; {loader} makes one"
        print(f"\n{info.families.get(name, missing)}")
    return 0


def collect(extensions: Sequence[Extension]) -> PackageInfo:
    """What is installed, and of these extensions those that are built."""
    builds = {each.name: each.info() for each in extensions}
    return info_with({name: build for name, build in builds.items() if build})
