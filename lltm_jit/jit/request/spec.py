"""What is asked for: the sources and flags of one extension, as its user gives them."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..store import files
from ..user.errors import BuildError, SourceMissing, ToolchainError

CUDA_SUFFIXES = (".cu",)
CXX_SUFFIXES = (".cpp", ".cc", ".cxx")
SOURCE_SUFFIXES = CXX_SUFFIXES + CUDA_SUFFIXES
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp")
# The suffixes of files that g++ and clang++ accept as sources.
OF_GCC = (*CXX_SUFFIXES, ".cp", ".CPP", ".c++", ".C", ".c", ".ii", ".i", ".S", ".s", ".mm", ".m")
BINDINGS = "bindings"  # what `#line` calls the code that binds the functions of load_inline
CELL = "the cell"  # what `#line` calls a notebook's cell; the spec has its number
CONSTANTS = "constants.h"  # the macros of a variant, in its work folder
VARIANTS = "variants"  # a folder whose sources are compiled one by one, when they are first needed

Pairs = tuple[tuple[str, str], ...]


class Spec(NamedTuple):
    """What is asked for, independently of this machine; JSON can hold it."""

    name: str
    paths: tuple[str, ...] = ()  # absolute paths of sources, or of one directory
    cflags: tuple[str, ...] = ()  # the user's flags, as in the next three
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    with_cuda: bool | None = None  # None if a source says so
    python_module: bool = True
    standalone: bool = False  # an executable
    root: str = ""  # used instead of the usual root of builds
    texts: Pairs = ()  # sources given as strings, by the names of the files to write
    listings: Pairs = ()  # the pieces of the texts, by the names that ``#line`` gives them
    cell: str = ""  # the notebook's name for the cell among the pieces
    narrow: bool = True  # sources get narrow headers of torch if they compile with them
    ours: bool = False  # a part of this package: all checkouts share builds, with our own flags
    around: str = ""  # the parent of a directory of sources from which its includes start
    packaged: str = ""  # where a wheel has the library, if not in the folder beside the sources
    least_architecture: tuple[int, int] = (0, 0)  # the oldest GPUs that CUDA sources are made for
    variant: str = ""  # what a variant of a kernel is called
    constants: Pairs = ()  # the macros of a variant
    device_code: bool = False  # only the code for the GPU, without a library around it
    nvrtc: bool = False  # NVRTC compiles device code, even if there is an nvcc
    functions: tuple[str, ...] = ()  # kernels in it that Python calls, such as "scale<float>"
    note: str = ""  # why it is built, for the line that announces the build

    @property
    def title(self) -> str:
        """What is built, in the words of messages."""
        return (
            f"{self.name.partition('.')[0]} variant {self.variant}" if self.variant else self.name
        )

    @property
    def macros(self) -> str:
        """The macros in front of every source of a variant."""
        return "".join(f"#define {name} {value}\n" for name, value in self.constants)

    @classmethod
    def of_record(cls, told: Mapping[str, Any]) -> "Spec":
        """The spec in a record, whose JSON has lists in place of tuples."""

        def tuples(value: Any) -> Any:
            return tuple(map(tuples, value)) if isinstance(value, list) else value

        return cls(**{name: tuples(value) for name, value in told.items()})


def spec(
    name: str,
    sources: Any,
    extra_cflags: Any = None,
    extra_cuda_cflags: Any = None,
    extra_ldflags: Any = None,
    extra_include_paths: Any = None,
    build_directory: str | os.PathLike[str] | None = None,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    **more: Any,
) -> Spec:
    """What :func:`lltm_jit.load` loads, from the same arguments; ``more`` are fields of the spec.

    Relative paths mean the current directory of this moment.
    """
    if is_python_module and is_standalone:
        raise ValueError("is_python_module and is_standalone cannot both be true")
    if not isinstance(name, str):
        raise TypeError(f"expected name to be a string, but got {name!r}")
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    elif not isinstance(sources, Iterable):
        raise TypeError(f"expected sources to be a path or a list of paths, but got {sources!r}")
    lists: dict[str, Any] = {
        "cflags": extra_cflags,
        "cuda_cflags": extra_cuda_cflags,
        "ldflags": extra_ldflags,
        "include_paths": extra_include_paths,
    }
    for kind, given in lists.items():
        if given and isinstance(given, (str, os.PathLike)):  # else it is taken letter by letter
            raise TypeError(f"expected extra_{kind} to be a list, but got {given!r}")
        lists[kind] = tuple(given or ())
    lists["include_paths"] = absolute(os.fspath(path).strip() for path in lists["include_paths"])
    return Spec(
        name,
        absolute(sources),
        **lists,
        with_cuda=with_cuda,
        python_module=is_python_module,
        standalone=is_standalone,
        root=str(Path(build_directory).absolute()) if build_directory else "",
        **more,
    )


def absolute(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Paths as seen from the current directory, which may change later."""
    return tuple(str(Path(path).absolute()) for path in paths)


Found = tuple[tuple[str, ...], tuple[str, ...], str, bool]  # what find_sources returns


def find_sources(spec: Spec, can_build_cuda: bool) -> Found:
    """The sources of a spec now, without sources that another source includes; the include
    paths; the directory that files are named relative to; and whether there is CUDA among them.
    """
    if spec.texts:
        names = tuple(name for name, _ in spec.texts)
        cuda = any(name.endswith(CUDA_SUFFIXES) for name in names)
        return names, spec.include_paths, "", cuda
    if len(spec.paths) == 1 and os.path.isdir(spec.paths[0]):
        return _of_directory(spec, can_build_cuda)
    with_cuda = spec.with_cuda
    cuda = any(path.endswith((".cu", ".cuh")) for path in spec.paths)
    base = os.path.commonpath(map(os.path.dirname, spec.paths)) if spec.paths else "/"
    if spec.ours:  # a variant, named relative to the package's own kernels
        base = os.path.dirname(spec.include_paths[0])
    _refuse_suffixes(spec.paths, cuda if with_cuda is None else with_cuda)
    return spec.paths, spec.include_paths, base, cuda


def _of_directory(spec: Spec, can_build_cuda: bool) -> Found:
    """All sources of a directory, and those beside the headers that they include from ``around``.

    Our own are compiled without ``.cu`` files where CUDA cannot be built. Sources in a folder
    ``variants`` are not compiled here, nor sources that another one includes.
    """
    directory = os.path.realpath(spec.paths[0]) if spec.ours else spec.paths[0]
    top = os.path.realpath(spec.around) if spec.around else directory
    cut = len(os.path.join(top, ""))
    names = {os.path.join(folder, name)[cut:] for folder, found in _walk(top) for name in found}
    start = os.path.join(os.path.relpath(directory, top), "").removeprefix("./")
    inside = [name for name in names if name.startswith(start)]
    has_cuda = any(name.endswith(CUDA_SUFFIXES) for name in inside)
    wanted = can_build_cuda if spec.ours and spec.with_cuda is None else spec.with_cuda is not False
    suffixes = SOURCE_SUFFIXES if wanted else CXX_SUFFIXES
    later = f"/{VARIANTS}/"
    first = (n for n in inside if n.endswith(suffixes) and later not in f"/{n[len(start) :]}")
    compiled, included = {*first}, set[str]()
    beside = suffixes if spec.around else ()
    waiting = [*compiled]
    while waiting:
        for name in included_from(top, waiting.pop(), names) - included:
            included.add(name)
            stem = os.path.splitext(name)[0]
            more = {stem + suffix for suffix in beside} & names - compiled
            compiled |= more
            waiting += {name, *more}
    paths = (os.path.join(top, name) for name in sorted(compiled - included))
    return tuple(paths), (top, *spec.include_paths), os.path.dirname(top), has_cuda


def included_from(top: str, name: str, names: Collection[str]) -> set[str]:
    """The files below a directory that one of its files includes."""
    path = os.path.join(top, name)
    try:
        content = files.text(path)
    except OSError:  # the compiler will report it
        return set()
    folder, found = name[: name.rfind("/") + 1], set()
    for included in content.includes:
        if included in content.in_doubt and included.endswith(SOURCE_SUFFIXES):
            from . import texts  # most imports do not need it

            text = texts.without_comments(texts.read(path))
            if not re.search(rf'#[^\n]*[<"]{re.escape(included)}[>"]', text):
                continue
        near = os.path.normpath(folder + included) if "./" in included else folder + included
        found.add(near if near in names else included)
    return found.intersection(names) - {name}


def folders_below(directory: str | Path) -> list[str]:
    """A directory and all in it, except hidden ones."""
    return [folder for folder, _ in _walk(directory)]


def _walk(directory: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder of a directory with its files, except hidden ones and folders of builds."""
    for folder, folders, names in os.walk(directory):
        if "lltm_jit" in folders and os.path.isdir(f"{folder}/lltm_jit/locks"):
            folders.remove("lltm_jit")
        folders[:] = sorted(name for name in folders if name[0] != ".")
        yield folder, [name for name in names if name[0] != "."]


def refuse_sycl(*given: Any) -> None:
    """Refuse arguments that are for SYCL, if there are any."""
    if any(given):
        raise ToolchainError("SYCL is not supported here; use torch.utils.cpp_extension for it")


def _refuse_suffixes(paths: tuple[str, ...], with_cuda: bool) -> None:
    """Refuse files that no compiler takes for a source; they would only fail in the linker."""
    known = (".cu", ".cuh", *OF_GCC) if with_cuda else OF_GCC
    for path in paths:
        suffix = os.path.splitext(path)[1]
        if suffix not in known:
            if not (suffix or os.path.exists(path)):
                raise SourceMissing(f"error: there is no file and no directory {path}")
            cuda = " without CUDA" if suffix in (".cu", ".cuh") else ""
            usual = ", ".join(SOURCE_SUFFIXES)
            raise BuildError(f"expected sources that end in {usual}, but got {path}{cuda}")
