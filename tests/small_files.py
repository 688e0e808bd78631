"""What tests write: files, programs of the shell, and a Python module in C++."""

from pathlib import Path


def write(path: Path | str, text: str = "") -> Path:
    """Write a file, in a folder that need not be there."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="")
    return path


def script(path: Path, text: str) -> Path:
    """Write a program of the shell."""
    write(path, f"#!/bin/sh\n{text}\n").chmod(0o755)
    return path


# As small as can be, and without torch's headers. ``value()`` gives VALUE, which a text in front of
# this one may define.
MODULE = """
#include <Python.h>
#ifndef VALUE
#define VALUE 1
#endif
#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
