"""Finds how the package was started, and whether torch can be imported. It is imported first."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

# `python -m lltm_jit` imports the package before it runs the command, and so does `python -m
# benchmarks` in a checkout. sys.argv[0] is "-m" until the module to run is found, and the arguments
# follow it. pip makes the script `lltm-jit` from [project.scripts].
_BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")
as_script = bool(sys.argv) and Path(sys.argv[0]).stem == "lltm-jit"
as_command = as_script or (
    sys.argv[:1] == ["-m"]
    and (
        sys.orig_argv[-len(sys.argv)] == "lltm_jit"
        or _BENCHMARKS in getattr(sys.modules.get("benchmarks"), "__path__", ())
    )
)

if as_command:
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # NumPy need not be installed

try:
    import torch  # noqa: F401
except (ImportError, OSError) as error:
    text = f"lltm_jit needs torch, which cannot be imported: {error}"
    cure = f"run `{sys.executable} -m pip install --force-reinstall torch`"
    if as_command and {"doctor", "--json"} <= set(sys.orig_argv):
        finding = {"status": "problem", "text": text, "cure": cure}  # as the command prints it
        print(json.dumps({"torch": finding}, indent=2))
        sys.exit(1)
    if as_command:
        sys.exit(f"error: {text}\n  -> {cure}")
    raise ImportError(f"{text}\n  -> {cure}") from error
