"""Copies of the project with few files to compile, for the commands that do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

# The files of a family without a header of torch's, and of core/: they compile in a second.
SMALL = {
    "{name}/bindings.cpp": """\
#include <Python.h>
#include "core/twice.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(twice(21)); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_{name}() { return PyModule_Create(&module); }
""",
    "core/twice.h": "int twice(int x);\n",
    "core/twice.cpp": '#include "core/twice.h"\nint twice(int x) { return 2 * x; }\n',
}


def copy_with_basic(directory):
    """Copy the project with one family, as it is."""
    _copy(directory, "rnn", "stylegan")
    _name_family(directory, "basic")


def copy_with_small_families(directory):
    """Copy the project with the families `tiny` and `other` alone; an import loads the first."""
    _copy(directory, "rnn", "stylegan", "basic")
    _name_family(directory, "tiny")
    for family in ("tiny", "other"):
        for name, text in SMALL.items():
            path = directory / "kernels" / name.replace("{name}", family)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("{name}", family))


def _copy(directory, *left_out):
    """Copy the project without some folders of kernels."""
    shutil.copytree(
        CHECKOUT / "kernels", directory / "kernels", ignore=shutil.ignore_patterns(*left_out)
    )
    for folder in ("lltm_jit", "tests/ops"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / folder, directory / folder, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(CHECKOUT / name, directory / name)


def _name_family(directory, family):
    """Have an import load a family, and commands mean it by default."""
    for name in ("OWN", "AT_IMPORT"):
        replace(directory / "lltm_jit/native.py", rf"\b{name} = .*?\)", f'{name} = ("{family}",)')


def replace(path, pattern, by):
    """Replace what matches a pattern once in a file."""
    text, count = re.subn(pattern, by, path.read_text())
    assert count == 1
    path.write_text(text)


def environment(directory):
    paths = [str(directory), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


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
