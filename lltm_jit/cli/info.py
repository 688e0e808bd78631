"""``info``: what is installed, and where, why and for what each extension was built."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from lltm_jit._package import PackageInfo, installed
from lltm_jit.jit import detect
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.machine.toolchain import present
from lltm_jit.jit.store import cache
from lltm_jit.jit.user import settings

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
    tools = info.toolchain
    show("lltm_jit", info.lltm_jit_version)
    show("Python", info.python_version)
    show("torch", f"{tools.torch_version} (CUDA {tools.torch_cuda or 'none'})")
    made = f"not found; builds of {tools.compiler} are loaded" if tools.recorded else ""
    show("C++ compiler", made or tools.cxx_version or "not found")
    here = present()
    show("nvcc", f"{here.nvcc_version} ({here.cuda_home})" if here.nvcc else "not found")
    missing = tools.cuda_missing
    show("CUDA kernels", f"no: {missing}" if missing else " ".join(tools.architectures))
    for name, value in info.settings.items():
        show("setting", f"{name}={value}")
    for unknown in settings.unknown():
        show("setting", unknown)
    for extension in extensions:
        print()
        show_build(extension, info)
    return 0


def collect(extensions: Sequence[Extension]) -> PackageInfo:
    """What is installed, and of these extensions those that are built."""
    tools = detect()
    builds = {each.name: each.info(detect(each.name)) for each in extensions}
    return PackageInfo(
        **installed(tools), families={name: build for name, build in builds.items() if build}
    )


def show_build(extension: Extension, info: PackageInfo) -> None:
    name = extension.name
    build = info.families.get(name)
    if build is None:
        root, loader = extension.root or cache.root(), _extensions.loader(extension)
        show(name, f"no build of its sources in {root} yet; {loader} makes one")
        return
    show(name, build.directory)
    show("  key", build.key)
    show("  because", build.reason)
    show("  built in", f"{build.seconds:.1f} s ({build.compiled} compiled, {build.reused} reused)")
    show("  built for", " ".join(build.architectures) or "CPU")


def show(name: str, value: object) -> None:
    print(f"{name + ':':<15}{value}")
