"""Operators that are called while their family is still being built: they wait for it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from op_testing import run_program
from torch._subclasses.fake_tensor import FakeTensorMode

import lltm_jit
from lltm_jit import native
from lltm_jit.jit import BuildError
from lltm_jit.jit.compile import builder
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache

ops = torch.ops.lltm_jit
X = torch.arange(12.0).reshape(3, 4)
Y = torch.ones(3, 4)
EXPECTED = 3 * X - Y


@pytest.fixture
def unloaded(monkeypatch):
    """The package as an import with a cold cache leaves it, with builds that are soon over."""
    for family in native.OWN:
        native.load(family).module.release_ops()
        native._current.pop(family)
        delattr(native, family)
    monkeypatch.setattr(engine, "find", lambda spec: None)
    monkeypatch.delenv("LLTM_JIT_BACKGROUND", raising=False)
    native.start(*native.OWN)
    assert {*native.OWN} <= native._placeholders.keys()
    yield
    for family in native.OWN:
        native.load(family)
    assert native._placeholders.keys().isdisjoint(native.OWN)


def gradient():
    x = X.clone().requires_grad_()
    ops.my_op(x, Y).sum().backward()
    return x.grad


def compiled(function, *args):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")(*args)


def fake():
    with FakeTensorMode() as mode:
        return ops.my_op(mode.from_tensor(X), mode.from_tensor(Y)).shape


def compiled_composite():
    """An operator that has one kernel for all keys, unlike its placeholder."""
    state = torch.zeros(3, 5, requires_grad=True)
    return compiled(ops.lltm_forward, X, torch.zeros(15, 9), None, state, state)[0].shape


def cell_under_autocast():
    state = torch.zeros(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ops.lltm_cell(X, torch.zeros(15, 9), None, state, state)[0].dtype


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: lltm_jit.my_op(X, Y), EXPECTED),
        (lambda: ops.my_op(X, Y), EXPECTED),
        (gradient, torch.full((3, 4), 3.0)),
        (lambda: torch.inference_mode()(ops.my_op)(X, Y), EXPECTED),
        (lambda: compiled(lltm_jit.my_op, X, Y), EXPECTED),
        (lambda: compiled(ops.my_op, X, Y), EXPECTED),
        (lambda: torch.func.vmap(ops.my_op)(X, Y), EXPECTED),
        (lambda: torch.func.jvp(lambda x: ops.my_op(x, Y), (X,), (Y,))[1], 3 * Y),
        (lambda: ops.my_op(X.to("meta"), Y.to("meta")).shape, (3, 4)),
        (fake, (3, 4)),
        (cell_under_autocast, torch.bfloat16),
        (compiled_composite, (3, 5)),
        (lambda: "rnn" in lltm_jit.build_info().families, True),
    ],
    ids=lambda value: None if callable(value) else "",
)
def test_a_first_call_waits(unloaded, call, expected):
    actual = call()
    assert torch.equal(actual, expected) if isinstance(actual, torch.Tensor) else actual == expected


def test_eight_threads_call_at_once(unloaded):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: lltm_jit.my_op(X, Y), range(8)))
    assert all(torch.equal(result, EXPECTED) for result in results)


def test_a_forked_child(unloaded):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if torch.equal(ops.my_op(X, Y), EXPECTED) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def raises(error):
    def call(*_, **__):
        raise error

    return call


def test_a_failed_build_is_raised_and_then_tried_again(unloaded, monkeypatch):
    with monkeypatch.context() as unbuilt:
        unbuilt.setattr(engine, "_find", lambda *_: None)
        unbuilt.setattr(engine, "_find_loaded", lambda *_: None)
        unbuilt.setattr(builder, "build", raises(BuildError("error: of the build")))
        for call in (lltm_jit.my_op, ops.my_op):
            with pytest.raises(BuildError, match="error: of the build"):
                call(X, Y)
    assert torch.equal(lltm_jit.my_op(X, Y), EXPECTED)


def test_a_first_call_that_was_interrupted(unloaded, monkeypatch):
    with monkeypatch.context() as once:
        once.setattr(engine, "_find_loaded", raises(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lltm_jit.my_op(X, Y)
    assert torch.equal(lltm_jit.my_op(X, Y), EXPECTED)


def test_the_import_waits_where_a_setting_says_so(unloaded, monkeypatch):
    native.load("basic").module.release_ops()
    native._current.pop("basic")
    monkeypatch.setenv("LLTM_JIT_BACKGROUND", "0")
    native.start("basic")
    assert "basic" in native._current


PROGRAM = """
import os, sys
import torch  # which may start some of its own
started, loaded = [], []
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)
import lltm_jit
if "LLTM_JIT_AT_IMPORT" in os.environ:
    import lltm_jit.jit, lltm_jit.ops.stylegan
from lltm_jit import native
from lltm_jit.jit.loading import engine
before = sorted(native.builds())
load = engine.load
engine.load = lambda spec, **named: loaded.append(spec.name) or load(spec, **named)
assert not os.listdir(sys.argv[1])
os.environ["TORCH_EXTENSIONS_DIR"] = sys.argv[2]
x = torch.ones(2)
assert torch.ops.lltm_jit.my_op(x, x).tolist() == [2, 2]
assert lltm_jit.sigmoid(0 * x).tolist() == [0.5, 0.5]
print(started, before, loaded, native.wanted())
"""


def printed(empty: Path, **variables: str) -> str:
    """What the program prints in another process."""
    done = run_program(PROGRAM, empty, cache.root(), env={**os.environ, **variables})
    assert done.stderr == ""
    return done.stdout


def test_a_family_comes_with_its_first_call(tmp_path):
    """And with a setting, that of an import, too, which then starts nothing and writes nothing."""
    for family in native.OWN:
        native.load(family)
    assert printed(tmp_path) == "[] ['rnn'] ['basic'] ['basic', 'rnn']\n"
    setting = {"LLTM_JIT_AT_IMPORT": "0", "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    assert printed(tmp_path, **setting) == "[] [] ['basic'] ['basic', 'rnn']\n"


FAMILY = """
#include <Python.h>
#include "core/answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(core_answer()); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "extra", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_extra() { return PyModule_Create(&module); }
"""


def test_another_family_is_built_when_it_is_used(tmp_path, monkeypatch):
    """With the source of core beside the header that it includes, and no other."""
    for name, text in {
        "extra/bindings.cpp": FAMILY,
        "core/answer.h": "long core_answer();\n",
        "core/answer.cpp": '#include "core/answer.h"\nlong core_answer() { return 42; }\n',
        "core/other.cpp": "#error not wanted\n",
    }.items():
        path = tmp_path / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "kernels_directory", lambda: tmp_path / "kernels")
    assert native.families() == ["extra"]
    assert native.extra.answer() == 42
    assert "extra" in lltm_jit.build_info().families
    native._current.pop("extra")
    delattr(native, "extra")
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        native.other  # noqa: B018
