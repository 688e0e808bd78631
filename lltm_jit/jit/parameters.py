"""A kernel's parameters, from its type as the compiler prints it: ``void (float const*, long)``.

The arguments of each launch are checked against them.
"""

from __future__ import annotations

import ctypes
import operator
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

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
    "__nv_bfloat16": (Number("H", frozenset(), _bfloat16, "a number"), (torch.bfloat16,)),
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


class Arguments:
    """A check of arguments against a kernel's parameters."""

    def __init__(self, name: str, told: str) -> None:
        self.name = name
        self.parameters = parameters_of(name, told)
        self.takes = ", ".join(each.text for each in self.parameters)
        self._tensors: list[tuple[int, tuple[torch.dtype, ...]]] = []
        self._numbers: list[tuple[int, frozenset[type], Number]] = []
        self.others: list[int] = []  # structs, and numbers that Python's struct cannot pack
        for place, each in enumerate(self.parameters):
            if each.pointer:
                self._tensors.append((place, each.dtypes))
            elif each.number:
                self._numbers.append((place, each.number.types, each.number))
            else:
                self.others.append(place)

    def values(self, arguments: tuple[Any, ...]) -> tuple[list[Any], int | None]:
        """The arguments as they are packed, and the GPU that the tensors are on.

        Raises:
            TypeError, ValueError: they do not fit the declaration.
        """
        if len(arguments) != len(self.parameters):
            raise TypeError(
                f"{self.name}: expected {len(self.parameters)} arguments, "
                f"({self.takes}), but got {len(arguments)}"
            )
        values, device = [*arguments], None
        for place, dtypes in self._tensors:
            x = arguments[place]
            if not isinstance(x, torch.Tensor):
                if x is not None:
                    self._refuse(place, x)
                values[place] = 0
                continue
            there = x.get_device()
            if there != device:
                if device is not None and there >= 0:
                    raise ValueError(
                        f"{self.name}: expected all tensors on one GPU, but got cuda:{device} and "
                        f"cuda:{there}"
                    )
                device = there
            if there < 0 or (dtypes and x.dtype not in dtypes):
                self._refuse(place, x)
            values[place] = x.data_ptr()
        for place, types, number in self._numbers:
            if type(arguments[place]) not in types:
                values[place] = self._number(place, number, arguments[place])
        for place in self.others:
            values[place] = self._bytes(place, arguments[place])
        return values, device

    def _number(self, place: int, number: Number, value: Any) -> Any:
        """Convert a number, such as NumPy's. A tensor is refused: it would wait for the GPU."""
        if isinstance(value, (torch.Tensor, str, bytes)):
            self._refuse(place, value)
        try:
            return number.convert(value)
        except TypeError:
            self._refuse(place, value)
        except OverflowError as error:
            raise self._too_large(place, value) from error

    def _bytes(self, place: int, value: Any) -> ctypes.Array[ctypes.c_char]:
        """The bytes for a parameter that is neither a pointer nor a number."""
        if not isinstance(value, (bytes, bytearray, ctypes.Structure, ctypes.Array, ctypes.Union)):
            self._refuse(place, value)
        told = bytes(value)
        return ctypes.create_string_buffer(told, max(len(told), 1))

    def why_not_packed(self, values: list[Any]) -> ValueError:
        """An error that names the number that is too large for its type."""
        for place, _, number in self._numbers:
            try:
                struct.pack(number.code, values[place])
            except (struct.error, OverflowError):
                return self._too_large(place, values[place])
        return ValueError(f"{self.name}: expected sizes below 2^32 for the grid and the block")

    def _too_large(self, place: int, value: Any) -> ValueError:
        text = self.parameters[place].text
        return ValueError(
            f"{self.name}: expected argument {place + 1} to fit into {text}, but got {value}"
        )

    def _refuse(self, place: int, value: Any) -> NoReturn:
        """Raise an error with what was expected, and what was given."""
        parameter = self.parameters[place]
        got = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
        if isinstance(value, torch.Tensor):
            got = f"a {_in_words((value.dtype,))}tensor on {value.device}"
        raise TypeError(self.told(place, f"to be {_wanted(parameter)}", got))

    def told(self, place: int, wanted: str, got: object) -> str:
        """What an error says of an argument."""
        text = self.parameters[place].text
        return f"{self.name}: expected argument {place + 1}, {text}, {wanted}, but got {got}"


def _in_words(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(str(each).removeprefix("torch.") for each in dtypes) + " " * bool(dtypes)


def _wanted(parameter: Parameter) -> str:
    if parameter.pointer:
        return f"a {_in_words(parameter.dtypes)}tensor on a GPU"
    if parameter.number:
        return parameter.number.words
    return "its bytes, as bytes or a structure of ctypes"
