"""The operator library ``lltm_jit`` of torch's dispatcher.

Schemas are defined here, once per process. The implementations (CPU, CUDA, meta, autograd,
autocast, vmap) are in ``kernels/<family>/``, and are replaced with the compiled extension.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn, SupportsFloat, SupportsIndex

import torch
from torch.overrides import is_tensor_like

_LIBRARY = torch.library.Library("lltm_jit", "DEF")

DTYPES = (torch.half, torch.bfloat16, torch.float, torch.double)  # in which kernels compute

# The names of the operators that each family of kernels implements.
OPERATORS: dict[str, list[str]] = {}

# Functions that are called with the names of newly defined operators.
on_define: list[Callable[[Sequence[str]], None]] = []


def define(family: str, *schemas: str) -> None:
    """Define a family's operators by schemas, such as ``"my_op(Tensor x, Tensor y) -> Tensor"``."""
    names = OPERATORS.setdefault(family, [])
    for schema in schemas:
        _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
        names.append(schema.partition("(")[0])
    for act in on_define:
        act(names[-len(schemas) :])


def autocasts(tensor: torch.Tensor) -> bool:
    """Whether autocast is on for a tensor's device; torch raises for the meta device."""
    if tensor.is_cuda:
        return torch.is_autocast_enabled("cuda")
    if tensor.is_cpu:
        return torch.is_autocast_enabled("cpu")
    device = tensor.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def refuse_wrong_types(operator: str, args: Iterable[object]) -> None:
    """Raise a TypeError for the first argument that has not the type of the operator's schema.

    This is for calls that have failed: a check before each call would cost time in all of them, and
    a kernel's message has the argument's number, not its name. Lists and texts are not checked.
    """
    schema = getattr(torch.ops.lltm_jit, operator).default._schema
    for argument, value in zip(schema.arguments, args, strict=False):
        kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
        if refuse_other := _CHECKS.get(kind):
            optional = isinstance(argument.type, torch.OptionalType)
            refuse_other(operator, argument.name, value, optional=optional)


def refuse_non_tensor(function: str, name: str, value: object, optional: bool = False) -> None:
    """Raise a TypeError for an argument that is no tensor; an `optional` one may be None."""
    if not (is_tensor_like(value) or (value is None and optional)):
        _refuse_type(function, name, value, "a tensor", optional)


def refuse_non_bool(function: str, name: str, value: object, optional: bool = False) -> None:
    """Raise a TypeError for a flag that is no bool; an `optional` one may be None."""
    if not (isinstance(value, bool) or (value is None and optional)):
        _refuse_type(function, name, value, "a bool", optional)


def refuse_non_number(
    function: str, name: str, value: object, whole: bool = False, optional: bool = False
) -> None:
    """Raise a TypeError for what is no number, or no `whole` one; an `optional` one may be None."""
    if isinstance(value, int if whole else (int, float)):
        return  # torch.compile cannot inspect a number that varies further
    is_number = isinstance(value, SupportsIndex if whole else (SupportsIndex, SupportsFloat))
    if is_number and not getattr(value, "ndim", 0):  # an array of numpy has both, of any shape
        return
    if value is not None or not optional:
        _refuse_type(function, name, value, "an int" if whole else "a number", optional)


_CHECKS: dict[str, Callable[..., None]] = {  # by the types of schemas
    "Tensor": refuse_non_tensor,
    "bool": refuse_non_bool,
    "int": partial(refuse_non_number, whole=True),
    "float": refuse_non_number,
}


def refuse_wrong_size(function: str, name: str, size: int) -> None:
    """Raise a TypeError for a size that is no whole number, a ValueError for one not of 63 bits."""
    if isinstance(size, torch.Tensor):
        _refuse_type(function, name, size, "an int")
    refuse_non_number(function, name, size, whole=True)
    if not 0 <= size < 2**63:
        wanted = "0 or more" if size < 0 else "less than 2**63"
        refuse(function, f"{name} to be {wanted}", size, ValueError)


def _refuse_type(
    function: str, name: str, value: object, wanted: str, optional: bool = False
) -> NoReturn:
    wanted += " or None" if optional else ""
    got = "None" if value is None else type(value).__name__
    refuse(function, f"{name} to be {wanted}", got, TypeError)


def refuse(
    function: str, wanted: str, got: object, kind: type[Exception] = RuntimeError
) -> NoReturn:
    """Raise the error of a call: what its function expected, and what it got."""
    raise kind(f"{function}(): expected {wanted}, but got {got}") from None


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call a function with a module of torch: now, or once the program has imported the module,
    which ``import torch`` does not import.
    """
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Finds one module once, as Python does, and calls a function after its execution."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name, self.act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
