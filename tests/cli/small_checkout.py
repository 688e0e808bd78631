"""Copies of the project with few files to compile, for the commands that do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from small_files import MODULE, write

CHECKOUT = Path(__file__).parents[2]
PYTEST = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]

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
            write(directory / "kernels" / name.replace("{name}", family), text)
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


def passes_its_tests(project):
    """Run the tests of a project, with the package's own build."""
    return " passed" in run_in(CHECKOUT, *PYTEST, project).stdout


def environment(*directories):
    """The environment in which Python finds the packages in directories first."""
    paths = [*map(str, directories), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_in(directory, *words, cwd=None, code=0, **more):
    """Run Python with the package in a directory, which ends with this code."""
    env = {**environment(directory), **more}
    how = {"capture_output": True, "text": True, "timeout": 500}
    done = subprocess.run([sys.executable, *words], cwd=cwd or directory, env=env, **how)
    assert done.returncode == code, done.stdout + done.stderr
    return done
