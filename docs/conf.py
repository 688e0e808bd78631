"""Sphinx builds the API reference from the docstrings: `make docs`. A warning is an error."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["LLTM_JIT_AT_IMPORT"] = "0"  # docstrings need no kernels
import lltm_jit
import lltm_jit.ops
from lltm_jit.ops.rnn.layers import LAYERS

project = "lltm_jit"
release = lltm_jit.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"lltm_jit {release}"
html_copy_source = False
html_show_copyright = False
exclude_patterns = ["_build"]
nitpicky = True
# Not part of this reference. No index of torch's is fetched: a build needs no network.
nitpick_ignore_regex = [("py:.*", r"torch\..*"), ("py:class", r"State|Toolchain|Build|os\..*")]
autodoc_typehints = "none"  # docstrings say it in words; signatures stay short
autodoc_member_order = "bysource"
napoleon_custom_sections = ["Note"]


def public_modules() -> Iterator[ModuleType]:
    """Those whose ``__all__`` says what is public."""
    yield lltm_jit
    yield lltm_jit.functional
    for found in pkgutil.iter_modules(lltm_jit.ops.__path__, "lltm_jit.ops."):
        module = importlib.import_module(found.name)
        if hasattr(module, "__all__"):
            yield module


def value_of(name: str) -> Any:
    """The value of a dotted name, or None where it is an attribute of objects."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            value = getattr(value, part, None)
        return value
    return None


def refuse_gaps(app: Any, error: Exception | None) -> None:
    """Fail if a public name is on no page, under its name or another.

    Raises:
        SystemExit: with the names.
    """
    if error is not None:
        return
    documented = [id(value_of(name)) for name in app.env.get_domain("py").objects]
    gaps = [
        f"{module.__name__}.{name}"
        for module in public_modules()
        for name in module.__all__
        if id(getattr(module, name)) not in documented
    ]
    if gaps:
        raise SystemExit(f"docs: not in the reference: {', '.join(gaps)}")


def list_layers(app: Any, page: str, source: list[str]) -> None:
    """Have the page of recurrent layers show all of them."""
    lines = (
        f".. autoclass:: {layer.__name__}(input_size, hidden_size, **options)"
        for layer in LAYERS.values()
    )
    source[0] = re.sub(r"^\.\. layers: .*$", "\n".join(lines), source[0], flags=re.MULTILINE)


def setup(app: Any) -> None:
    app.connect("source-read", list_layers)
    app.connect("build-finished", refuse_gaps)
