"""Layers of a recurrent cell of your own, generated from the C++ of one step."""

from __future__ import annotations

import copyreg
import ctypes
import hashlib
import itertools
import math
import uuid
import weakref
from collections.abc import Callable, Iterable
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from lltm_jit import native
from lltm_jit.jit import Build, BuildError, LltmJitError, variants
from lltm_jit.jit.user.progress import many
from lltm_jit.ops.rnn._cell_text import CellText
from lltm_jit.ops.rnn.layers import LAYERS
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import under_own_name
from lltm_jit.ops.rnn.recurrent_layer.types import Cell, State
from lltm_jit.ops.rnn.sequence import declare_kernels, own_cells

if TYPE_CHECKING:
    from lltm_jit.ops.rnn.recurrent_layer.types import Call

_KERNELS = native.kernels_directory()
_SAMPLES = 64  # points at which check() compares derivatives
_calls: dict[str, itertools.count[int]] = {}  # calls of recurrent_cell(), by argument
_classes: weakref.WeakValueDictionary[str, type[OwnCell]] = weakref.WeakValueDictionary()


class _Pickled(type):
    """The type of classes that pickle makes again from their header, instead of by their name."""


class OwnCell(RecurrentLayer, metaclass=_Pickled):
    """The base class of the layers that :func:`lltm_jit.recurrent_cell` makes.

    Arguments, parameters and call are those of
    :class:`~lltm_jit.ops.rnn.recurrent_layer.RecurrentLayer`.

    Layers can be pickled, and saved as a whole by :func:`torch.save`. A process that loads one
    calls :func:`lltm_jit.recurrent_cell` with the same arguments, on the header as it is then.
    """

    _source: _Source

    __call__: Call[State]

    @classmethod
    def reload(cls) -> None:
        """Compile the header if it was edited; every layer of this class then uses it.

        A backward pass that runs later uses it, too. :func:`lltm_jit.reload` does this for all
        cells.

        Raises:
            BuildError: if it does not compile; the cell stays as it was.
            LltmJitError: if the number of gates, states or parameters changed, or ``kAddsGates``,
                ``kProduct`` or what is normalised.
        """
        cls._source.load()

    @classmethod
    def check(cls) -> None:
        """Check the header's claims in float64, at random numbers.

        It compares ``step_backward``, if there is one, with the derivative of ``step`` by dual
        numbers. If the cell sets ``kAddsGates``, it compares steps on the gates' two parts with
        steps on their sums. If the cell sets ``kLinear``, it compares a step with the step from
        zeros and the derivative there. It calls each step twice with the same numbers, and expects
        the same results, because a step must be a pure function.

        Raises:
            LltmJitError: if they disagree; the message names the derivative, and both values.
        """
        cls._source.check()


def recurrent_cell(
    header: str | Path,
    cell: str,
    *,
    name: str | None = None,
    include_paths: Iterable[str | Path] = (),
) -> type[OwnCell]:
    """Make a layer of a recurrent cell of your own.

    The cell is the maths of one hidden unit in one step, in C++. The header
    ``rnn/sequence/cell.h``, under :func:`lltm_jit.include_path`, explains how to write one. From it
    this function generates and compiles kernels for whole sequences, forward and backward. The
    CUDA kernels are compiled at their first use. A step may call ``exp``, ``log``, ``log1p``,
    ``sqrt``, ``sin``, ``cos``, ``tanh``, ``abs``, ``min``, ``max``, ``sigmoid``, ``softplus``,
    ``elu``, ``relu`` and ``where_greater``. Each call makes a new class; earlier classes stay as
    they are, even if the header has changed.

    A cell whose gates do not use the old output, such as minGRU, SRU or QRNN, sets ``kProduct =
    false``. It has no recurrent weights and no ``bias_hh``, and its step has no ``h``. If its new
    states are linear in the old ones, it also sets ``kLinear``, and a GPU works on many steps at
    once.

    A step must be a pure function of its arguments, because the backward pass computes it again:
    dropout and zoneout take a mask as one more gate, through ``recurrent_sequence``. A step sees
    one hidden unit, so a cell cannot add up over units, and cannot change ``h`` before the
    recurrent product. Layer norms are an exception: ``kNormalisesGates`` and ``kNormalisedState``
    normalise the gates and one of the states. The layer's ``check()`` finds steps that are not
    pure.

    Args:
        header: the file that defines the cell.
        cell: its C++ type, such as ``"PeepholeCell"`` or ``"mine::PeepholeCell"``.
        name: the name of the returned class; by default that of the type, without a final ``Cell``.
        include_paths: further directories to search for headers.

    Returns:
        A subclass of :class:`~lltm_jit.ops.rnn.own_cell.OwnCell`. Create layers of it with
        ``(input_size, hidden_size, ...)``.

    Raises:
        BuildError: if the header does not compile, or has no such cell; the text is the first
            error.
        ToolchainError, CacheError: if there is no compiler, or no usable directory for the build.

    Example:
        >>> Peephole = recurrent_cell("examples/peephole/peephole.h", "PeepholeCell")
        >>> output, (h, c) = Peephole(input_size=3, hidden_size=4)(torch.randn(5, 2, 3))
        >>> output.shape
        torch.Size([5, 2, 4])
    """
    title = name or cell.rpartition("::")[2].removesuffix("Cell") or cell
    return _made(uuid.uuid4().hex, title, str(header), cell, tuple(map(str, include_paths)))


def _made(
    identity: str, title: str, header: str, cell: str, include_paths: tuple[str, ...]
) -> type[OwnCell]:
    """The class of this identity. It is made if this process does not have it."""
    made = _classes.get(identity)
    if made is None:
        source = _Source(identity, header, cell, include_paths)
        words = f"Layers of {cell} in {header}."
        body = {"cell": source.load(), "_source": source, "__doc__": words}
        made = under_own_name(type(title, (OwnCell,), body))
        told: list[tuple[list, Callable]] = [
            (native.when_used["rnn"], source.tell),
            (native.when_reloaded, source.load),
        ]
        for listeners, function in told:
            listeners.append(function)
            weakref.finalize(made, listeners.remove, function).atexit = False
        made = _classes.setdefault(identity, made)
        # By each name, recurrent_sequence() means the class that was made last.
        for known in {title, cell, cell.rpartition("::")[2]} - LAYERS.keys():
            own_cells[known] = made.cell.name
    return made


def _reduced(made: type[OwnCell]) -> str | tuple[Callable[..., type[OwnCell]], tuple[object, ...]]:
    """What pickle keeps of a class."""
    source = vars(made).get("_source")
    if source is None:  # a subclass, or the base
        return made.__qualname__
    return _made, (source.identity, made.__name__, *source.asked)


copyreg.pickle(_Pickled, _reduced)  # type: ignore[arg-type]


class _Source:
    """The header of a cell, and the library made from it. Messages name the header as `given`."""

    def __init__(
        self, identity: str, given: str, cell: str, include_paths: tuple[str, ...]
    ) -> None:
        self.identity = identity
        self._given = given
        self._header = Path(given).absolute()  # the current directory may change
        self._text = CellText(self._header, given, cell)
        self._type = cell
        folders = [Path(path).absolute() for path in include_paths]
        self._include_paths = (_KERNELS, *folders)
        # Absolute paths, because they may be read again in another working directory or process.
        self.asked = (str(self._header), cell, tuple(map(str, folders)))
        digest = hashlib.sha256("\n".join(map(str, [self._header, *folders])).encode()).hexdigest()
        self._place = f"{cell}.{digest[:8]}"
        self._key = ""  # of the build in use
        self._cell: Cell | None = None  # until the header has compiled
        self._library: ctypes.CDLL
        self._address = 0

    def load(self) -> Cell:
        """Compile the header if needed, and let sequences use the cell."""
        build = self._build()
        if self._cell is None or build.info.key != self._key:
            library = ctypes.CDLL(str(build.info.library))
            sizes = (c_int * 10)()
            library.recurrent_cell_sizes(sizes)
            gates, states, parameters, *flags = sizes[:7]
            # The first one's name is the same in every process, as an exported program needs it.
            name = self._cell.name if self._cell else self._new_name()
            cell = Cell(name, gates, states, parameters, *map(bool, flags))
            if self._cell and self._cell != cell:
                raise LltmJitError(
                    f"{self._type} has {_counts(cell)} now, but layers were made with "
                    f"{_counts(self._cell)}; call recurrent_cell() again"
                )
            library.recurrent_cell_faults.restype = c_int64
            self._text.refuse_faults(library.recurrent_cell_faults(), gates, states, parameters)
            kernel = f"rnn.sequence.{name}.{build.info.key}"
            declare_kernels(kernel, self._include_paths[1:])
            library.recurrent_cell_as.restype = c_void_p
            self._address = library.recurrent_cell_as(
                c_char_p(name.encode()), c_char_p(kernel.encode())
            )
            self._has_backward, self._linear, self._room = sizes[7:]
            self._library, self._cell, self._key = library, cell, build.info.key
            self.tell(native.rnn)
        return self._cell

    def _build(self) -> Build:
        if "\n" in self._given:
            raise BuildError(
                "error: expected the path of a header, but got its text; put it into a file"
            )
        if not self._header.is_file():
            raise BuildError(f"error: there is no header {self._given}")
        variant = variants.Variant(
            "rnn.recurrent_cell",
            _KERNELS / "rnn" / "sequence" / "variants" / "recurrent_cell.cpp",
            self._include_paths,
            (("CELL_HEADER", f'"{self._header}"'), ("CELL", self._type)),
            label=f"{self._type} of {self._header.name}",
        )
        try:
            return variants.builds_of([variant])[0]
        except BuildError as error:
            raise BuildError(self._text.placed(str(error)), **vars(error)) from None

    def _new_name(self) -> str:
        number = next(_calls.setdefault(self._place, itertools.count(1)))
        return self._place if number == 1 else f"{self._place}.{number}"

    def tell(self, module: ModuleType) -> None:
        """Register the cell with a build of the family."""
        module.add_cell_at(self._address)

    def check(self) -> None:
        """See :meth:`OwnCell.check`."""
        cell = self._cell
        assert cell is not None
        # The numbers that a step reads; "" stands for one that C++ adds where there are none.
        names = [f"x[{i}]" for i in range(cell.gates)]
        names += [""] if cell.adds_gates else [f"h[{i}]" for i in range(cell.gates)]
        names += [f"p[{i}]" for i in range(cell.parameters)] or [""]
        names += [f"old[{i}]" for i in range(cell.states)]
        generator = torch.Generator().manual_seed(0)
        shape = (_SAMPLES, self._room + cell.states)
        samples = torch.randn(shape, dtype=torch.double, generator=generator).tolist()
        found = [self._compared(given) for given in samples]
        again = [self._compared(given) for given in samples[::-1]][::-1]
        for given, first, second in zip(samples, found, again, strict=True):
            if not all(map(_close, itertools.chain(*first), itertools.chain(*second))):
                raise LltmJitError(
                    f"{self._text.line('step')}: {self._type}: step gives other numbers in a "
                    "second call with the same arguments, but must be a pure function: without "
                    f"random numbers, statics and globals; at {_at(names, given)}"
                )
        claim, one, other = "kAddsGates", " from the gates' two parts", "from their sums"
        if self._linear:
            claim, one, other = "kLinear", "", "by its derivative by old"
        states = cell.states if self._linear or (cell.adds_gates and cell.product) else 0
        for given, (dual, own, apart, added) in zip(samples, found, strict=True):
            for index, what in enumerate(names):
                if self._has_backward and what and not _close(own[index], dual[index]):
                    raise LltmJitError(
                        f"{self._text.line('step_backward')}: the gradient of {what} is "
                        f"{own[index]:.6g}, but step()'s is {dual[index]:.6g}, at "
                        f"{_at(names, given)}"
                    )
            for index in range(states):
                if not _close(apart[index], added[index]):
                    raise LltmJitError(
                        f"{self._text.line(claim)}: now[{index}] is {apart[index]:.6g}{one}, but "
                        f"{added[index]:.6g} {other}, at {_at(names, given)}"
                    )

    def _compared(self, given: list[float]) -> list[list[float]]:
        """Both derivatives of a step, and its states from the gates' parts and from their sums."""
        room, states = self._room, len(given) - self._room
        arrays = [(c_double * size)() for size in (room, room, states, states)]
        self._library.recurrent_cell_compare(
            (c_double * room)(*given[:room]), (c_double * states)(*given[room:]), *arrays
        )
        return [list(array) for array in arrays]


def _counts(cell: Cell) -> str:
    added = "added" if cell.adds_gates else "not added"
    added = added if cell.product else "without a product"
    if cell.normalises:
        added += ", normalised" if cell.normalises_gates else ", normalised state"
    kinds = f"{many(cell.gates, 'gate')} ({added}), {many(cell.states, 'state')}"
    return f"{kinds} and {many(cell.parameters, 'parameter')}"


def _close(a: float, b: float) -> bool:
    both_nan = math.isnan(a) and math.isnan(b)
    return both_nan or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def _at(names: list[str], values: list[float]) -> str:
    return ", ".join(f"{name} {x:.3g}" for name, x in zip(names, values, strict=False) if name)
