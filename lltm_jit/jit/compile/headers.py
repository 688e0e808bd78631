"""Narrow headers: the parts of ``torch/extension.h`` that a source needs, to compile it faster.

torch's large headers spend most of their compile time on names that a source does not use: 1,300
operators, ``torch::nn``, and pybind11 where nothing is bound. Narrow headers have the same names as
the large ones, and their folder is searched first. They include what the text of a source names,
with the lines of the installed torch. A source that does not compile with them gets the full
headers (see ``launcher.py``), and so does a source that would compile but mean something else.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from ..request import texts
from ..request.request import Request
from ..store import cache, files

_INCLUDE = os.path.join(os.path.dirname(torch.__file__), "include")
_API = os.path.join(_INCLUDE, "torch", "csrc", "api", "include")
_ATEN, _TYPES, _EXTENSION = "ATen/ATen.h", "torch/types.h", "torch/extension.h"
_LARGE = (_EXTENSION, "torch/all.h", "torch/torch.h", _TYPES, _ATEN)
_KNOWN = "extension|all|torch|types|version|library|custom_class"  # headers of the folder torch/
_INCLUDES_LARGE = re.compile(rf'#[ \t]*(?:include|import)[ \t]*[<"](?:{"|".join(_LARGE)})[>"]')

# The base of all narrow headers, which every source gets. It takes a second to compile.
_BASE = """
    ATen/core/Tensor.h ATen/Dispatch.h ATen/TensorOperators.h ATen/core/Formatting.h
    ATen/core/grad_mode.h c10/core/InferenceMode.h c10/util/Exception.h c10/util/irange.h
    torch/version.h
    algorithm array bitset chrono cmath condition_variable cstdint cstring deque forward_list
    functional iomanip iostream limits list map memory mutex numeric optional queue set sstream
    stack stdexcept string thread tuple unordered_map unordered_set utility variant vector
"""
# Words of a source, and the headers that declare them.
_NAMED = {
    r"indexing|Slice|TensorIndex|Ellipsis|\bNone\b": "ATen/TensorIndexing.h",
    r"DeviceGuard|\bdevice_of\b": "ATen/DeviceGuard.h",
    r"Context\b|CPUGenerator|manual_seed": "ATen/Context.h",
    r"TensorArg|CheckedFrom": "ATen/TensorUtils.h",
    r"parallel_|_num_threads|in_parallel": "ATen/Parallel.h",
    r"scalar_to_tensor|wrapped_scalar": "ATen/ScalarOps.h",
    r"[Gg]eometry": "ATen/TensorGeometry.h",
    r"TORCH_LIBRARY|IValue|\bLibrary\b|\bclass_|\bList\b|\bDict\b|CustomClass": (
        "torch/library.h torch/custom_class.h"
    ),
    r"autograd": "torch/autograd.h",
}
_BINDS = r"PYBIND11|\bpy(?:bind11)?::|wrap_pybind_function|\bPy[A-Z_]\w*"
_CLASSES = r"\b(?:class_|enum_)\s*<"
_BINDING = "torch/csrc/Exceptions.h torch/csrc/utils/pybind.h"

# Words that need the full headers, and why.
_FULL = {
    r"\brequires_grad\s*\(\s*[^)\s]|(?:torch|at)::requires_grad\b": (
        "torch's factories take options with requires_grad, and ATen's refuse them"
    ),
    r"(?:torch|at)::tensor\b|using\s+namespace\s+torch\b(?s:.*)\btensor\s*\(": (
        "torch::tensor chooses another dtype than at::tensor"
    ),
    r"torch::(?:nn|optim|data|jit|serialize|fft|linalg|special|nested|sparse|mps|xpu|cuda)\b": (
        "only the full headers have this part of torch"
    ),
    r"\bat::native\b|\bTHP\w+|torch::python\b": "only the full headers have this part of torch",
    rf'#[ \t]*(?:include|import)[ \t]*[<"]torch/(?!(?:{_KNOWN})\.h|headeronly/)': (
        "it includes a header of torch that may expect the full ones"
    ),
    r"#[ \t]*(?:el)?if.*\b__has_(?:include|embed)": "it asks which headers there are",
}
# Macros of Python, pybind11 and torch, except torch's version: narrow headers have that, too.
_MACRO = re.compile(
    r"\b(?:HAVE_|SIZEOF_|PY|Py|TORCH_(?!VERSION|EXTENSION_NAME)|AT_|C10_|CAFFE|THP)\w+"
)
_ATTRIBUTES = "pybind11/attr.h"
_NAME = re.compile(r"[A-Za-z_]\w+")
# What torch/types.h itself declares.
_BODY = re.compile(r"\nnamespace torch \{.*\n\} // namespace torch\n", re.DOTALL)
# Includes that an operator's header does not need; they take half of a small source's time.
_UNUSED = re.compile(r"#include <ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode)\.h>\n")


class Headers(NamedTuple):
    """The headers that a source gets in front of torch's; ``told`` says in words which, and why.

    ``digest`` is that of the files, and empty if there are none; ``given_up`` says that the source
    does not compile with them.
    """

    told: str
    files: dict[str, str] = {}  # noqa: RUF012 - nobody changes a default
    digest: str = ""
    given_up: bool = False

    @property
    def folder(self) -> str:
        """The name of their folder, which is in the request's work folder."""
        return f"narrow-{self.digest}"

    def write(self, work: Path) -> None:
        """Write them into the folder where the request is compiled."""
        parents = {str(parent) for name in self.files for parent in Path(name).parents}
        for folder in sorted(parents):
            cache.make_directory(work / self.folder / folder)
        for name, text in self.files.items():
            path = work / self.folder / name
            path.write_text(text, "utf-8")
            cache.set_mode(path)


def of(request: Request, given_up: Collection[str]) -> dict[str, Headers]:
    """The headers of each object, without the objects for which torch's own are used as they are.

    ``given_up`` are the objects that did not compile with narrow headers in the last build.
    """
    objects = request.objects.items()
    found = {name: of_source(request, source, name in given_up) for name, source in objects}
    return {name: headers for name, headers in found.items() if headers}


def of_source(request: Request, source: str, given_up: bool) -> Headers | None:
    """The headers for a source; None if torch's own are used as they are."""
    if request.spec.ours:  # our own sources include what they need
        return None
    closure = files.closure([request.path_of(source)], request.searched)
    own = map(texts.read, filter(request.is_own, closure))
    text = texts.without_comments("\n".join(own))
    large = _INCLUDES_LARGE.search(text)
    binds = request.narrow and re.search(_BINDS, text) and re.search(_CLASSES, text)
    made = _with_local_classes() if binds else {}
    if not large and not made:
        return None
    if given_up:
        return Headers("torch's full headers: it did not compile with others", given_up=True)
    told = "its classes are local to the module"
    if large and (why := _why_full(request, text)):
        told = f"torch's full headers: {why}"
    elif large:
        operators = _operators(text)
        told = f"narrow headers: it names {', '.join(operators)}"
        made |= _made(text, operators)
    return Headers(told, made, files.digest_of(made) if made else "")


def _why_full(request: Request, text: str) -> str:
    if not request.narrow:
        return "narrow headers are switched off"
    if not _all_operators() or not _BODY.search(_torchs(_TYPES)):
        return f"torch {torch.__version__} has other headers than those that are known"
    text = text.replace("\\\n", " ")
    asked = "\n".join(re.findall(r"#[ \t]*(?:el)?if(.*)", text))
    defined = re.findall(r"#[ \t]*define[ \t]+(\w+)", text)
    if unknown := set(_MACRO.findall(asked)).difference(defined):
        return f"the full headers may define {min(unknown)}, which it asks for"
    for pattern, why in _FULL.items():
        if found := re.search(pattern, text):
            return f"{why}: {found[0].splitlines()[-1].strip()}"
    return ""


def _headers(text: str) -> list[str]:
    named = [header for words, header in _NAMED.items() if re.search(words, text)]
    return " ".join([_BASE, *named]).split()


def _operators(text: str) -> list[str]:
    """The operators whose names are in a text, and those that its headers use."""
    used = set(_NAME.findall(text))
    for header in _headers(text):
        used.update(re.findall(r"<ATen/ops/(\w+)\.h>", _torchs(header)))
    return sorted(used & _all_operators())


def _made(text: str, operators: list[str]) -> dict[str, str]:
    """The narrow headers for a text, by their names."""
    named = (f"ATen/ops/{name}.h" for name in operators)
    made = {header: _UNUSED.sub("", _torchs(header)) for header in named}
    # With this macro, torch's own headers also include one header per operator.
    made[_ATEN] = f"""#pragma once
#pragma push_macro("AT_PER_OPERATOR_HEADERS")
#undef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
{_includes([*_headers(text), *made])}#pragma pop_macro("AT_PER_OPERATOR_HEADERS")
"""
    made[_TYPES] = "".join(["#pragma once\n", _includes([_ATEN]), *_BODY.findall(_torchs(_TYPES))])
    made |= dict.fromkeys(("torch/all.h", "torch/torch.h"), f"#pragma once\n{_includes([_TYPES])}")
    binding = _BINDING.split() if re.search(_BINDS, text) else []
    made[_EXTENSION] = f"#pragma once\n{_includes([_TYPES, *binding])}"
    return made


@functools.cache
def _with_local_classes() -> dict[str, str]:
    """pybind11's headers, in which a class is local to its module unless the source says otherwise,
    because a newer build defines it again. All of them are copied, because they include each other
    by path.
    """
    folder = Path(_INCLUDE, "pybind11")
    found = {f"pybind11/{path.relative_to(folder)}": path for path in folder.rglob("*.h")}
    made = {name: path.read_text("utf-8") for name, path in found.items()}
    changed = made.get(_ATTRIBUTES, "").replace("module_local(false)", "module_local(true)")
    return made | {_ATTRIBUTES: changed} if changed else {}


def _includes(headers: Iterable[str]) -> str:
    return "".join(f"#include <{header}>\n" for header in headers)


@functools.cache
def _torchs(header: str) -> str:
    """The text of one of torch's headers; empty if torch has no such header."""
    return next(filter(None, (texts.read(f"{top}/{header}") for top in (_INCLUDE, _API))), "")


@functools.cache
def _all_operators() -> frozenset[str]:
    """The operators that have headers of their own; none if this torch has other headers."""
    names = set()
    with suppress(OSError):
        names = {name.removesuffix(".h") for name in os.listdir(f"{_INCLUDE}/ATen/ops")}
    return frozenset(name for name in names if f"{name}_ops" in names or name == "from_blob")
