"""The magics of ``%load_ext lltm_jit``.

    %lltm_reload             after an edit of the package's kernels, put the new ones into force
    %lltm_reload NAME        the same for the module in the variable NAME
    %%cpp NAME [FUNCTION..]  build the cell and put the module into the variable NAME
    %%cuda NAME [FUNCTION..] the same, with nvcc

The functions named are bound; without names, every function that is defined at the start of a line,
not static, no template, and mentions a Tensor; what `#if 0` takes out is out, other conditions are
not looked at. A cell with a PYBIND11_MODULE of its own is left as it is. Line numbers in errors are
those of the cell, in which the magic stands on line 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import torch_api
from .errors import LltmJitError
from .registrations import without_comments
from .reload import Reload, reload_module

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_FUNCTION = re.compile(
    r"^(?P<signature>(?!static\b|template\b|inline\b|else\b|__)[A-Za-z_][\w:<>,&* \t]*?[\s&*]"
    r"(?P<name>\w+)\s*\([^;{}]*\)(?:\s*noexcept)?(?:\s*->[\w:<>,&* \t]+)?)\s*\{",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*$")  # of what follows, on the lines before it


def register(ipython: InteractiveShell, reload_package: Callable[[], Reload]) -> None:
    """Define the magics in a shell."""

    def lltm_reload(line: str) -> None:
        name = line.strip()
        module = ipython.user_ns.get(name) if name else None
        if name and not isinstance(module, ModuleType):
            raise _usage_error(f"{name} is not a variable with a module")
        try:
            done = reload_module(module) if module else reload_package()
        except LltmJitError as error:
            raise _usage_error(str(error)) from error
        if module:
            ipython.user_ns[name] = done.build.module
        print(f"{', '.join(done.changed) or 'nothing changed'} ({done.seconds:.2f} s)")

    def cpp(line: str, cell: str) -> None:
        ipython.user_ns.update(_build_cell("cpp", line, cell))

    def cuda(line: str, cell: str) -> None:
        ipython.user_ns.update(_build_cell("cuda", line, cell))

    ipython.register_magic_function(lltm_reload, "line")
    ipython.register_magic_function(cpp, "cell")
    ipython.register_magic_function(cuda, "cell")


def functions_of(cell: str) -> dict[str, str]:
    """The functions of a cell that can be bound: name to declaration."""
    text = _without_if_0(without_comments(cell))
    return {
        match["name"]: match["signature"].rstrip() + ";"
        for match in _FUNCTION.finditer(text)
        if "Tensor" in match["signature"] and not _TEMPLATE.search(text[: match.start()])
    }


def _without_if_0(text: str) -> str:
    """C++ without what stands between ``#if 0`` and its ``#else``, ``#elif`` or ``#endif``."""
    kept, depth = [], 0
    for line in text.splitlines(keepends=True):
        directive = re.match(r"\s*#\s*(if|else|elif|endif)", line)
        word = directive[1] if directive else ""
        if depth == 0:
            kept.append(line)
            depth = int(re.match(r"\s*#\s*if\s+0\s*$", line) is not None)
        elif word == "if":  # and ifdef, ifndef
            depth += 1
        elif word == "endif" or (word and depth == 1):
            depth -= 1
    return "".join(kept)


def _build_cell(kind: str, line: str, cell: str) -> dict[str, Any]:
    name, *functions = line.split() or [""]
    if not name.isidentifier():
        raise _usage_error(f"expected %%{kind} NAME [FUNCTION..], but got %%{kind} {line.strip()}")
    declared = functions_of(cell)
    listing = [(f"cell {name}", f"\n{cell}")]  # the magic itself stands on line 1
    bound = None if "PYBIND11_MODULE" in cell else functions or list(declared)
    if not bound and kind == "cuda":
        raise _usage_error("no function of the cell mentions a Tensor; name those to bind")
    try:
        module = torch_api.load_listings(
            name,
            cpp=listing if kind == "cpp" else [("declarations", _declarations(declared, bound))],
            cuda=listing if kind == "cuda" else [],
            functions=bound,
        )
    except LltmJitError as error:
        raise _usage_error(str(error)) from error
    return {name: module}


def _declarations(declared: dict[str, str], bound: list[str] | None) -> str:
    return "\n".join(declared[name] for name in bound or () if name in declared)


def _usage_error(message: str) -> Exception:
    from IPython.core.error import UsageError  # shown without a traceback

    return UsageError(message)
