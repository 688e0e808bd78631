"""The operators that ``TORCH_LIBRARY`` blocks of a library register while it is loaded.

The blocks can release what they register (``compile/forms``), so a newer build of an extension
replaces the older one. A compiled function, or any other holder of a torch operator, calls the new
kernel from then on. A library is never unloaded, because an autograd graph of an earlier call may
need its code.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

import torch
from torch._ops import OpOverload, OpOverloadPacket

from ..request.spec import Spec
from ..user.errors import BuildError

# A backend that nobody uses. While an operator has a kernel for it, torch keeps the operator.
_KEY = "PrivateUse3"
_in_force: list[Library] = []
_left_out: dict[str, torch.library.Library] = {}  # operators that only older builds had


class Library:
    """The blocks of a loaded library."""

    def __init__(self, spec: Spec, loaded: ctypes.CDLL) -> None:
        self.name, self.sources, self._loaded = spec.name, {*spec.paths}, loaded
        self._loaded.lltm_jit_registration_error.restype = ctypes.c_char_p
        self._loaded.lltm_jit_namespaces.restype = ctypes.c_char_p
        self.namespaces = set(self._loaded.lltm_jit_namespaces().decode().split())
        self.registered = not self.error  # loading has done it

    @property
    def path(self) -> str:
        return self._loaded._name

    @property
    def error(self) -> str:
        """Why torch refuses a block; empty if it takes all."""
        said: str = self._loaded.lltm_jit_registration_error().decode("utf-8", "replace")
        return said.partition("\nException raised from")[0]

    def register(self, wanted: bool) -> bool:
        """Register all blocks, or release them. Returns whether they are registered."""
        self._loaded.lltm_jit_register(int(wanted))
        self.registered = wanted and not self.error
        return self.registered


def put_in_force(library: Library) -> None:
    """Let a library's operators take the place of those of its extension's other builds.

    Raises:
        BuildError: torch refuses them; the operators from before stay.
    """
    related = [
        each
        for each in _in_force
        if each.name == library.name and each.namespaces & library.namespaces
    ]
    if related[-1:] == [library]:
        return
    # Another source of the same name may add other operators, as torch has it.
    others = [each for each in related if each.sources & library.sources and each is not library]
    is_new = library.registered and library not in related
    if not (others or is_new or library.register(True)):
        others = [each for each in related if each is not library]
    before = _schemas(library.namespaces) if others else {}
    for name in before:
        _kept(name)
    for other in others:
        other.register(False)
    for name in before.keys() & _left_out.keys():
        _left_out.pop(name)._destroy()
    if not (library.registered or library.register(True)):
        for other in others:
            other.register(True)
    for name in before.keys() - _schemas(library.namespaces).keys():
        _define_without_kernel(name, before[name])
    for namespace in library.namespaces if others else ():
        _renew(namespace)
    if library.registered:
        _in_force[:] = [each for each in _in_force if each not in (*others, library)] + [library]
        return
    cure = "choose another namespace, or restart Python"
    if others:
        cure = "the build before stays in use; to change an operator's arguments, restart Python"
    raise BuildError(
        f"error: torch refuses what {library.name} registers: {library.error.strip()}\n"
        f"   = {cure}\n   = {library.path}"
    )


def _schemas(namespaces: set[str]) -> dict[str, str]:
    """The operators that namespaces have, each with its schema."""
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return {
        ".".join(filter(None, [schema.name, schema.overload_name])): str(schema)
        for name in names
        if name.partition("::")[0] in namespaces
        for schema in torch._C._jit_get_schemas_for_operator(name)
    }


def _define_without_kernel(name: str, schema: str) -> None:
    """Define an operator that a newer build lacks: torch needs a schema of each that it lists."""
    namespace, _, rest = schema.partition("::")
    _left_out[name] = torch.library.Library(namespace, "FRAGMENT")
    _left_out[name].define(rest)


@cache
def _kept(name: str) -> torch.library.Library:
    """A library that keeps an operator alive without a block that defines it, because there may be
    handles of the operator anywhere.
    """
    namespace, _, operator = name.partition("::")
    library = torch.library.Library(namespace, "IMPL")
    library.impl(operator, torch.library.fallthrough_kernel, _KEY)
    return library


def _renew(namespace: str) -> None:
    """Update Python's objects of a namespace's operators to the new schemas."""
    space = getattr(torch.ops, namespace)
    for name, packet in [*vars(space).items()]:
        if not isinstance(packet, OpOverloadPacket):
            continue
        delattr(space, name)
        with suppress(ValueError):
            space._dir.remove(name)
        fresh = getattr(space, name, None)  # None for an operator that is gone
        for overload, old in [*vars(packet).items()]:
            new = getattr(fresh, overload, None) if isinstance(old, OpOverload) else None
            if isinstance(old, OpOverload) and isinstance(new, OpOverload):
                vars(old).update({**vars(new), "py_kernels": old.py_kernels})
        if isinstance(fresh, OpOverloadPacket):
            for attribute, value in vars(fresh).items():
                if not isinstance(value, OpOverload):
                    setattr(packet, attribute, value)
            setattr(space, name, packet)
