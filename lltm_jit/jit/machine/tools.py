"""Asks the tools of a build for their versions, and says how to get a tool that is missing."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..user import settings
from ..user.errors import ToolchainError

# Tools answer in English, and without colours, whatever the user's own settings are.
SPEAK_PLAINLY = {"LC_ALL": "C.UTF-8", "LANGUAGE": "", "NO_COLOR": "1", "GCC_COLORS": ""}
SPEAK_PLAINLY |= dict.fromkeys(("CLICOLOR_FORCE", "FORCE_COLOR"), "0")
_CPUS = Path("/proc/cpuinfo")
_INSTALL = "(Debian and Ubuntu: `apt-get install g++`)"
REPAIR = f"repair it, or set CXX to a compiler that works {_INSTALL}"


def probe_cxx(command: list[str]) -> dict[str, Any]:
    status, said = asked([*command, "--version"])
    if status:
        said = ""
    family = "clang" if "clang" in said else "gcc" if "Free Software Foundation" in said else ""
    # A script is not the compiler: watch the compiler proper that it starts, too.
    proper = output_of([*command, "-print-prog-name=cc1plus"]).strip() if family == "gcc" else ""
    watch = [proper] if os.path.isabs(proper) else []
    help = output_of([*command, "-Wl,--help"]) if said else ""
    return {
        "version": said.partition("\n")[0].rstrip(),
        "family": family,
        "tells_link": "--dependency-file" in help,
        "watch": watch,
    }


def probe_nvcc(command: list[str]) -> dict[str, Any]:
    (path,) = command
    version = re.search(r"\bV(\d+\.\d+\.\d+)", output_of([path, "--version"]))
    # nvcc on PATH may be a wrapper script or a link; only nvcc itself knows its root.
    top = re.search(
        r"^#\$ TOP=(.+)$", output_of([path, "--dryrun", "-x", "cu", os.devnull]), re.MULTILINE
    )
    root = os.path.normpath(top[1].strip() if top else f"{os.path.realpath(path)}/../..")
    supported = re.findall(r"compute_(\d+)(\d)\b", output_of([path, "--list-gpu-arch"]))
    return {
        "version": version.group(1) if version else "",
        "root": root,
        "newest": max(((int(major), int(minor)) for major, minor in supported), default=(99, 0)),
        "watch": [os.path.join(root, "bin", "nvcc")],
    }


def probe_nvrtc(command: list[str]) -> dict[str, Any]:
    """The facts of the library at a path; the PTX that it makes names its whole version."""
    from . import nvrtc  # most builds do not need it

    (path,) = command
    found: dict[str, Any] = {"version": "", "newest": (0, 0), "watch": []}
    with suppress(OSError, ToolchainError):  # no library, or one of another processor
        newest = max(nvrtc.architectures(path))
        options = [f"-arch=compute_{newest[0]}{newest[1]}"]
        told = nvrtc.compile(path, "__global__ void trial() {}", "trial.cu", options)
        version = re.search(rb"\bV(\d+\.\d+\.\d+)", told.code)
        found |= {"version": version[1].decode() if version else "", "newest": newest}
    return found


def why_no_cxx(command: list[str]) -> tuple[str, str]:
    """What is wrong with a C++ compiler that is missing (no words) or broken, and the cure."""
    given, usual = settings.text("CXX"), settings.SETTINGS["CXX"].default
    if command:
        status, said = asked([*command, "--version"])
        told = f": {said.splitlines()[0]}" if said.strip() else ", and prints nothing"
        text = f"`{shlex.join(command)} --version` ends with status {status}{told}"
        return text, REPAIR
    if given == usual:
        return "no C++ compiler was found", f"install one {_INSTALL}, or set CXX to yours"
    cure = f"unset CXX, or set it to a compiler that exists {_INSTALL}"
    return f"CXX is set to {given!r}, which is not found", cure


def find_ninja() -> Path:
    """ninja from its wheel, else from PATH."""
    found = None
    with suppress(ImportError):
        import ninja

        found = shutil.which("ninja", path=ninja.BIN_DIR)
    if not (found := found or shutil.which("ninja")):
        raise ToolchainError("ninja was not found; run `python -m pip install ninja`")
    return Path(found)


def cuda_cure() -> str:
    """What to do if CUDA sources cannot be built."""
    if torch.version.cuda is None:
        return "install a torch with CUDA (pytorch.org has the command)"
    return f"install the CUDA toolkit {torch.version.cuda}, and set CUDA_HOME to it"


def nvrtc_cure() -> str:
    """What to do if NVRTC was not found."""
    if torch.version.cuda is None:
        return cuda_cure()
    major = torch.version.cuda.partition(".")[0]
    package = "nvidia-cuda-nvrtc" + ("-cu12" if major == "12" else "")
    wanted = shlex.quote(f"{package}=={major}.*")
    return f"run `python -m pip install {wanted}`, or set CUDA_HOME to the toolkit"


def output_of(command: list[str]) -> str:
    """What a tool prints to both streams; empty if it cannot be run or hangs."""
    return asked(command)[1]


def asked(command: list[str], directory: Path | None = None) -> tuple[int, str]:
    """A tool's exit status, and the result of :func:`output_of`."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **SPEAK_PLAINLY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 127, ""
    return done.returncode, done.stdout.decode("utf-8", "surrogateescape")


def processor() -> str:
    """This processor, as compilers see it with ``-march=native``."""
    try:
        first = _CPUS.read_text("utf-8").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    asked = r"(?:vendor_id|cpu family|model|flags|CPU \w+|Features|isa)\s*:.*"
    found = "\n".join(re.findall(rf"^{asked}$", first, re.MULTILINE))
    name = re.search(r"^model name\s*: (.*)", first, re.MULTILINE)
    digest = hashlib.sha256(found.encode()).hexdigest()[:8]
    return f"{name[1] if name else platform.machine()} ({digest})"
