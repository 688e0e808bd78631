"""Sphinx builds the API reference from the docstrings: `make docs`. A warning is an error."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Docstrings need no kernels. Sphinx reads all attributes, and a layer's cell would build some.
os.environ.update(LLTM_JIT_AT_IMPORT="0", LLTM_JIT_DISABLE_JIT="1")
from torch import nn

import lltm_jit
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


def list_layers(app: Any, page: str, source: list[str]) -> None:
    """Have the page of recurrent layers show all of them, first those that torch has, too."""
    layers = sorted(dict.fromkeys(LAYERS.values()), key=lambda each: not hasattr(nn, each.__name__))
    lines = (
        f".. autoclass:: {each.__name__}(input_size, hidden_size, **options)" for each in layers
    )
    source[0] = re.sub(r"^\.\. layers: .*$", "\n".join(lines), source[0], flags=re.MULTILINE)


def setup(app: Any) -> None:
    app.connect("source-read", list_layers)
