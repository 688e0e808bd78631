"""The machine and the versions that figures belong to."""

import platform
import subprocess
from pathlib import Path

import torch

from lltm_jit import __version__


def header(cuda: bool) -> dict[str, str]:
    """The machine and the versions that figures belong to."""
    facts = {
        "GPU": torch.cuda.get_device_name() if cuda and torch.cuda.is_available() else "",
        "CPU": _processor(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "",
        "lltm_jit": f"{__version__} {_commit()}".strip(),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """The commit of the checkout; empty in an installed copy."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()
