"""A kernel's parameters, from its type as the compiler prints it: ``void (float const*, long)``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .request.texts import LITERALS, without_comments
from .user.errors import BuildError


class Number(NamedTuple):
    """How a number is packed.

    ``code`` is its code in :mod:`struct`, which takes ``types`` as they are; ``convert`` converts a
    value of another type. ``words`` say what is expected.
    """

    code: str
    types: frozenset[type]
    convert: Callable[[Any], Any]
    words: str


class Parameter(NamedTuple):
    """A parameter of a kernel: a pointer, a number, or neither, such as a struct.

    ``text`` is its type. A pointer takes tensors of ``dtypes``, or all if there are none.
    """

    text: str
    pointer: bool
    number: Number | None
    dtypes: tuple[torch.dtype, ...]


def _integer(code: str) -> Number:
    return Number(code, frozenset({int}), operator.index, "an integer")


def _real(code: str) -> Number:
    return Number(code, frozenset({float, int}), float, "a number")


def _truth(value: Any) -> bool:
    if isinstance(value, int) or type(value).__name__.startswith("bool"):  # NumPy's
        return bool(value)
    raise TypeError


def _bfloat16(value: Any) -> int:
    bits = torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16).item()
    return int(bits) & 0xFFFF


_TYPES: dict[str, tuple[Number | None, tuple[torch.dtype, ...]]] = {
    "bool": (Number("?", frozenset({bool}), _truth, "True or False"), (torch.bool,)),
    "char": (_integer("b"), (torch.int8, torch.uint8)),
    "signed char": (_integer("b"), (torch.int8,)),
    "unsigned char": (_integer("B"), (torch.uint8,)),
    "short": (_integer("h"), (torch.int16,)),
    "unsigned short": (_integer("H"), (torch.uint16, torch.int16)),
    "int": (_integer("i"), (torch.int32,)),
    "unsigned int": (_integer("I"), (torch.uint32, torch.int32)),
    "long": (_integer("q"), (torch.int64,)),
    "unsigned long": (_integer("Q"), (torch.uint64, torch.int64)),
    "long long": (_integer("q"), (torch.int64,)),
    "unsigned long long": (_integer("Q"), (torch.uint64, torch.int64)),
    "float": (_real("f"), (torch.float32,)),
    "double": (_real("d"), (torch.float64,)),
    "__half": (_real("e"), (torch.float16,)),
    "__nv_bfloat16": (
        Number("H", frozenset(), _bfloat16, "a number"),
        (torch.bfloat16,),
    ),
    "__nv_fp8_e4m3": (None, (torch.float8_e4m3fn,)),
    "__nv_fp8_e5m2": (None, (torch.float8_e5m2,)),
    "float2": (None, (torch.complex64, torch.float32)),
    "double2": (None, (torch.complex128, torch.float64)),
}
_ADDRESS = (torch.int64, torch.uint64)
# float4, uchar4, longlong2, double4_16a, __half2
_VECTOR = r"(u?)([a-z]+?|__half|__nv_bfloat16)(long)?[1-4](?:_\d+a)?"
_FUNCTION = r'(?:extern "C" )?void \((?!\*\))(.*)\)'
# From `template`, if there is one, to the name; a name with underscores in front is an attribute.
_KERNEL = (
    r"(\btemplate\s*<[^;{}]*>[^;{}]*?)?\b__global__\b"
    r"(?:[^;{}()]|\((?:[^()]|\([^()]*\))*\))*?\b(?!__|requires\b)([a-zA-Z_]\w*)\s*"
    r"(?:<[^;{}()]*>)?\s*\("
)


def parameters_of(name: str, told: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel; ``told`` is its type as the compiler prints it.

    Raises:
        BuildError: it is no kernel, or takes a reference.
    """
    function = re.fullmatch(_FUNCTION, told)
    if function is None:
        raise BuildError(f"error: expected {name} to be a kernel, but it is of type {told}")
    found = tuple(_parameter(text) for text in _split(function[1]))
    for each in found:
        if each.text.endswith(("&", "(&)")) or "(&) [" in each.text:
            raise BuildError(
                f"error: {name} takes a reference, {each.text}, which a launch cannot pass; "
                "declare a pointer or a value"
            )
    return found


def kernels_in(text: str) -> dict[str, bool]:
    """The kernels that a text seems to have, and which are templates."""
    text = without_comments(text.replace("\\\n", ""))
    text = re.sub(rf"^[ \t]*#[^\n]*|{LITERALS}", "0", text, flags=re.DOTALL | re.MULTILINE)
    return {name: bool(template) for template, name in re.findall(_KERNEL, text)}


def _parameter(text: str) -> Parameter:
    plain = re.sub(r" \(\*\) [\[\]\d]+$", "*", text)  # a pointer to arrays
    plain = re.sub(r" (?:const|volatile)\b", "", plain)
    pointer = plain.endswith("*")
    plain = plain.removesuffix("*")
    if plain.endswith("*"):  # a pointer to pointers takes a tensor of addresses
        return Parameter(text, True, None, _ADDRESS)
    number, dtypes = _TYPES.get(plain, (None, ()))
    if not dtypes and (vector := re.fullmatch(_VECTOR, plain)):
        element = "unsigned " * bool(vector[1]) + vector[2] + " long" * bool(vector[3])
        dtypes = _TYPES.get(element, (None, ()))[1]
    return Parameter(text, pointer, None if pointer else number, dtypes)


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside of all brackets."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{<") - (mark in ")]}>")
        if mark == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts if part.strip()]
