"""Launches of kernels from Python, by the GPU's driver."""

from __future__ import annotations

import ctypes
import operator
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from .loading.build import Build
from .loading.reload import show
from .parameters import Arguments
from .user.errors import LltmJitError
from .variants import ask_driver, driver_words, load_device_code

Size: TypeAlias = "int | tuple[int, ...]"
Grid: TypeAlias = "Size | Callable[..., Size]"

_CONFIG = "@IIIIIIIPPI4x"  # CUlaunchConfig: grid, block, shared memory, stream, attributes
_CLUSTER, _COOPERATIVE = 4, 2  # CUlaunchAttributeID
_SHARED_BYTES, _ANY_CLUSTER = 8, 14  # CUfunction_attribute
_USUAL_SHARED, _USUAL_CLUSTER = 48 << 10, 8  # larger ones need the attribute
_NO_CONTEXT = 201  # the driver's status in a thread that has not used CUDA yet
_LAUNCHES = 256  # how many launches a kernel remembers

# torch's public functions for this purpose take microseconds. A torch without CUDA lacks these two,
# and compiles no kernel.
_stream_of: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_device_now: Any = getattr(torch._C, "_cuda_getDevice", None)


class Kernel:
    """A compiled kernel: what :func:`lltm_jit.kernel` returns.

    ``k[grid, block](x, y, n)`` launches it on the current stream of the GPU that the tensors are
    on; ``k[grid, block, shared]`` gives it bytes of dynamic shared memory. A grid and a block are a
    number, or a tuple of up to three. A grid may also be a function, which is called with the
    arguments. An empty grid launches nothing.

    The arguments are checked against the parameters. A pointer takes None, or a tensor of its type
    on a GPU; a pointer to ``void`` or to an unknown type takes any tensor on a GPU. Strides are not
    checked. A number takes a number of Python or NumPy that fits. A struct takes its bytes, as
    ``bytes`` or as a structure of ``ctypes``.

    :func:`lltm_jit.reload` compiles it again after an edit. All later launches use
    the new code, except those in CUDA graphs, which have recorded the old code.
    """

    def __init__(self, name: str, build: Build) -> None:
        self.name = name
        self._launches: dict[Any, Launch] = {}
        self.use(build)
        show(self, build)

    def use(self, build: Build) -> None:
        """Launch this build's code from now on."""
        self._code = Code(self.name, build)
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            self.load()

    def load(self) -> None:
        """Load the code on the current GPU, as the first launch outside of CUDA graphs does."""
        self._code.load(torch.cuda.current_device())

    def launch(
        self,
        grid: Grid,
        block: Size,
        shared: int = 0,
        *,
        cluster: Size | None = None,
        cooperative: bool = False,
    ) -> Launch:
        """Return the launch ``k[grid, block, shared]``, with more options.

        Args:
            grid, block, shared: as there.
            cluster: how many blocks form a cluster.
            cooperative: whether all blocks run at the same time, so that they can wait for each
                other.
        """
        return Launch(self, grid, block, shared, cluster, cooperative)

    def __getitem__(self, how: Any) -> Launch:
        found = self._launches.get(how)
        if found is None:
            if not isinstance(how, tuple) or len(how) not in (2, 3):
                raise TypeError(f"expected {self.name}[grid, block] or [grid, block, shared]")
            if len(self._launches) == _LAUNCHES:
                self._launches.clear()
            found = self.launch(*how)
            if not callable(how[0]):  # a function may hold tensors
                self._launches[how] = found
        return found

    def __repr__(self) -> str:
        return f"<kernel {self.name}({self._code.arguments.takes})>"


class Code:
    """The code of a kernel on the GPUs, and memory for its launches."""

    def __init__(self, name: str, build: Build) -> None:
        self.name = name
        self._symbol, told = build.record.symbols[name]
        self._image, self._turn = build.names["code"], threading.Lock()
        self.handle: ctypes.c_void_p | None = None
        self.arguments = Arguments(name, told)
        self._offsets, layout = [], _CONFIG
        for each in self.arguments.parameters:
            code = each.number.code if each.number else "P"
            self._offsets.append(struct.calcsize(f"{layout}0{code}"))
            layout += code
        self.pack = struct.Struct(layout).pack_into
        self._size = struct.calcsize(layout)
        self.free: list[tuple[Any, Any, Any]] = []  # slots that no launch uses
        self.loaded: set[int] = set()  # the GPUs that have the code
        self.sizes: dict[int, int] = {}  # bytes of `arguments.others`, if the driver tells
        self.granted: dict[tuple[int, int], int] = {}  # attributes that GPUs have now

    def load(self, device: int) -> None:
        """Load the code on a GPU, which must be the current one."""
        if torch.cuda.is_current_stream_capturing():
            raise LltmJitError(
                f"{self.name} is not loaded on cuda:{device} yet, and cannot be loaded while a "
                "CUDA graph is being captured; launch it, or call its load(), before the capture"
            )
        torch.cuda.set_device(device)  # each thread has its own current GPU
        with self._turn:
            if not self.handle:
                library, name = load_device_code(self._image), self._symbol.encode()
                handle = ctypes.c_void_p()
                ask_driver("cuLibraryGetKernel", ctypes.byref(handle), library, name)
                driver, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
                if hasattr(driver, "cuKernelGetParamInfo"):  # CUDA 12.4 on
                    for place in self.arguments.others:
                        where = ctypes.c_size_t(place), ctypes.byref(ctypes.c_size_t())
                        ask_driver("cuKernelGetParamInfo", handle, *where, ctypes.byref(size))
                        self.sizes[place] = size.value
                self.call, self.handle = driver.cuLaunchKernelEx, handle
        ask_driver("cuKernelGetFunction", ctypes.byref(ctypes.c_void_p()), self.handle)
        self.loaded.add(device)

    def set_attribute(self, attribute: int, value: int, device: int) -> None:
        if self.granted.get((attribute, device), 0) < value:
            ask_driver("cuKernelSetAttribute", attribute, value, self.handle, device)
            self.granted[attribute, device] = value

    def slot(self) -> tuple[Any, Any, Any]:
        """Memory for one launch: its configuration and arguments, its address, and pointers to the
        arguments.

        No other launch uses it; it may be put into ``free`` afterwards.
        """
        buffer = ctypes.create_string_buffer(self._size)
        start = ctypes.addressof(buffer)
        pointers = (ctypes.c_void_p * len(self._offsets))(*(start + at for at in self._offsets))
        return buffer, ctypes.c_void_p(start), pointers


class Launch:
    """A kernel with its grid and block. A call with the arguments launches it."""

    def __init__(
        self,
        kernel: Kernel,
        grid: Grid,
        block: Size,
        shared: int,
        cluster: Size | None,
        cooperative: bool,
    ) -> None:
        self._kernel = kernel
        self._grid = grid if callable(grid) else _three("grid", grid)
        self._block, self._shared = _three("block", block), operator.index(shared)
        self._cluster = 0
        told = []
        if cluster is not None:
            x, y, z = _three("cluster", cluster)
            self._cluster = x * y * z
            told.append(struct.pack("i4xIII52x", _CLUSTER, x, y, z))
        if cooperative:
            told.append(struct.pack("i4xi60x", _COOPERATIVE, 1))
        self._attributes = ctypes.create_string_buffer(b"".join(told))  # CUlaunchAttribute[]
        self._more = (ctypes.addressof(self._attributes), len(told))

    def __call__(self, *arguments: Any) -> None:
        """Launch the kernel."""
        code = self._kernel._code
        values, device = code.arguments.values(arguments)
        grid = self._grid
        if callable(grid):
            grid = _three("grid", grid(*arguments))
        if 0 in grid:
            return
        now = _device_now()
        if device is None or device == now:
            self._launch(code, grid, now, values)
        else:
            with torch.cuda.device(device):
                self._launch(code, grid, device, values)

    def _launch(self, code: Code, grid: tuple[int, ...], device: int, values: list[Any]) -> None:
        if device not in code.loaded:
            code.load(device)
        if self._shared > _USUAL_SHARED:
            code.set_attribute(_SHARED_BYTES, self._shared, device)
        if self._cluster > _USUAL_CLUSTER:
            code.set_attribute(_ANY_CLUSTER, 1, device)
        try:
            slot = code.free.pop()
        except IndexError:
            slot = code.slot()
        buffer, config, pointers = slot
        check = code.arguments
        held = [(each, values[each]) for each in check.others]  # keeps the bytes until the launch
        for place, told in held:
            size = code.sizes.get(place, len(told))
            if size != len(told):
                raise ValueError(check.told(place, f"to have {size} bytes", len(told)))
            pointers[place], values[place] = ctypes.addressof(told), 0
        stream = _stream_of(device)
        try:
            code.pack(buffer, 0, *grid, *self._block, self._shared, stream, *self._more, *values)
        except (struct.error, OverflowError) as error:
            raise check.why_not_packed(values) from error
        status = code.call(config, code.handle, pointers, None)
        if status == _NO_CONTEXT:
            torch.cuda.set_device(device)
            status = code.call(config, code.handle, pointers, None)
        code.free.append(slot)
        if status:
            clusters = f", clusters of {self._cluster}" if self._cluster else ""
            raise LltmJitError(
                f"{code.name} cannot be launched: the driver says {driver_words(status)!r} to grid "
                f"{grid}, block {self._block}, {self._shared} bytes of shared memory{clusters}"
            )


def _three(what: str, size: Size) -> tuple[int, int, int]:
    """A size in three dimensions."""
    given = size if isinstance(size, tuple) else (size,)
    try:
        x, y, z = [*map(operator.index, given), 1, 1][: max(3, len(given))]
        if min(x, y, z) >= (what != "grid"):
            return x, y, z
    except (TypeError, ValueError):
        pass
    raise ValueError(f"expected the {what} to be a size, or up to three of them, but got {size!r}")
