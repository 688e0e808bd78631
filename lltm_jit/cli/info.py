"""``info``: what is installed, and where, why and for what each family was built."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from lltm_jit import native
from lltm_jit.jit import detect
from lltm_jit.native import PackageInfo

from . import _families


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _families.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    families = _families.chosen(args.families)
    info = collect(families)
    if args.json:
        print(json.dumps(asdict(info), indent=2, default=str))
        return 0
    tools = info.toolchain
    show("lltm_jit", info.lltm_jit_version)
    show("Python", info.python_version)
    show("torch", f"{tools.torch_version} (CUDA {tools.torch_cuda or 'none'})")
    show("C++ compiler", tools.cxx_version or "not found")
    show("nvcc", f"{tools.nvcc_version} ({tools.cuda_home})" if tools.nvcc else "not found")
    missing = tools.cuda_missing
    show("CUDA kernels", f"no: {missing}" if missing else " ".join(tools.architectures))
    for family in families:
        print()
        show_build(family, info)
    return 0


def collect(families: Sequence[str]) -> PackageInfo:
    """What is installed, and of these families those that are built."""
    tools = detect()
    builds = {family: _families.ready(family, tools) for family in families}
    return PackageInfo(
        **native.installed(tools),
        families={family: build for family, build in builds.items() if build},
    )


def show_build(family: str, info: PackageInfo) -> None:
    build = info.families.get(family)
    if build is None:
        show(family, f"not built yet; {_families.loader(family)} builds it")
        return
    show(family, build.directory)
    show("  key", build.key)
    show("  because", build.reason)
    show(
        "  built in",
        f"{build.seconds:.1f} s ({build.compiled} files compiled, {build.reused} reused)",
    )
    show("  built for", " ".join(build.architectures) or "CPU")


def show(name: str, value: object) -> None:
    print(f"{name + ':':<15}{value}")
