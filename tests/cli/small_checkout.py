"""Copies of the project with few files to compile, for the commands that do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from small_module import MODULE

CHECKOUT = Path(__file__).parents[2]

# The files of a family without a header of torch's, and of core/: they compile in a second.
SMALL = {
    "{name}/bindings.cpp": f'#include "core/twice.h"\n#define VALUE twice(21)\n{MODULE}',
    "core/twice.h": "int twice(int x);\n",
    "core/twice.cpp": '#include "core/twice.h"\nint twice(int x) { return 2 * x; }\n',
}


def copy_with_basic(directory):
    """Copy the project with one family, as it is."""
    return _copy(directory, "basic", "rnn", "stylegan")


def copy_with_small_families(directory):
    """Copy the project with the families `tiny` and `other` alone; an import loads the first."""
    _copy(directory, "tiny", "rnn", "stylegan", "basic")
    for family in ("tiny", "other"):
        for name, text in SMALL.items():
            path = directory / "kernels" / name.replace("{name}", family)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return directory


def _copy(directory, family, *left_out):
    """Copy the project without some families; an import loads the one that commands mean."""
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("kernels", "lltm_jit", "tests/ops"):
        without = shutil.ignore_patterns(*left_out) if folder == "kernels" else ignored
        shutil.copytree(CHECKOUT / folder, directory / folder, ignore=without)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(CHECKOUT / name, directory / name)
    names = directory / "lltm_jit" / "native.py"
    text = re.sub(r"\b(OWN|AT_IMPORT) = .*?\)", rf'\1 = ("{family}",)', names.read_text())
    assert text.count(f'= ("{family}",)') == 2
    names.write_text(text)
    return directory


def script(path, text):
    """Write a shell's program."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def passes_its_tests(project):
    """Run the tests of a project, with the package's own build."""
    done = run_in(CHECKOUT, "-m", "pytest", "-q", "-p", "no:cacheprovider", project)
    assert done.returncode == 0, done.stdout + done.stderr
    return " passed" in done.stdout


def environment(*directories):
    """The environment in which Python finds the packages in directories first."""
    paths = [*map(str, directories), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_in(directory, *words, cwd=None, **more):
    """Run Python with the package in a directory."""
    env = {**environment(directory), **more}
    how = {"capture_output": True, "text": True, "timeout": 500}
    return subprocess.run([sys.executable, *words], cwd=cwd or directory, env=env, **how)
