"""``kernel``: a CUDA kernel without C++ around it, compiled by NVRTC and launched from Python.

The builds of kernels are kept, reported and reloaded like all others.
"""

from __future__ import annotations

import ctypes
import operator
import os
import re
import shlex
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import torch

from .loading import engine
from .loading.build import Build
from .loading.reload import show
from .parameters import Number, Parameter, kernels_in, parameters_of
from .request.request import IN_NAME
from .request.spec import CUDA_SUFFIXES, Spec, absolute
from .request.texts import read
from .user.errors import BuildError, LltmJitError, ended_after, own_frames_hidden
from .variants import ask_driver, check_constants, driver_words, load_device_code

__all__ = ["Kernel", "kernel"]

Size: TypeAlias = "int | tuple[int, ...]"
Grid: TypeAlias = "Size | Callable[..., Size]"

_CONFIG = "@IIIIIIIPPI4x"  # CUlaunchConfig: grid, block, shared memory, stream, attributes
_CLUSTER, _COOPERATIVE = 4, 2  # CUlaunchAttributeID
_SHARED_BYTES, _ANY_CLUSTER = 8, 14  # CUfunction_attribute
_USUAL_SHARED, _USUAL_CLUSTER = 48 << 10, 8  # larger ones need the attribute
_NO_CONTEXT = 201  # the driver's status in a thread that has not used CUDA yet
_LAUNCHES = 256  # how many launches a kernel remembers
_TENSORS = {torch.Tensor, torch.nn.Parameter}

# torch's public functions for this purpose take microseconds. A torch without CUDA lacks these two.
_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_device_now = getattr(torch._C, "_cuda_getDevice", None)


@own_frames_hidden
def kernel(
    source: str | os.PathLike[str],
    name: str | Sequence[str],
    *,
    constants: Mapping[str, object] | None = None,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
    verbose: bool = False,
    timeout: float | None = None,
) -> Any:
    """A CUDA kernel that is launched on tensors; NVRTC compiles it, unless it is in the cache.

    NVRTC comes with torch's CUDA, and compiles in a few hundredths of a second. The source has
    ``__global__`` functions and the code that they call, and includes nothing of torch.

    Args:
        source: the path of a ``.cu`` or ``.cuh`` file, or the text itself.
        name: the function's name, with the arguments of a template, such as ``"scale<float>"``; or
            a list of names, whose kernels are compiled together.
        constants: macros and their values, defined in front of the source.
        include_paths: directories to search for headers. CUDA's own headers are always found.
        options: more options for NVRTC, such as ``"--use_fast_math"``.
        verbose: print every step.
        timeout: seconds after which a build is ended; this needs the NVRTC of CUDA 13 or later.

    Returns:
        A :class:`Kernel`, or for a list of names a tuple of them.

    Raises:
        BuildError: if the source does not compile, or declares no such kernel.
        BuildTimeout: if the build takes longer than ``timeout``.
        ToolchainError: if there is no NVRTC.
        CacheError: if the directory for builds cannot be used.

    Example:
        Launch a kernel with a grid and a block::

            text = '''
            template <typename T>
            __global__ void scale(const T* x, T* y, long n, float factor) {
              long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
              if (i < n) y[i] = x[i] * T(factor);
            }
            '''
            scale = lltm_jit.kernel(text, "scale<float>")
            x = torch.randn(1000, device="cuda")
            y = torch.empty_like(x)
            scale[(x.numel() + 255) // 256, 256](x, y, x.numel(), 2.0)
    """
    names = (name,) if isinstance(name, str) else tuple(name)
    text, how = os.fspath(source), (names, constants, include_paths, options)
    is_path = text.endswith((*CUDA_SUFFIXES, ".cuh")) and "\n" not in text
    if is_path or isinstance(source, os.PathLike):
        stem = re.sub(r"[^\w.+-]", "_", Path(text).stem)
        made = spec_of(stem, *how)._replace(paths=absolute([text]))
    else:
        plain = re.match(r"\w+", names[0].partition("<")[0].rpartition("::")[2])
        made = with_text(spec_of(plain[0] if plain else "kernel", *how), "source", text)
    with ended_after(timeout):
        kernels = kernels_of(made, verbose)
    return kernels[0] if isinstance(name, str) else kernels


def with_text(spec: Spec, called: str, text: str) -> Spec:
    """The spec with a text as its source; errors call the text ``called``."""
    written = f'#line 1 "{called}"\n{text}\n'
    return spec._replace(texts=((f"{spec.name}.cu", written),), listings=((called, text),))


def spec_of(
    name: str,
    functions: Sequence[str],
    constants: Mapping[str, object] | None = None,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
) -> Spec:
    """The spec of some kernels, still without their source."""
    if isinstance(options, str):  # else it is taken letter by letter
        raise TypeError(f"expected options to be a list, but got {options!r}")
    values = {
        key: str(int(v) if isinstance(v, bool) else v) for key, v in (constants or {}).items()
    }
    check_constants(name, values.items())
    return Spec(
        name,
        cuda_cflags=tuple(map(shlex.quote, options)),
        include_paths=absolute(include_paths),
        python_module=False,
        narrow=False,
        constants=tuple(sorted(values.items())),
        device_code=True,
        nvrtc=True,
        functions=tuple(functions),
    )


def kernels_of(spec: Spec, verbose: bool | None = None) -> tuple[Kernel, ...]:
    """The kernels that a spec names, from one build."""
    try:
        build = engine.load(spec, verbose=verbose or None)
    except BuildError as error:
        if not (error.message or "").startswith(IN_NAME):
            raise
        texts = [text for _, text in spec.texts] or [read(path) for path in spec.paths]
        found = ", ".join(name for text in texts for name in kernels_in(text)) or "none"
        raise BuildError(f"{error}\nthe kernels of the source: {found}") from error
    return tuple(Kernel(name, build) for name in spec.functions)


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
        self._code = _Code(self.name, build)
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
        return f"<kernel {self.name}({self._code.takes})>"


class _Code:
    """The code of a kernel, and how its arguments are packed."""

    def __init__(self, name: str, build: Build) -> None:
        self.name = name
        self._symbol, told = build.record.symbols[name]
        self._image, self._turn = build.names["code"], threading.Lock()
        self.handle: ctypes.c_void_p | None = None
        self.parameters = parameters_of(name, told)
        self.takes = ", ".join(each.text for each in self.parameters)
        self.tensors: list[tuple[int, tuple[torch.dtype, ...]]] = []
        self.numbers: list[tuple[int, frozenset[type], Number]] = []
        self.others: list[int] = []  # structs, and numbers that Python's struct cannot pack
        self._offsets, layout = [], _CONFIG
        for place, each in enumerate(self.parameters):
            code = each.number.code if each.number else "P"
            if each.pointer:
                self.tensors.append((place, each.dtypes))
            elif each.number:
                self.numbers.append((place, each.number.types, each.number))
            else:
                self.others.append(place)
            self._offsets.append(struct.calcsize(f"{layout}0{code}"))
            layout += code
        self.pack = struct.Struct(layout).pack_into
        self._size = struct.calcsize(layout)
        self.free: list[tuple[Any, Any, Any]] = []  # slots that no launch uses
        self.loaded: set[int] = set()  # the GPUs that have the code
        self.sizes: dict[int, int] = {}  # bytes of the others, if the driver tells them
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
                    for place in self.others:
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
        for place, dtypes in self.tensors:
            x = arguments[place]
            if type(x) not in _TENSORS and not isinstance(x, torch.Tensor):
                if x is not None:
                    self.refuse(place, x)
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
                self.refuse(place, x)
            values[place] = x.data_ptr()
        for place, types, number in self.numbers:
            if type(arguments[place]) not in types:
                values[place] = self._number(place, number, arguments[place])
        for place in self.others:
            values[place] = self._bytes(place, arguments[place])
        return values, device

    def _number(self, place: int, number: Number, value: Any) -> Any:
        """Convert a number, such as NumPy's. A tensor is refused: it would wait for the GPU."""
        if isinstance(value, (torch.Tensor, str, bytes)):
            self.refuse(place, value)
        try:
            return number.convert(value)
        except TypeError:
            self.refuse(place, value)
        except OverflowError as error:
            raise self._too_large(place, value) from error

    def _bytes(self, place: int, value: Any) -> ctypes.Array[ctypes.c_char]:
        """The bytes for a parameter that is neither a pointer nor a number."""
        if not isinstance(value, (bytes, bytearray, ctypes.Structure, ctypes.Array, ctypes.Union)):
            self.refuse(place, value)
        told = bytes(value)
        return ctypes.create_string_buffer(told, max(len(told), 1))

    def why_not_packed(self, values: list[Any]) -> ValueError:
        """An error that names the number that is too large for its type."""
        for place, _, number in self.numbers:
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

    def refuse(self, place: int, value: Any) -> NoReturn:
        """Raise an error with what was expected, and what was given."""
        parameter = self.parameters[place]
        got = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
        if isinstance(value, torch.Tensor):
            got = f"a {_in_words((value.dtype,))}tensor on {value.device}"
        raise TypeError(
            f"{self.name}: expected argument {place + 1}, {parameter.text}, to be "
            f"{_wanted(parameter)}, but got {got}"
        )


def _in_words(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(str(each).removeprefix("torch.") for each in dtypes) + " " * bool(dtypes)


def _wanted(parameter: Parameter) -> str:
    if parameter.pointer:
        return f"a {_in_words(parameter.dtypes)}tensor on a GPU"
    if parameter.number:
        return parameter.number.words
    return "its bytes, as bytes or a structure of ctypes"


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
        self._function = grid if callable(grid) else None
        self._grid = (0, 0, 0) if callable(grid) else _three("grid", grid)
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
        values, device = code.values(arguments)
        grid = self._grid
        if self._function is not None:
            grid = _three("grid", self._function(*arguments))
        if 0 in grid:
            return
        now = _device_now() if _device_now else 0
        if device is None or device == now:
            self._launch(code, grid, now, values)
        else:
            with torch.cuda.device(device):
                self._launch(code, grid, device, values)

    def _launch(self, code: _Code, grid: tuple[int, ...], device: int, values: list[Any]) -> None:
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
        held = [(place, values[place]) for place in code.others]  # keeps the bytes until the launch
        for place, told in held:
            if code.sizes.get(place, len(told)) != len(told):
                raise ValueError(
                    f"{code.name}: expected argument {place + 1}, "
                    f"{code.parameters[place].text}, to have {code.sizes[place]} bytes, "
                    f"but got {len(told)}"
                )
            pointers[place], values[place] = ctypes.addressof(told), 0
        stream = _stream_of(device) if _stream_of else 0
        try:
            code.pack(buffer, 0, *grid, *self._block, self._shared, stream, *self._more, *values)
        except (struct.error, OverflowError) as error:
            raise code.why_not_packed(values) from error
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
