"""What is asked for: the sources and flags of one extension, as its user gives them."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..store import files
from ..user.errors import BuildError, SourceMissing, ToolchainError
from . import texts

CUDA_SUFFIXES = (".cu",)
CXX_SUFFIXES = (".cpp", ".cc", ".cxx")
SOURCE_SUFFIXES = CXX_SUFFIXES + CUDA_SUFFIXES
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp")
# What g++ and clang++ take for a source.
OF_GCC = (*CXX_SUFFIXES, ".cp", ".CPP", ".c++", ".C", ".c", ".ii", ".i", ".S", ".s", ".mm", ".m")
BINDINGS = "bindings"  # what `#line` calls the code that binds the functions of load_inline
CELL = "the cell"  # the same for that of a notebook, whose number is in the spec
CONSTANTS = "constants.h"  # of a variant, in the folder where it is compiled
VARIANTS = "variants"  # a folder whose sources are compiled one by one, when they are first needed

Pairs = tuple[tuple[str, str], ...]


class Spec(NamedTuple):
    """What is asked for, whatever this machine has; JSON can hold it.

    Args:
        name: the name of the extension.
        paths: absolute paths of sources, or of one directory.
        cflags, cuda_cflags, ldflags, include_paths: what the user adds to ours.
        with_cuda: whether to compile for CUDA; None if a source says so.
        python_module, standalone: whether the product is a Python module, or an executable.
        root: used instead of the usual root of builds; empty for that.
        texts: sources that are given as strings, by the names of the files to write.
        listings: the pieces of these, by the names that ``#line`` gives them.
        cell: what a notebook calls the cell that is one of the pieces.
        narrow: whether sources get narrow headers of torch where these do.
        ours: a part of this package: all checkouts share its builds, and it gets our own flags.
        around: for a directory, the one around it that its includes start from.
        packaged: where a wheel has the library; empty for the folder beside the sources.
        least_architecture: the oldest GPUs that the CUDA sources are written for.
        variant: what a variant of a kernel is called.
        constants: the macros of a variant.
        device_code: whether only the code for the GPU is wanted, without a library around it.
        note: why it is built, for the line that announces the build.
    """

    name: str
    paths: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    with_cuda: bool | None = None
    python_module: bool = True
    standalone: bool = False
    root: str = ""
    texts: Pairs = ()
    listings: Pairs = ()
    cell: str = ""
    narrow: bool = True
    ours: bool = False
    around: str = ""
    packaged: str = ""
    least_architecture: tuple[int, int] = (0, 0)
    variant: str = ""
    constants: Pairs = ()
    device_code: bool = False
    note: str = ""

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

    Raises:
        TypeError: a string is given instead of a list, or the name is none, or the sources are no
            paths.
        ValueError: both a module and an executable are requested.
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
        if given and isinstance(given, (str, os.PathLike)):  # not letter by letter
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


class Sources(NamedTuple):
    """The files of a spec as they are now.

    ``compiled`` are the sources that are compiled; ``beside`` are headers and other files that are
    known to belong to them. ``base`` is the directory that files are named relative to.
    """

    compiled: tuple[str, ...]
    beside: tuple[str, ...]
    include_paths: tuple[str, ...]
    base: str
    has_cuda: bool


def find_sources(spec: Spec, can_build_cuda: bool) -> Sources:
    """The files of a spec as they are now.

    Raises:
        BuildError: a file is none that a compiler takes.
        SourceMissing: there is no such file.
        ToolchainError: a source is for HIP or SYCL.
    """
    if spec.texts:
        names = tuple(name for name, _ in spec.texts)
        cuda = any(name.endswith(CUDA_SUFFIXES) for name in names)
        return Sources(names, (), spec.include_paths, "", cuda)
    if len(spec.paths) == 1 and os.path.isdir(spec.paths[0]):
        return _of_directory(spec, can_build_cuda)
    with_cuda = spec.with_cuda
    cuda = any(path.endswith((".cu", ".cuh")) for path in spec.paths)
    base = os.path.commonpath(map(os.path.dirname, spec.paths)) if spec.paths else "/"
    if spec.ours:  # a variant, named relative to the package's own kernels
        base = os.path.dirname(spec.include_paths[0])
    _refuse_suffixes(spec.paths, cuda if with_cuda is None else with_cuda)
    return Sources(spec.paths, (), spec.include_paths, base, cuda)


def _of_directory(spec: Spec, can_build_cuda: bool) -> Sources:
    """All sources and headers of a directory, and what they include from the one around it.

    Our own are compiled without ``.cu`` files where CUDA cannot be built. Sources in a folder
    ``variants`` are not compiled, but their content matters: a reload after an edit gives a library
    that requests its variants again. A source that another one includes is compiled with it.
    """
    directory = os.path.realpath(spec.paths[0]) if spec.ours else spec.paths[0]
    top = os.path.realpath(spec.around) if spec.around else directory
    start = os.path.join(os.path.relpath(directory, top), "").removeprefix("./")
    everything = set(names_below(top, start))
    _refuse_other_systems(name for name in everything if name.endswith((".hip", ".sycl")))
    has_cuda = any(name.endswith(CUDA_SUFFIXES) for name in everything)
    wanted = can_build_cuda if spec.ours and spec.with_cuda is None else spec.with_cuda is not False
    suffixes = SOURCE_SUFFIXES if wanted else CXX_SUFFIXES
    names = everything
    if spec.around:
        # Reading what only CUDA needs would take half of the time.
        unused = () if wanted else (*CUDA_SUFFIXES, ".cuh")
        names = {name for name in everything if not name.endswith(unused)}
        names = _included(names, top, {start: everything}, suffixes)
    compiled, beside = _divide(sorted(names), top, start)
    kept = tuple(path for path in compiled if path.endswith(suffixes))
    return Sources(kept, beside, (top, *spec.include_paths), os.path.dirname(top), has_cuda)


def _divide(names: list[str], top: str, start: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the files below a directory, those that are compiled, and the others that matter."""
    at = os.path.join(top, "")
    sources = [name for name in names if name.endswith(SOURCE_SUFFIXES)]
    later = set()
    for name in sources:
        folder = name[: name.rfind("/") + 1]
        if f"/{folder}".endswith(f"/{VARIANTS}/") and folder != start:
            later.add(name)
        with suppress(OSError):  # which the compiler will tell
            content = files.text(at + name)
            for included in content.includes:
                if included.endswith(SOURCE_SUFFIXES) and (
                    included not in content.in_doubt or _includes(at + name, included)
                ):
                    places = (folder + included, included)
                    later |= {posixpath.normpath(place) for place in places} - {name}
    others = (name for name in names if name.endswith(HEADER_SUFFIXES) or name in later)
    return (
        tuple(at + name for name in sources if name not in later),
        tuple(at + name for name in others),
    )


def _includes(path: str, name: str) -> bool:
    """Whether a source includes a name outside its comments."""
    (text,) = texts.read([path]) or ("",)
    return re.search(rf'#[^\n]*[<"]{re.escape(name)}[>"]', texts.without_comments(text)) is not None


def _included(
    names: set[str], top: str, known: dict[str, set[str]], beside: tuple[str, ...]
) -> set[str]:
    """Files of these names below a directory, and what they include from there.

    An included header brings the sources beside it: those of its name, with one of the suffixes.
    This selects sources; the compiler reports what they are made from. ``known`` are the files
    below folders, which this adds to.
    """
    found = set(names)
    waiting = [name for name in names if name.endswith(SOURCE_SUFFIXES + HEADER_SUFFIXES)]
    start = os.path.join(top, "")

    def is_there(name: str) -> bool:
        folder = name[: name.find("/") + 1]
        if folder not in known:
            outside = folder.startswith((".", "/"))
            known[folder] = set() if outside else set(names_below(top, folder, deep=folder != ""))
        return name in known[folder]

    while waiting:
        name = waiting.pop()
        folder = name[: name.rfind("/") + 1]
        for included in files.text(start + name).includes:
            near = posixpath.normpath(folder + included) if "./" in included else folder + included
            header = near if is_there(near) else included
            if header in found or not is_there(header):
                continue
            stem = posixpath.splitext(header)[0]
            more = {header, *filter(is_there, (stem + suffix for suffix in beside))}
            waiting += more - found
            found |= more
    return found


def folders_below(directory: str | Path) -> list[str]:
    """A directory and all in it, except hidden ones."""
    found = []
    for folder, folders, _ in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.append(folder)
    return found


def names_below(directory: str, start: str = "", deep: bool = True) -> list[str]:
    """The names of files below a directory that begin with a folder's, except hidden ones.

    Links to folders are not followed, and neither are folders of builds.
    """
    found = []
    waiting = [start]
    while waiting:
        start = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(directory, start)) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    builds = entry.name == "lltm_jit" and os.path.isdir(f"{entry.path}/locks")
                    waiting += [f"{start}{entry.name}/"] if deep and not builds else []
                elif entry.is_file():
                    found.append(start + entry.name)
    return found


def refuse_sycl(*given: Any) -> None:
    """Refuse arguments that are for SYCL or HIP, if there are any."""
    _refuse_other_systems(filter(None, given))


def _refuse_other_systems(given: Iterable[Any]) -> None:
    if any(True for _ in given):
        raise ToolchainError(
            "HIP and SYCL are not supported here; use torch.utils.cpp_extension for them"
        )


def _refuse_suffixes(paths: tuple[str, ...], with_cuda: bool) -> None:
    """Refuse files that no compiler takes for a source; they would only fail in the linker."""
    known = (".cu", ".cuh", *OF_GCC) if with_cuda else OF_GCC
    _refuse_other_systems(path for path in paths if path.endswith((".hip", ".sycl")))
    for path in paths:
        suffix = os.path.splitext(path)[1]
        if suffix not in known:
            if not (suffix or os.path.exists(path)):
                raise SourceMissing(f"error: there is no file and no directory {path}")
            cuda = " without CUDA" if suffix in (".cu", ".cuh") else ""
            usual = ", ".join(SOURCE_SUFFIXES)
            raise BuildError(f"expected sources that end in {usual}, but got {path}{cuda}")
