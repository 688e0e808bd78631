"""``info``: what is installed, and where, why and for what the extension was built."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from lltm_jit import native
from lltm_jit.jit import engine, toolchain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2, default=str))
        return 0
    tools = facts["toolchain"]
    show("lltm_jit", facts["lltm_jit_version"])
    show("Python", facts["python_version"])
    show("torch", f"{tools['torch_version']} (CUDA {tools['torch_cuda'] or 'none'})")
    show("C++ compiler", tools["cxx_version"] or "not found")
    show(
        "nvcc", f"{tools['nvcc_version']} ({tools['cuda_home']})" if tools["nvcc"] else "not found"
    )
    missing = tools["cuda_missing"]
    show("CUDA kernels", f"no: {missing}" if missing else " ".join(tools["architectures"]))
    if "key" not in facts:
        show("build", "none yet; `import lltm_jit` makes it")
        return 0
    show("build", facts["directory"])
    show("key", facts["key"])
    show("built because", facts["reason"])
    show(
        "built in",
        f"{facts['seconds']:.1f} s ({facts['compiled']} files compiled, {facts['reused']} reused)",
    )
    show("built for", " ".join(facts["architectures"]) or "CPU")
    return 0


def collect() -> dict[str, Any]:
    """The entries of a `PackageInfo`; of a build only where there is one of these sources."""
    tools = toolchain.detect()
    spec = native.package_spec(tools)
    packaged = native.packaged(spec, tools)
    build = packaged.info if packaged else engine.inspect(spec, tools)
    facts = native.installed(tools)
    if build:
        return asdict(native.PackageInfo(**vars(build), **facts))
    return {**facts, "toolchain": asdict(tools)}


def show(name: str, value: object) -> None:
    print(f"{name + ':':<15}{value}")
