"""What a ``__global__`` function takes, as its declaration says in the text of a source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from .request.texts import LITERALS, without_comments
from .user.errors import BuildError


class Type(NamedTuple):
    """A C type: how :mod:`struct` packs it, and which tensors a pointer to it takes."""

    code: str
    dtypes: tuple[torch.dtype, ...]


class Parameter(NamedTuple):
    """A parameter of a kernel.

    ``text`` is its declaration. ``type`` is None for one that is not known, such as a struct.
    """

    text: str
    pointer: bool
    type: Type | None


# Spellings of the same type are one line; their words may stand in any order.
_TYPES = {
    "bool": Type("?", (torch.bool,)),
    "char": Type("b", (torch.int8, torch.uint8)),
    "signed char|int8_t": Type("b", (torch.int8,)),
    "unsigned char|uint8_t|uchar": Type("B", (torch.uint8,)),
    "short|signed short|int16_t": Type("h", (torch.int16,)),
    "unsigned short|uint16_t|ushort": Type("H", (torch.uint16, torch.int16)),
    "int|signed|signed int|int32_t": Type("i", (torch.int32,)),
    "unsigned|unsigned int|uint32_t|uint": Type("I", (torch.uint32, torch.int32)),
    "long|long long|signed long|signed long long|int64_t|ptrdiff_t|longlong": Type(
        "q", (torch.int64,)
    ),
    "unsigned long|unsigned long long|uint64_t|size_t|uintptr_t|ulong|ulonglong": Type(
        "Q", (torch.uint64, torch.int64)
    ),
    "half|__half": Type("e", (torch.float16,)),
    "__nv_bfloat16|nv_bfloat16": Type("bfloat16", (torch.bfloat16,)),
    "__nv_fp8_e4m3": Type("", (torch.float8_e4m3fn,)),
    "__nv_fp8_e5m2": Type("", (torch.float8_e5m2,)),
    "float": Type("f", (torch.float32,)),
    "double": Type("d", (torch.float64,)),
    "cuComplex|cuFloatComplex|float2": Type("", (torch.complex64, torch.float32)),
    "cuDoubleComplex|double2": Type("", (torch.complex128, torch.float64)),
    "void": Type("", ()),
}
_KNOWN = {
    " ".join(sorted(name.split())): t for names, t in _TYPES.items() for name in names.split("|")
}
_WORDS = {word for name in _KNOWN for word in name.split()}
_VECTOR = re.compile(r"(?:__)?((?:nv_)?\w*?[a-z]|(?:nv_)?bfloat16)[1234](?:_\d+a)?")
_QUALIFIER = (
    r"\b(?:const|volatile|struct|typename|__restrict__|__restrict|__grid_constant__)\b|\[\[.*?\]\]"
)
# What may stand in parentheses between `__global__` and the function's name.
_ATTRIBUTES = (
    r"__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__|requires"
)
_TEMPLATE = re.compile(r"\btemplate\s*<([^;{}]*)>\s*(?:requires\b[^;{}]*|static\s+|inline\s+)*$")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(<[^;{}()]*>)?\s*\(")
_ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=\s*([^;{}]+);|\btypedef\s+([^;{}]+?)\s+(\w+)\s*;"
    r"|^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+)$",
    re.MULTILINE,
)


class Declared(NamedTuple):
    """A kernel as a source declares it."""

    name: str
    special: str  # the arguments of a template's specialization, without blanks
    template: tuple[str, ...]  # its template parameters
    parameters: tuple[str, ...]


def declared(text: str) -> list[Declared]:
    """The kernels that a text declares."""
    text = re.sub(r"(?m)^[ \t]*#.*$", "", without_comments(text.replace("\\\n", "")))
    text = re.sub(
        LITERALS, lambda each: each[0] if each[0][0].isdigit() else "''", text, flags=re.S
    )
    found = []
    for mark in re.finditer(r"\b__global__\b", text):
        template = _TEMPLATE.search(text, 0, mark.start())
        at, name = mark.end(), _NAME.search(text, mark.end())
        while name and re.fullmatch(_ATTRIBUTES, name[1]):
            at = name.end() + len(_balanced(text[name.end() :])) + 1
            name = _NAME.search(text, at)
        if name is None or re.search(r"[;{}]", text[at : name.start()]):
            continue  # a lambda's, or in a text that is no declaration
        names = _split(template[1]) if template else []
        parameters = _split(_balanced(text[name.end() :]))
        if parameters == ["void"]:
            parameters = []
        special = re.sub(r"\s", "", name[2] or "")
        found.append(Declared(name[1], special, tuple(names), tuple(parameters)))
    return found


def parameters_of(
    asked: str, texts: Iterable[str], constants: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """The parameters of a kernel such as ``scale<float>``, by its declaration in one of the texts.

    Raises:
        BuildError: none of them declares it, or they declare it in several ways.
    """
    texts = [*texts]
    plain, _, arguments = re.sub(r"\s+", " ", asked).partition("<")
    name, special = plain.strip().rpartition("::")[2], f"<{arguments}".replace(" ", "")
    given = _split(arguments.rpartition(">")[0])
    aliases = _aliases(texts) | dict(constants)
    found: dict[tuple[object, ...], tuple[Parameter, ...]] = {}
    known = [each for text in texts for each in declared(text)]
    for each in known:
        if each.name == name and each.special in ("", special):
            bound = {**aliases, **_bound(each.template, given)}
            parameters = tuple(_parameter(text, bound) for text in each.parameters)
            found.setdefault(tuple(parameter[1:] for parameter in parameters), parameters)
    if not found:
        others = ", ".join(dict.fromkeys(each.name for each in known)) or "none"
        raise BuildError(
            f"error: the source declares no kernel {asked}, such as `__global__ void {name}(...)`; "
            f"its kernels: {others}"
        )
    if len(found) > 1:
        ways = " and ".join(f"({signature(each)})" for each in found.values())
        raise BuildError(f"error: the source declares {name} with {ways}; give these two names")
    return next(iter(found.values()))


def signature(parameters: Iterable[Parameter]) -> str:
    """Parameters as they are declared."""
    return ", ".join(parameter.text for parameter in parameters)


def _bound(template: tuple[str, ...], given: list[str]) -> dict[str, str]:
    """What the parameters of a template stand for."""
    found = {}
    for place, text in enumerate(template):
        head, _, default = text.partition("=")
        value = given[place] if place < len(given) else default.strip()
        words = re.findall(r"\w+", head)
        if value and words:
            found[words[-1]] = value
    return found


def _aliases(texts: Iterable[str]) -> dict[str, str]:
    """The names of types that a text defines in one way."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for match in _ALIAS.finditer(without_comments(text)):
            new, old = match[1] or match[4] or match[5], match[2] or match[3] or match[6]
            found.setdefault(new, set()).add(old.strip())
    return {name: next(iter(olds)) for name, olds in found.items() if len(olds) == 1}


def _parameter(text: str, bound: Mapping[str, str]) -> Parameter:
    text = " ".join(text.partition("=")[0].split())
    words, star, _ = re.sub(_QUALIFIER, " ", text).rpartition("*")
    if not star:
        words, star, _ = re.sub(_QUALIFIER, " ", text).partition("[")
        words = re.sub(r"\w+\s*$", "", words) if star else words
    if not star:  # its name is the last word, unless that is a part of the type
        parts = words.split()
        if len(parts) > 1 and re.fullmatch(r"\w+", parts[-1]) and parts[-1] not in _WORDS:
            words = " ".join(parts[:-1])
    return Parameter(text, bool(star), _type(words, bound))


def _type(words: str, bound: Mapping[str, str], depth: int = 8) -> Type | None:
    """What a type's name stands for; None if that is not known."""
    words = re.sub(_QUALIFIER, " ", words).replace("std::", "").strip()
    if "*" in words:  # a pointer to pointers: a tensor of addresses
        return Type("Q", (torch.int64, torch.uint64))
    replaced = re.sub(r"[A-Za-z_]\w*", lambda match: bound.get(match[0], match[0]), words)
    if replaced != words and depth:
        return _type(replaced, bound, depth - 1)
    known = _KNOWN.get(" ".join(sorted(words.split()))) or _KNOWN.get(_without_int(words))
    if known is None and (vector := _VECTOR.fullmatch(words)):
        known = _KNOWN.get(vector[1]) or _KNOWN.get(f"__{vector[1]}")
        return known._replace(code="") if known else None
    return known


def _without_int(words: str) -> str:
    return " ".join(sorted(word for word in words.split() if word != "int"))


def _balanced(text: str) -> str:
    """What stands before the parenthesis that closes one before the text."""
    depth = 0
    for mark in re.finditer(r"[()]", text):
        depth += 1 if mark[0] == "(" else -1
        if depth < 0:
            return text[: mark.start()]
    return text


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside all brackets."""
    parts, depth, angles = [""], 0, 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        angles += 0 if depth else (mark == "<") - (mark == ">")  # or they compare
        if mark == "," and depth == angles == 0:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts if part.strip()]
