"""A Python module in C++ that is as small as can be, and needs no header of torch's."""

# ``value()`` gives VALUE, which a text in front of this one may define.
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
