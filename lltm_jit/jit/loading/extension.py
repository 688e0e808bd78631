"""An extension as it was requested; its spec is made from the sources as they are now."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from ..machine.toolchain import Toolchain, detect
from ..machine.tools import cuda_cure
from ..request.flags import common_cflags, common_cuda_cflags, default_ldflags
from ..request.spec import (
    CUDA_SUFFIXES,
    CXX_SUFFIXES,
    BuildSpec,
    divide,
    files_below,
    folders_below,
)
from ..store import cache
from ..store.cache import Record
from ..user.errors import BuildError, SourceMissing, ToolchainError
from . import engine, wheel_library
from .build_result import Build, BuildInfo

Flags = Sequence[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Flagged(TypedDict, total=False):
    """The arguments of ``load`` that say how to build."""

    extra_cflags: Flags
    extra_cuda_cflags: Flags
    extra_ldflags: Flags
    extra_include_paths: Sequence[str | os.PathLike[str]] | None
    build_directory: str | os.PathLike[str] | None
    with_cuda: bool | None


class OfBuild(Flagged, total=False):
    """Those of ``build``."""

    force: bool
    verbose: bool
    is_python_module: bool
    is_standalone: bool


class OfLoad(Flagged, total=False):
    """Those that only ``load`` and ``load_inline`` have."""

    verbose: bool
    extra_sycl_cflags: Flags
    with_sycl: bool | None
    keep_intermediates: bool


class OfInline(OfLoad, total=False):
    """Those of ``load_inline``."""

    sycl_sources: str | Sequence[str] | None
    functions: str | Sequence[str] | Mapping[str, str] | None
    with_pytorch_error_handling: bool
    no_implicit_headers: bool
    use_pch: bool


# What g++ and clang++ take for a source.
OF_GCC = (*CXX_SUFFIXES, ".cp", ".CPP", ".c++", ".C", ".c", ".ii", ".i", ".S", ".s", ".mm", ".m")


@dataclass(frozen=True)
class Extension:
    """What is loaded, reloaded, watched and built, and what the commands work on.

    Args:
        name: the name of the extension.
        spec: makes the spec from the sources as they are now.
        root: the root of its builds, instead of the usual one.
        packaged: where a library from a wheel may be; by default next to the sources.
    """

    name: str
    spec: Callable[[Toolchain], BuildSpec]
    root: Path | None = None
    packaged: Path | None = None

    def load(self, verbose: bool | None = None, asked: float | None = None) -> Build:
        """The library from a wheel if it is compatible, else the one in the cache, built if needed.

        The arguments are those of :func:`engine.load`.
        """
        with cache.at_root(self.root):
            toolchain = detect(self.name)
            spec = self.spec(toolchain)
            packaged = wheel_library.find(self._place(spec), spec, toolchain)
            return packaged or engine.load(spec, toolchain, verbose=verbose, asked=asked)

    def packaged_info(self, toolchain: Toolchain) -> BuildInfo | None:
        """The library from a wheel that :meth:`load` would load. Loads nothing."""
        from . import prebuilt

        spec = self.spec(toolchain)
        found = prebuilt.matching(self._place(spec), spec, toolchain)
        return found[2] if found else None

    def info(self) -> BuildInfo | None:
        """What :meth:`load` would find; None if it would compile. Loads nothing."""
        with cache.at_root(self.root):
            toolchain = detect(self.name)
            return self.packaged_info(toolchain) or engine.inspect(self.spec(toolchain), toolchain)

    def directories(self) -> list[str]:
        """The directories of the files that it is built from, and all in a directory of sources."""
        with cache.at_root(self.root):
            toolchain = detect(self.name)
            spec = self.spec(toolchain)
            files = engine.known_files(spec, toolchain)
        found = {str(path.parent) for path in files}
        for path in spec.asked.get("paths", ()):
            found.update(folders_below(Path(path)))
        return sorted(found)

    def _place(self, spec: BuildSpec) -> Path:
        return self.packaged or spec.base / cache.WHEEL_FOLDER


def extension(
    name: str,
    sources: Paths,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    *,
    texts: Mapping[str, str] | None = None,
    listings: Sequence[tuple[str, str]] = (),
    use_pch: bool = False,
    cell: str = "",
) -> Extension:
    """What :func:`lltm_jit.load` loads, from the same arguments.

    ``texts`` are sources to be written to their path, and ``listings`` are the pieces of these,
    under the names that errors use. ``cell`` is what a notebook calls the one that is a piece.

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
        lists[kind] = list(given or ())
    lists["include_paths"] = absolute(os.fspath(path).strip() for path in lists["include_paths"])
    # As they are now, for they and the current directory may change later; ready for JSON.
    asked = {
        **lists,
        "paths": absolute(sources),
        "with_cuda": with_cuda,
        "python_module": is_python_module,
        "standalone": is_standalone,
        "texts": dict(texts or {}),
        "listings": [list(listing) for listing in listings],
        "with_header": use_pch,
        "cell": cell,
    }
    root = Path(build_directory).absolute() if build_directory else None
    return Extension(name, partial(_spec, name, asked), root)


def recorded(record: Record, root: Path | None = None) -> Extension:
    """The extension that a build in the cache was made from."""
    name = record.fingerprint["name"]
    return Extension(name, partial(_spec, name, record.asked), root)


def _spec(name: str, asked: dict[str, Any], toolchain: Toolchain) -> BuildSpec:
    paths = [Path(path) for path in asked["paths"]]
    include_paths = [Path(path) for path in asked["include_paths"]]
    with_cuda = asked["with_cuda"]
    headers: tuple[Path, ...] = ()
    base = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path("/")
    if len(paths) == 1 and paths[0].is_dir():
        base = paths[0].parent
        names = files_below(paths[0])
        refuse_sycl([name for name in names if name.endswith((".hip", ".sycl"))])
        sources, headers = divide(names, paths[0])
        include_paths.insert(0, paths[0])
        suffixes = CXX_SUFFIXES if with_cuda is False else CXX_SUFFIXES + CUDA_SUFFIXES
        paths = [file for file in sources if file.suffix in suffixes]
    if with_cuda is None:
        with_cuda = any(path.suffix in (".cu", ".cuh") for path in paths)
    _refuse_suffixes(paths, with_cuda)
    if with_cuda and not toolchain.cuda:
        raise ToolchainError(f"{name} needs CUDA, but {toolchain.cuda_missing}; {cuda_cure()}")
    return BuildSpec(
        name=name,
        sources=tuple(paths),
        headers=headers,
        include_paths=tuple(include_paths),
        cflags=(*common_cflags(toolchain), *asked["cflags"]),
        cuda_cflags=(*common_cuda_cflags(), *asked["cuda_cflags"]) if with_cuda else (),
        ldflags=(*default_ldflags(toolchain), *asked["ldflags"]),
        with_cuda=with_cuda,
        architectures=toolchain.architectures if with_cuda else (),
        base=base,
        python_module=asked["python_module"],
        standalone=asked["standalone"],
        texts=tuple((Path(path), text) for path, text in asked["texts"].items()),
        listings=tuple((label, text) for label, text in asked["listings"]),
        with_header=asked["with_header"],
        asked=asked,
    )


def absolute(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Paths as seen from the current directory, which may change later."""
    return [str(Path(path).absolute()) for path in paths]


def refuse_sycl(*given: Any) -> None:
    """Refuse arguments or sources that are for SYCL or HIP, if there are any."""
    if any(given):
        raise ToolchainError(
            "HIP and SYCL are not supported here; use torch.utils.cpp_extension for them"
        )


def _refuse_suffixes(sources: list[Path], with_cuda: bool) -> None:
    """Refuse files that no compiler takes for a source; they would only fail in the linker."""
    known = (".cu", ".cuh", *OF_GCC) if with_cuda else OF_GCC
    refuse_sycl([path for path in sources if path.suffix in (".hip", ".sycl")])
    for path in sources:
        if path.suffix not in known:
            if not (path.suffix or path.exists()):
                raise SourceMissing(f"error: there is no file and no directory {path}")
            cuda = " without CUDA" if path.suffix in (".cu", ".cuh") else ""
            usual = ", ".join((*CXX_SUFFIXES, *CUDA_SUFFIXES))
            raise BuildError(f"expected sources that end in {usual}, but got {path}{cuda}")
