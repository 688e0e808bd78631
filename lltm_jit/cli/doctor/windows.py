"""Where Visual Studio is. Its compiler works only after its own script has set the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .finding import Finding

_COMPILERS = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"


def checks() -> dict[str, Callable[[], Finding]]:
    """What ``doctor`` checks first on Windows, which is all that this project knows of it."""
    return {"Visual Studio": visual_studio} if sys.platform == "win32" else {}


def visual_studio() -> Finding:
    vcvars = find_vcvars()
    if vcvars is None:
        return Finding(
            "problem",
            "no Visual Studio with the C++ compiler was found",
            "install the Build Tools for Visual Studio with the workload C++ desktop development",
        )
    if shutil.which("cl") is None:
        return Finding(
            "problem", "cl.exe is not on PATH", f'run "{vcvars}" x64 in this window first'
        )
    return Finding("ok", str(vcvars))


def find_vcvars(program_files: Path | None = None) -> Path | None:
    """vcvarsall.bat of the newest Visual Studio with a C++ compiler, None where there is none.

    Asks vswhere, which every Visual Studio installer since 2017 puts at a fixed place.
    """
    base = program_files or Path(os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)"))
    vswhere = base / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if not vswhere.exists():
        return None
    wanted = ["-latest", "-products", "*", "-requires", _COMPILERS, "-property", "installationPath"]
    done = subprocess.run([vswhere, *wanted], capture_output=True, text=True, errors="replace")
    for line in done.stdout.splitlines():
        vcvars = Path(line.strip()) / "VC" / "Auxiliary" / "Build" / "vcvarsall.bat"
        if vcvars.exists():
            return vcvars
    return None
