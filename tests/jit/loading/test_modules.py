"""The modules that load gives: which one, imported by name, pickled, reloaded, in threads."""

import importlib
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from harness import text_of

import lltm_jit
from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import build as builds
from lltm_jit.jit.loading import engine, reload
from lltm_jit.jit.store import cache


@pytest.fixture
def imported():
    """The modules as they were, afterwards."""
    before = dict(sys.modules)
    yield sys.modules
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def test_a_loaded_module_can_be_imported(bench, imported):
    source = bench.write("two/two.cpp", "first\n")
    module = torch_api.load("basic", source)
    assert module.__name__ == "basic"
    assert importlib.import_module("basic") is module
    before = module.__spec__.name
    bench.write("two/two.cpp", "second\n")
    assert lltm_jit.reload(module) is module
    assert module.__spec__.name != before  # by which pybind11 tells modules apart
    assert importlib.import_module("basic") is module
    assert torch_api.load_inline("basic", "PyInit_basic") is importlib.import_module("basic")


def test_a_name_that_is_anothers_stays_his(bench, imported, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "_C", os)  # imported already
    assert torch_api.load("_C", bench.sources / "two/two.cpp") is not os
    assert importlib.import_module("_C") is os
    (tmp_path / "rnn.py").write_text("VALUE = 1\n")  # or not yet
    (tmp_path / "basic").mkdir()  # which is a package too, but has nothing in it
    sys.path.insert(0, str(tmp_path))  # a list of the bench
    torch_api.load("rnn", bench.sources / "two/two.cpp")
    assert importlib.import_module("rnn").VALUE == 1
    module = torch_api.load("basic", bench.sources / "two/two.cpp")
    assert importlib.import_module("basic") is module


CLASS = """
#include <Python.h>
#include "value.h"
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, nullptr}, {}};
static PyType_Slot slots_of_thing[] = {{Py_tp_methods, methods}, {0, nullptr}};
static PyType_Spec thing = {"Thing", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots_of_thing};
static int fill(PyObject* module) {
  PyObject* type = PyType_FromSpec(&thing);  // as pybind11 does it
  PyObject_SetAttrString(type, "__module__", PyObject_GetAttrString(module, "__name__"));
  PyModule_AddIntConstant(module, NAME, VALUE);
  PyModule_AddObject(module, "value", PyCFunction_New(methods, nullptr));
  return PyModule_AddObject(module, "Thing", type);
}
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void*)fill}, {0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "things", nullptr, 0, nullptr, slots};
PyMODINIT_FUNC PyInit_things() { return PyModuleDef_Init(&definition); }
"""


def test_a_reload_fills_the_module_anew_and_leaves_what_it_gave(real, imported, monkeypatch):
    """And swaps the operators that the modules may have."""
    swapped = []
    monkeypatch.setattr(
        reload, "swap_ops", lambda old, new: swapped.append((old, old.value(), new.value()))
    )
    real.write("value.h", '#define VALUE 1\n#define NAME "first"\n')
    module = torch_api.load("things", real.write("things.cpp", CLASS))
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)
    function, thing = module.value, module.Thing()
    module.mine = "kept"
    real.write("value.h", '#define VALUE 2\n#define NAME "second"\n')
    assert lltm_jit.reload(module) is module is sys.modules["things"]
    assert swapped == [(module, 1, 2)]
    assert (module.value(), module.Thing().value(), module.second, module.mine) == (2, 2, 2, "kept")
    assert not hasattr(module, "first")
    assert (function(), thing.value(), type(thing)().value()) == (1, 1, 1)
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)


def test_a_reload_takes_what_was_given(bench, monkeypatch):
    source = bench.write("one/one.cpp", '#include "shared.h"\none\n')
    monkeypatch.chdir(bench.sources)
    flags, include_paths = ["-DA"], ["core"]
    arguments = {"extra_cflags": flags, "extra_include_paths": include_paths}
    module = torch_api.load("_C", [source], **arguments, build_directory="builds")
    monkeypatch.chdir(bench.directory)
    flags.append("-DB")
    include_paths.clear()
    assert reload.reload_module(module).changed == ()
    bench.write("one/one.cpp", '#include "shared.h"\nuno\n')
    assert Path(lltm_jit.reload(module).__file__).is_relative_to(bench.sources / "builds")


def test_reload_of_a_module(bench):
    module = torch_api.load("_C", bench.sources)
    assert reload.reload_module(module).changed == ()
    assert "compile two.cpp" in bench.counts
    bench.write("two/two.cpp", "deux\n")
    done = reload.reload_module(module)
    assert bench.counts == ["compile two.cpp", "link"]
    assert done.changed == ("kernels/two/two.cpp changed",)
    assert text_of(module).endswith("deux")
    assert torch_api.load("_C", bench.sources) is module
    bench.write("two/two.cpp", "//! error broken\n")
    with pytest.raises(jit.BuildError, match="error: broken"):
        lltm_jit.reload(module)
    assert text_of(module).endswith("deux")


def test_reload_of_a_stranger(bench):
    told = r"was not loaded by lltm_jit\.load as a mod"
    for ask in (lltm_jit.reload, lltm_jit.build_info, lltm_jit.watch):
        for stranger in (os, "a path"):
            with pytest.raises(jit.LltmJitError, match=told):
                ask(stranger)


def test_operators_that_torch_refuses_leave_the_old_ones_in_force():
    calls, refused = [], RuntimeError("the schemas differ\n  expected: f(Tensor x)")
    old = SimpleNamespace(release_ops=lambda: calls.append("release old"))
    new = SimpleNamespace(register_ops=Mock(side_effect=refused), __file__="/cache/_C.so")
    with pytest.raises(jit.BuildError) as caught:
        builds.swap_ops(old, new)
    assert calls == []
    new.register_ops = lambda: calls.append("register new")
    builds.swap_ops(old, new)
    assert calls == ["register new", "release old"]
    assert str(caught.value).splitlines() == [
        "error: the operators of the built library cannot be registered: the schemas differ",
        "  expected: f(Tensor x)",
        "   = make each schema match the C++ function that implements it",
        "   = /cache/_C.so",
    ]
    assert caught.value.__cause__ is refused


@pytest.fixture
def edited(bench):
    """Load the sources with another text in them."""

    def load(text: str):
        bench.write("two/two.cpp", f"{text}\n")
        return torch_api.load("_C", bench.sources)

    return load


def test_load_gives_what_it_gave_before_also_after_a_reload_of_another(edited):
    first, second = edited("one"), edited("two")
    assert reload.reload_module(first).build is reload.given(second)
    assert edited("two") is second
    third = edited("one")  # the build's own module shows the other one
    assert third not in (first, second)
    assert [text_of(module)[-3:] for module in (first, second, third)] == ["two", "two", "one"]
    assert lltm_jit.reload(first) is first
    assert edited("one") is third
    assert lltm_jit.build_info(first) == lltm_jit.build_info(third)
    assert first.__file__ == third.__file__


def test_two_folders_of_equal_content_are_two_modules(bench):
    """Each has a library, which may name its folder by __FILE__, and a reload of its own."""
    sources = [bench.write(f"{folder}/same.cpp", "same") for folder in ("first", "second")]
    modules = [torch_api.load("_C", source) for source in sources]
    assert bench.counts == ["compile same.cpp", "compile same.cpp", "link", "link"]
    sources[0].write_text("edited")
    reload.reload_module(modules[1])
    assert [*map(text_of, modules)] == ["same", "same"]
    reload.reload_module(modules[0])
    assert [*map(text_of, modules)] == ["edited", "same"]
    sources[1].write_text("edited")
    reload.reload_module(modules[1])
    assert modules[0] is not modules[1]


def at_once(call) -> set:
    """What a call gives in several threads."""
    barrier = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        return set(pool.map(lambda _: (barrier.wait(), call())[1], range(4)))


def test_threads_get_one_module(bench, edited):
    first = edited("one")
    edited("two")
    reload.reload_module(first)
    bench.write("two/two.cpp", "one\n")
    assert len(at_once(lambda: torch_api.load("_C", bench.sources))) == 1


def test_a_packaged_library_is_imported_once(bench, monkeypatch):
    place = bench.directory / cache.WHEEL_FOLDER
    engine.package(bench.spec(), place)
    imported, load = [], engine.import_library
    monkeypatch.setattr(
        engine, "import_library", lambda *each: imported.append(each) or load(*each)
    )
    loaded = at_once(bench.load)
    assert len(loaded) == len(imported) == 1
    assert loaded.pop().info.directory == place
