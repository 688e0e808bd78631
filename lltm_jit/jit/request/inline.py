"""Sources that are given as strings: how ``load_inline`` makes them, and how they become files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_IMPLICIT_HEADERS = {
    "main.cpp": "#include <torch/extension.h>\n",
    "cuda.cu": "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n",
}


def strings(sources: str | Sequence[str] | None) -> list[str]:
    return [sources] if isinstance(sources, str) else list(sources or ())


def unit(file: str, listings: list[tuple[str, str]], no_implicit_headers: bool) -> str:
    """One source file from several strings, each under its own name and line numbers."""
    pieces = [f'#line 1 "{name}"\n{text}\n' for name, text in listings]
    return ("" if no_implicit_headers else _IMPLICIT_HEADERS[file]) + "".join(pieces)


def bindings(functions: Any, with_pytorch_error_handling: bool) -> str:
    """The module of functions; empty if there are none to bind."""
    if functions is None:
        return ""
    if isinstance(functions, str):
        functions = [functions]
    if not isinstance(functions, Mapping):
        names = functions if isinstance(functions, Sequence) else [functions]
        if not all(isinstance(function, str) for function in names):
            raise ValueError(f"expected functions to be names, but got {functions!r}")
        functions = {function: function for function in functions}
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    last = {name: name if "<" in name else name.rpartition("::")[2] for name in functions}
    found = Counter(last.values())
    for function, docstring in functions.items():
        called = function
        if with_pytorch_error_handling:
            called = f"torch::wrap_pybind_function({function})"
        text = json.dumps("" if docstring is None else str(docstring), ensure_ascii=False)
        # torch's name, and without its namespaces the one that Python can write.
        short = [last[function]] if found[last[function]] == 1 else []
        bound = dict.fromkeys([function, *short])
        lines += [f'  m.def("{name}", {called}, {text});' for name in bound]
    return "\n".join([*lines, "}"])
