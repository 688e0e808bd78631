"""A copy of the project with one operator, for the commands that compile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def copy_to(directory):
    """Copy the project with `my_op` as its only operator: few files to compile."""
    ignored = shutil.ignore_patterns("__pycache__", "lltm", "sigmoid")
    shutil.copytree(CHECKOUT / "kernels", directory / "kernels", ignore=ignored)
    shutil.copytree(CHECKOUT / "lltm_jit", directory / "lltm_jit")
    shutil.copytree(CHECKOUT / "tests" / "ops", directory / "tests" / "ops")
    bindings = directory / "kernels" / "bindings.cpp"
    lines = bindings.read_text().splitlines(keepends=True)
    others = [line for line in lines if line.strip().startswith(("OP(lltm)", "OP(sigmoid)"))]
    text = "".join(line for line in lines if line not in others)
    bindings.write_text(text.replace("OP(my_op)                      \\\n", "OP(my_op)\n"))


def environment(directory):
    return {**os.environ, "PYTHONPATH": str(directory)}


def run_in(directory, *words):
    """Run Python with the copy's own package."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=500,
    )
