"""What to build: a frozen description of one extension."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import hashlib
import os
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..machine.toolchain import Toolchain
from ..store import contents
from ..user.errors import BuildError
from .flags import default_cflags, default_cuda_cflags, default_ldflags

CUDA_SUFFIXES = (".cu",)
CXX_SUFFIXES = (".cpp", ".cc", ".cxx")
_SOURCE_SUFFIXES = CXX_SUFFIXES + CUDA_SUFFIXES
BINDINGS = "bindings"  # what `#line` calls the code that binds the functions of load_inline
CELL = "the cell"  # the same for that of a notebook, whose number is in `asked`
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp")
VARIANTS = "variants"  # a folder whose sources are compiled one by one, when they are first needed
CONSTANTS = "constants.h"  # in a build's own directory, so that all variants share a build file

_NAME = r"[\w.+-]+"


class BuildSpec(NamedTuple):
    """Everything that decides what a build contains, except the tools that make it.

    ``headers`` are files known to belong to the sources, such as those in the same directory; the
    compiler reports which ones matter. ``base`` is the directory that file names are shown and
    compared relative to, so that two checkouts of this package share a build.
    """

    name: str
    sources: tuple[Path, ...]
    headers: tuple[Path, ...] = ()
    include_paths: tuple[Path, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    with_cuda: bool = False
    architectures: tuple[str, ...] = ()
    least_architecture: tuple[int, int] = (0, 0)  # that the CUDA sources are written for
    base: Path = Path("/")
    python_module: bool = True
    standalone: bool = False  # an executable
    device_code: bool = False  # one source's code for the GPU, without a library around it
    note: str = ""  # said in the line that announces a build, such as why it is without CUDA
    texts: tuple[tuple[Path, str], ...] = ()  # sources that are written to their path for a build
    listings: tuple[tuple[str, str], ...] = ()  # what `#line` calls the pieces of texts
    with_header: bool = False  # waits for the precompiled header
    variant: str = ""  # what a variant of a kernel is called when it is built
    constants: tuple[tuple[str, str], ...] = ()  # the macros of a variant
    asked: dict[str, Any] = {}  # noqa: RUF012 - what load was given; nobody changes it

    def check(self) -> None:
        """Refuse what cannot be built."""
        if self.python_module and not self.name.isidentifier():
            raise BuildError(
                f"expected the module's name to be an identifier, but got {self.name!r}"
            )
        if not re.fullmatch(_NAME, self.name) or self.name.startswith("."):
            raise BuildError(
                f"expected the extension's name to be a file name, but got {self.name!r}"
            )
        if not self.sources:
            known = ", ".join((*CXX_SUFFIXES, *CUDA_SUFFIXES))
            raise BuildError(
                f"extension {self.name!r} has no sources; give it files that end in {known}"
            )
        self._check_paths()

    @property
    def product(self) -> str:
        """The file that the build makes."""
        if self.device_code:
            return self.objects[0]
        return self.name + ("" if self.standalone else ".so")

    @property
    def objects(self) -> tuple[str, ...]:
        """The object file of each source: torch's name for it, except where torch cannot name it.

        torch uses only the file's name, and does not escape blanks. Files of the same name in
        different folders are told apart by a digest behind it.
        """
        cuda = (".cu", ".cuh") if self.with_cuda else ()
        kinds = [".cuda.o" if path.suffix in cuda else ".o" for path in self.sources]
        names = [path.stem + kind for path, kind in zip(self.sources, kinds, strict=True)]
        objects = []
        for path, name, kind in zip(self.sources, names, kinds, strict=True):
            fits = re.fullmatch(_NAME, name)
            if not fits or names.count(name) > 1:
                digest = hashlib.sha256(os.fsencode(self.label(path))).hexdigest()[:20]
                name = (f"{path.stem[:100]}." if fits else "") + digest + kind
            objects.append(name)
        return tuple(objects)

    @property
    def in_turn(self) -> list[str]:
        """The objects in the order to compile them: those of most text first.

        So none that takes long is left for the end, when other processors have nothing to do. The
        text is that of the source and of what it includes from the first include path.
        """
        if len(self.sources) == 1:
            return [*self.objects]
        root = self.include_paths[0] if self.include_paths else self.base
        known: dict[str, set[str]] = {}

        def text(source: Path) -> int:
            with suppress(OSError):  # which the compiler will tell
                names = _included({os.path.relpath(source, root)}, root, known, ())
                return sum(contents.of(os.path.join(root, name)).stamp[0] for name in names)
            return 0

        texts = dict(zip(self.objects, map(text, self.sources), strict=True))
        return sorted(texts, key=texts.__getitem__, reverse=True)

    @property
    def places(self) -> list[str]:
        """The paths of the files that torch writes into its build file."""
        return [str(path) for path in (*self.sources, *self.include_paths)]

    @property
    def title(self) -> str:
        """What is built, in the words of messages."""
        if self.variant:
            return f"{self.name.partition('.')[0]} variant {self.variant}"
        return self.name

    @property
    def macros(self) -> str:
        """The macros in front of every source of a variant."""
        return "".join(f"#define {name} {value}\n" for name, value in self.constants)

    def _check_paths(self) -> None:
        """Refuse paths with characters that torch's build file does not escape."""
        for paths, refused in ((self.sources, "$:|\n\r"), (self.include_paths, "$\n\r")):
            for path in paths:
                if found := next((mark for mark in refused if mark in str(path)), ""):
                    inline = path in dict(self.texts)
                    cure = "set TORCH_EXTENSIONS_DIR to" if inline else "move the sources to"
                    raise BuildError(
                        f"a build file cannot contain {path}, because of the {found!r} in it; "
                        f"{cure} a directory without one"
                    )

    def label(self, path: Path) -> str:
        """The file's name as the user sees it and as the key records it."""
        name, start = str(path), os.path.join(self.base, "")
        if not name.startswith(start) or ".." in name:
            return Path(os.path.relpath(name, self.base)).as_posix()
        return name[len(start) :].replace(os.sep, "/")

    @classmethod
    def from_directory(
        cls, name: str, directory: Path, toolchain: Toolchain, root: Path | None = None
    ) -> "BuildSpec":
        """The spec of a whole directory: all its sources and headers.

        ``.cu`` files and ``-DWITH_CUDA`` are left out if the toolchain cannot build for CUDA.
        Sources in a folder ``variants`` are not compiled, but their content matters: a reload after
        an edit gives a library that requests its variants again. A source that another one includes
        is compiled with it, and not by itself.

        What the sources include from ``root``, a directory around theirs, belongs to them, and so
        does a source of the same name next to such a header. Without a root the directory itself is
        the include path.
        """
        directory = directory.resolve()
        include_path = root.resolve() if root else directory
        start = os.path.join(directory.relative_to(include_path).as_posix(), "").removeprefix("./")
        everything = {*_names_below(include_path, start)}
        has_cuda = any(name.endswith(CUDA_SUFFIXES) for name in everything)
        with_cuda = toolchain.cuda and has_cuda
        suffixes = CXX_SUFFIXES + CUDA_SUFFIXES if toolchain.cuda else CXX_SUFFIXES
        names = everything
        if root:
            # Reading what only CUDA needs would take half of the time.
            unused = () if toolchain.cuda else (*CUDA_SUFFIXES, ".cuh")
            names = {name for name in everything if not name.endswith(unused)}
            names = _included(names, include_path, {start: everything}, suffixes)
        sources, headers = divide(sorted(names), include_path, start)
        return cls(
            name=name,
            sources=tuple(path for path in sources if path.suffix in suffixes),
            headers=headers,
            include_paths=(include_path,),
            cflags=default_cflags(toolchain, with_cuda),
            cuda_cflags=default_cuda_cflags() if with_cuda else (),
            ldflags=default_ldflags(toolchain),
            with_cuda=with_cuda,
            architectures=toolchain.architectures if with_cuda else (),
            base=include_path.parent,
            note=f"without CUDA, {toolchain.cuda_missing}" if has_cuda and not with_cuda else "",
        )


def _included(
    names: set[str], root: Path, known: dict[str, set[str]], beside: tuple[str, ...]
) -> set[str]:
    """Files of these names below a root, and what they include from there.

    An included header brings the sources beside it: those of its name, with one of the suffixes.
    This selects sources; the compiler reports what they are made from. ``known`` are the files
    below folders, which this adds to.
    """
    found = set(names)
    waiting = [name for name in names if name.endswith(_SOURCE_SUFFIXES + HEADER_SUFFIXES)]
    start = os.path.join(root, "")

    def is_there(name: str) -> bool:
        top = name[: name.find("/") + 1]
        if top not in known:
            outside = top.startswith((".", "/"))
            known[top] = set() if outside else {*_names_below(root, top, deep=top != "")}
        return name in known[top]

    while waiting:
        name = waiting.pop()
        folder = name[: name.rfind("/") + 1]
        for included in contents.of(start + name).includes:
            near = posixpath.normpath(folder + included) if "./" in included else folder + included
            header = near if is_there(near) else included
            if header in found or not is_there(header):
                continue
            stem = posixpath.splitext(header)[0]
            more = {header, *filter(is_there, (stem + suffix for suffix in beside))}
            waiting += more - found
            found |= more
    return found


def folders_below(directory: Path) -> list[str]:
    """A directory and all in it, except hidden ones."""
    found = []
    for folder, folders, _ in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.append(folder)
    return found


def files_below(directory: Path) -> list[str]:
    """The names of all files below a directory except hidden ones, in the same order everywhere."""
    return sorted(_names_below(directory))


def _names_below(directory: Path, start: str = "", deep: bool = True) -> list[str]:
    """The same of the files whose names begin with a folder's, in any order."""
    found = []
    waiting = [start]
    while waiting:
        start = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(directory, start)) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting += [f"{start}{entry.name}/"] if deep else []
                elif entry.is_file():
                    found.append(start + entry.name)
    return found


def divide(
    names: list[str], root: Path, start: str = ""
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The files of an extension's directory that are compiled, and the others that matter.

    The others are headers, the sources of variants, in folders of that name, and the sources that
    another one includes, to be compiled with it. The names are relative to a root, in which that of
    the directory is ``start``.
    """
    at = os.path.join(root, "")
    sources = [name for name in names if name.endswith(_SOURCE_SUFFIXES)]
    later = set()
    for name in sources:
        folder = name[: name.rfind("/") + 1]
        if f"/{folder}".endswith(f"/{VARIANTS}/") and folder != start:
            later.add(name)
        with suppress(OSError):  # which the compiler will tell
            for included in contents.of(at + name).includes:
                if included.endswith(_SOURCE_SUFFIXES):
                    places = (folder + included, included)
                    later |= {posixpath.normpath(place) for place in places} - {name}
    return (
        tuple(Path(at + name) for name in sources if name not in later),
        tuple(Path(at + name) for name in names if name.endswith(HEADER_SUFFIXES) or name in later),
    )
