"""``info``: what is installed, and where, why and for what the extension was built."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from lltm_jit import __version__, native
from lltm_jit.jit import engine, prebuilt, toolchain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2, default=str))
        return 0
    tools, build = facts["toolchain"], facts["build"]
    show("lltm_jit", facts["lltm_jit"])
    show("Python", facts["python"])
    show("torch", f"{facts['torch']} (CUDA {facts['torch_cuda'] or 'none'})")
    show("C++ compiler", tools["cxx_version"] or "not found")
    show(
        "nvcc", f"{tools['nvcc_version']} ({tools['cuda_home']})" if tools["nvcc"] else "not found"
    )
    missing = tools["cuda_missing"]
    show("CUDA kernels", f"no: {missing}" if missing else " ".join(tools["architectures"]))
    if build is None:
        show("build", "none yet; `import lltm_jit` makes it")
        return 0
    show("build", build["directory"])
    show("key", build["key"])
    show("built because", build["reason"])
    show(
        "built in",
        f"{build['seconds']:.1f} s ({build['compiled']} files compiled, {build['reused']} reused)",
    )
    show("built for", " ".join(build["architectures"]) or "CPU")
    return 0


def collect() -> dict[str, Any]:
    """All that the command shows; `build` is None when there is none of these sources."""
    tools = toolchain.detect()
    spec = native.package_spec(tools)
    packaged = prebuilt.load(Path(native.__file__).parent, spec, tools)
    build = packaged.info if packaged else engine.inspect(spec, tools)
    return {
        "lltm_jit": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "toolchain": asdict(tools),
        "build": asdict(build) if build else None,
    }


def show(name: str, value: object) -> None:
    print(f"{name + ':':<15}{value}")
