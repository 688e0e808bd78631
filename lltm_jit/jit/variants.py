"""Kernels that are compiled with constants at their first use.

A variant is a source without torch, compiled with macros that its caller chooses: a size that must
be known at compile time, a type, the header of a user's own cell. It is built, kept and reported
like every other build. Its result is the address of a C function, or the handle of a kernel (see
:attr:`Variant.device_code`). C++ requests it through ``core/python/variant.h``.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import torch

from . import kernels
from .loading import engine
from .loading.build import Build
from .request.request import Request
from .request.spec import CONSTANTS, CUDA_SUFFIXES, Spec, absolute
from .user.errors import BuildError, LltmJitError, ToolchainError

_NOT_FOUND = 500  # the driver's status for a missing kernel


@dataclass(frozen=True)
class Variant:
    """A kernel's source, and the constants that it is compiled with.

    Args:
        name: the family's name, a dot, and the kernel's name, such as ``rnn.lltm_sequence``.
        source: the ``.cu`` or ``.cpp`` file.
        include_paths: where its headers are found, first the folder of the kernels.
        constants: macros and their values.
        label: the constants in words, ``float16, hidden 512``.
        prepare: the call that loads the variant, for those who need it in a CUDA graph.
        optional: whether C++ has another kernel, for machines that cannot compile this one.
        device_code: compile a ``.cu`` file for the GPU alone, which takes a second less: the
            function is then ``__global__``, and its address is a ``CUkernel`` of the driver.
            Without nvcc, NVRTC compiles it, which comes with torch.
        nvrtc: compile device code by NVRTC even if there is an nvcc, because nvcc takes longer.
        note: why it is compiled, if it is not used right away.
    """

    name: str
    source: Path
    include_paths: tuple[Path, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    label: str = ""
    prepare: str = ""
    optional: bool = False
    device_code: bool = False
    nvrtc: bool = False
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.device_code and self.source.suffix not in CUDA_SUFFIXES:
            raise BuildError(
                f"expected a source of {self.name} for the GPU alone, which ends in "
                f"{' or '.join(CUDA_SUFFIXES)}, but got {self.source}"
            )
        check_constants(self.name, self.constants)

    @property
    def words(self) -> str:
        """What the variant is called."""
        values = ", ".join(f"{name} {value}" for name, value in self.constants)
        return self.label or values or self.source.name

    def spec(self) -> Spec:
        """What the variant is built from."""
        spec = Spec(
            self.name,
            absolute([self.source]),
            include_paths=absolute(self.include_paths or [self.source.parent]),
            python_module=False,
            ours=True,
            variant=self.words,
            # In a fixed order; the later of two constants with the same name counts.
            constants=tuple(sorted(dict(self.constants).items())),
            device_code=self.device_code,
            nvrtc=self.nvrtc,
            note=self.note,
        )
        return spec._replace(listings=((CONSTANTS, spec.macros),))


def check_constants(title: str, constants: Iterable[tuple[str, str]]) -> None:
    """Refuse constants that cannot be macros.

    Raises:
        BuildError: a name cannot be a macro's, or a value has several lines.
    """
    for name, value in constants:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or "\n" in value:
            raise BuildError(
                f"expected a macro and a value on one line as a constant of {title}, "
                f"but got {name!r} and {value!r}"
            )


def declare(variant: Variant) -> None:
    """Let C++ request variants of a kernel by name; it adds constants and the label."""
    kernels[variant.name] = lambda: variant


Asked: TypeAlias = "tuple[str, str, Sequence[tuple[str, str]], str]"
"""A declared kernel's name, a C function of it, constants, and the label."""


def load_declared(asked: Asked, *beside: Asked) -> int:
    """The address of a declared kernel's function. C++ asks until it has the address.

    C++ will soon ask for the kernels ``beside`` it, such as that of the backward pass, so they are
    compiled at the same time.

    Returns 0 for an optional kernel if nothing can compile it.

    Raises:
        BuildError: the source has no such function, which it declares ``extern "C"``.
        LltmJitError: no kernel of this name was declared; and as :func:`builds_of`.
    """
    variant = declared(asked)
    soon = [replace(declared(each), note="gradients are wanted") for each in beside]
    try:
        return _address(builds_of([variant, *soon])[0], asked[1])
    except ToolchainError as error:
        if beside:  # perhaps only these cannot be built
            return load_declared(asked)
        if not variant.optional:
            raise
        _tell_once(f"lltm_jit: {asked[0]}: {error}; a slower kernel runs instead")
        return 0


def declared(asked: Asked) -> Variant:
    """A variant of a kernel that was declared.

    Raises:
        LltmJitError: no kernel of this name was declared.
    """
    name, _, constants, label = asked
    if name not in kernels:
        raise LltmJitError(f"expected a kernel that was declared, but got {name!r}")
    kernel = kernels[name]()
    return replace(kernel, constants=(*kernel.constants, *constants), label=label)


@functools.cache
def _tell_once(line: str) -> None:
    print(line, file=sys.stderr)


def architectures(variant: Variant) -> tuple[str, ...]:
    """What a variant is compiled for, in torch's spelling; empty if nothing here can compile it."""
    return Request(variant.spec()).architectures


def builds_of(variants: Sequence[Variant]) -> list[Build]:
    """The loaded builds of variants for the files as they are; missing ones are built together.

    Equal contents are one build, whatever their labels.

    Raises:
        BuildError: a source does not compile; the other builds were cancelled.
        ToolchainError, CacheError: there is no compiler, or no usable directory for the builds.
        LltmJitError: one is not loaded, and the current stream is being captured.
    """
    specs = {variant: variant.spec() for variant in variants}
    loaded = {variant: engine.loaded(spec) for variant, spec in specs.items()}
    found = {variant: build for variant, build in loaded.items() if build}
    missing = [variant for variant in specs if variant not in found]
    capturing = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    for variant in missing:
        if capturing and variant.source.suffix in CUDA_SUFFIXES:
            raise LltmJitError(
                f"{variant.name}: the kernel for {variant.words} is not loaded yet, and cannot be "
                "loaded while a CUDA graph is being captured; "
                f"call {variant.prepare or 'the operator once'} before the capture"
            )
    if missing:
        builds = engine.load_all([specs[variant] for variant in missing])
        found |= zip(missing, builds, strict=True)
    if torch.cuda.is_initialized():  # else this may be a machine without a GPU
        for build in found.values():
            if build.spec.device_code:  # later its file may be gone, or a graph be captured
                _device_library(str(build.info.library))
    return [found[variant] for variant in variants]


def _address(build: Build, function: str) -> int:
    path = str(build.info.library)
    if build.spec.device_code:
        library, kernel = _device_library(path), ctypes.c_void_p()
        name = function.encode()
        known = ask_driver("cuLibraryGetKernel", ctypes.byref(kernel), library, name)
        address = kernel.value if known else None
    else:
        symbol = getattr(ctypes.CDLL(path), function, None)  # the same library again
        address = ctypes.cast(symbol, ctypes.c_void_p).value if symbol else None
    if not address:
        source = build.info.sources[0]
        raise BuildError(f'error: {source} has no function {function!r}; declare it extern "C"')
    return address


@functools.cache
def _device_library(path: str) -> ctypes.c_void_p:
    """The driver's library of a file of device code, for all GPUs; it is never unloaded."""
    return load_device_code(Path(path).read_bytes())


def load_device_code(code: bytes) -> ctypes.c_void_p:
    """The driver's library of device code, which no GPU has loaded yet."""
    library = ctypes.c_void_p()
    ask_driver("cuInit", 0)
    no_options = (None, None, 0, None, None, 0)
    ask_driver("cuLibraryLoadData", ctypes.byref(library), code, *no_options)
    return library


def ask_driver(function: str, *arguments: object) -> bool:
    """Call a function of the GPU's driver, and raise the driver's message if it fails.

    Returns whether the driver has found the thing asked for.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    status = getattr(driver, function)(*arguments)
    if status in (0, _NOT_FOUND):
        return status == 0
    said = driver_words(status)
    raise LltmJitError(f"{function}() of the GPU's driver failed with {status}: {said}")


def driver_words(status: int) -> str:
    """What the driver says of a status."""
    words = ctypes.c_char_p()
    ctypes.CDLL("libcuda.so.1").cuGetErrorString(status, ctypes.byref(words))
    return (words.value or b"an unknown error").decode()
