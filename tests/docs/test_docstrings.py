"""Public names have docstrings that name every argument, and whose examples run."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import lltm_jit
from lltm_jit import ops
from lltm_jit.jit import wheel
from lltm_jit.ops import stylegan2
from lltm_jit.ops.rnn.layers import LAYERS
from lltm_jit.ops.rnn.own_cell import OwnCell
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer
from lltm_jit.ops.stylegan import implementation, resample_modules

ROOT = Path(__file__).parents[2]
MODULES = [lltm_jit, lltm_jit.functional, ops, stylegan2] + [
    importlib.import_module(found.name)
    for found in pkgutil.iter_modules(ops.__path__, "lltm_jit.ops.")
    if not found.name.rpartition(".")[2].startswith("_") and not found.ispkg
]
MORE = [
    implementation,
    wheel.arguments,
    RecurrentLayer,
    OwnCell,
    resample_modules.Filter2d,
    resample_modules.Upsample2d,
    resample_modules.Downsample2d,
]


def public():
    """The functions and classes that modules name in ``__all__``, once each."""
    found = {id(value): value for value in MORE}
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                found[id(value)] = value
    return sorted(found.values(), key=lambda value: f"{value.__module__}.{value.__qualname__}")


def on_pages():
    """What the pages of docs/ show, by the directives of Sphinx's autodoc."""
    found = {id(layer) for layer in LAYERS.values()}  # conf.py puts them on their page
    directive = re.compile(r"^\.\. (\w+):: ([\w.]+).*\n((?:   .*\n)*)", re.MULTILINE)
    for page in (ROOT / "docs").glob("*.rst"):
        for kind, name, options in directive.findall(page.read_text()):
            if kind in ("module", "currentmodule", "automodule"):
                module = importlib.import_module(name)
                names = module.__all__ if ":members:" in options else []
            else:
                names = [name] if kind.startswith("auto") else []
            found.update(id(getattr(module, each)) for each in names)
    return found


def test_every_public_name_is_on_a_page():
    named = [(name, getattr(module, name)) for module in MODULES for name in module.__all__]
    named += [(name_of(value), value) for value in MORE]
    wanted = {id(value): name for name, value in named if not inspect.ismodule(value)}
    assert [wanted[each] for each in wanted.keys() - on_pages()] == []


def name_of(value):
    return f"{value.__module__}.{value.__qualname__}".removeprefix("lltm_jit.")


def methods(value):
    """The public ones of a class of our own, and its `forward`."""
    if not inspect.isclass(value):
        return []
    own = [cls for cls in value.__mro__ if cls.__module__.startswith("lltm_jit")]
    functions = [each for cls in own for each in vars(cls).values() if inspect.isfunction(each)]
    names = {each.__name__ for each in functions if each.__module__.startswith("lltm_jit")}
    return [getattr(value, name) for name in sorted(names) if not name.startswith("_")]


def parameters(value):
    """Those that a caller gives."""
    signature = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    return [name for name in signature.parameters if name not in ("self", "args", "kwargs")]


@pytest.mark.parametrize("value", public(), ids=name_of)
def test_arguments_and_results_are_documented(value):
    text = inspect.getdoc(value)
    assert text
    arguments = "".join(re.findall(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL))
    named = re.findall(r"^ +([\w, ]+):", arguments, re.MULTILINE)
    elsewhere = re.search(r"rguments(, parameters and call)? are\s+those of", text)
    is_record = inspect.isclass(value) and not issubclass(value, torch.nn.Module)
    if not (elsewhere or is_record or "without parameters" in text):
        known = {name.strip() for names in named for name in names.split(",")}
        assert set(parameters(value)) <= known
    if inspect.isfunction(value) and value.__annotations__.get("return") not in (None, "None"):
        has_result = re.search(r"^Returns:|^Return |\bReturn\b|``with`` block", text, re.MULTILINE)
        assert has_result
    for method in methods(value):
        assert inspect.getdoc(method), f"{method.__qualname__} has no docstring"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, marks=pytest.mark.slow) if value is lltm_jit.recurrent_cell else value
        for value in public()
    ],
    ids=name_of,
)
def test_examples_run(value, monkeypatch):
    monkeypatch.chdir(ROOT)  # where they find a header
    names = {**vars(ops), **vars(inspect.getmodule(value)), "torch": torch, "lltm_jit": lltm_jit}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for test in finder.find(value, name_of(value), globs=names):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_that_examples_are_found():
    """A function without an example is one that compiles, watches or describes."""
    shown = [name_of(value) for value in public() if ">>> " in (inspect.getdoc(value) or "")]
    assert len(shown) > 30
