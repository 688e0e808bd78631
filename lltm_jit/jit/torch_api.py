"""``load`` and ``load_inline`` with the signatures of ``torch.utils.cpp_extension``.

A program changes one import line and gets this engine: a key made of contents, cached loads
without a process, one build for many processes, errors in words, and ``reload``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

from . import cache, inline, publish, reload
from .background import build_all, stand_back
from .engine import BuildInfo
from .errors import BuildError, ToolchainError
from .extension import Extension
from .spec import (
    BINDINGS,
    CUDA_SUFFIXES,
    CXX_SUFFIXES,
    BuildSpec,
    common_cflags,
    common_cuda_cflags,
    default_ldflags,
    divide,
    files_below,
)
from .toolchain import Toolchain, cuda_cure

Flags = Sequence[str] | None
# What g++ and clang++ take for a source.
_GCC = (*CXX_SUFFIXES, ".cp", ".CPP", ".c++", ".C", ".c", ".ii", ".i", ".S", ".s", ".mm", ".m")


def load(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_sycl_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Load an extension from C++ and CUDA sources, and build it first where needed.

    The arguments are those of :func:`torch.utils.cpp_extension.load`, with these differences:
    ``sources`` may be a directory, which gives all sources and headers below it (with
    ``with_cuda=False`` without ``.cu``); ``build_directory`` takes the place of
    TORCH_EXTENSIONS_DIR for this call, and gets a link to what is built; afterwards ``import name``
    gives the module, too, unless the name is another's; a source that begins with
    ``torch/extension.h`` is compiled with a precompiled header from its second build on;
    ``keep_intermediates`` has no effect, since objects are kept for the next build.

    Returns:
        The module; for ``is_python_module=False`` the path of the library, now loaded; for
        ``is_standalone=True`` the path of the executable.

    Raises:
        BuildError: the sources do not compile, link or import; the text is the first error.
        ToolchainError: a compiler that is needed is missing, or SYCL is asked for.
        CacheError: the directory for builds cannot be used.
        TypeError: a string is given for a list.
    """
    _refuse_sycl(extra_sycl_cflags, with_sycl)
    return _load(
        extension(
            name,
            sources,
            extra_cflags=extra_cflags,
            extra_cuda_cflags=extra_cuda_cflags,
            extra_ldflags=extra_ldflags,
            extra_include_paths=extra_include_paths,
            build_directory=build_directory,
            with_cuda=with_cuda,
            is_python_module=is_python_module,
            is_standalone=is_standalone,
        ),
        verbose,
        is_standalone,
    )


@overload
def build(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    force: bool = False,
    verbose: bool = False,
    **arguments: Any,
) -> BuildInfo: ...
@overload
def build(
    name: Sequence[Mapping[str, Any]], *, force: bool = False, verbose: bool = False
) -> list[BuildInfo]: ...
def build(
    name: str | Sequence[Mapping[str, Any]],
    sources: Any = None,
    *,
    force: bool = False,
    verbose: bool = False,
    **arguments: Any,
) -> BuildInfo | list[BuildInfo]:
    """Compile what :func:`load` would load, without importing it.

    ``build("mine", "kernels/", extra_cflags=["-O2"])`` builds one extension,
    ``build([{"name": "one", "sources": "one/"}, {"name": "two", "sources": "two/"}])`` several at
    the same time, with ``MAX_JOBS`` compilers among them.

    Args:
        name, sources, arguments: those of :func:`load` that say what is built; for several
            extensions, a list of them.
        force: compile every file, also when the cache holds the build.
        verbose: show the compilers' own lines.

    Returns:
        Where the build lies, why it was made and in how long; a list of that for a list.

    Raises:
        BuildError, ToolchainError, CacheError, TypeError: as :func:`load`. What the other
            extensions have compiled by then is kept.
    """
    one = isinstance(name, str)
    asked = [{"name": name, "sources": sources, **arguments}] if isinstance(name, str) else name
    extensions = [extension(**each) for each in asked]
    stand_back()
    infos = build_all(extensions, force=force, verbose=verbose or None)
    return infos[0] if one else infos


def extension(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    texts: Mapping[str, str] | None = None,
    listings: Sequence[tuple[str, str]] = (),
    use_pch: bool = False,
) -> Extension:
    """What :func:`load` loads; the arguments are its own.

    ``texts`` are sources that are written to their path, and ``listings`` the pieces of them, by
    the names that errors call them.

    Raises:
        TypeError: a string is given for a list.
        ValueError: a module is asked for, and a program.
    """
    _refuse_both(is_python_module, is_standalone)
    files = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    return _extension(
        name,
        build_directory,
        paths=absolute(files),
        **_options(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths),
        with_cuda=with_cuda,
        python_module=is_python_module,
        standalone=is_standalone,
        texts=dict(texts or {}),
        listings=[list(listing) for listing in listings],
        with_header=use_pch,
    )


def recorded(record: cache.Record) -> Extension:
    """The extension that a build in the cache was made of."""
    return _extension(record.fingerprint["name"], None, **record.asked)


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_sycl_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """Load an extension from sources given as strings.

    The arguments are those of :func:`torch.utils.cpp_extension.load_inline`; ``keep_intermediates``
    has no effect, and ``use_pch`` makes the first build wait for the precompiled header, which
    later builds use anyway. Errors name the string and its own line, as in
    ``cuda_sources[0]:12``.

    Returns:
        As :func:`load`.

    Raises:
        BuildError, ToolchainError, CacheError, TypeError: as :func:`load`.
        ValueError: ``functions`` is neither a name, nor names, nor a mapping to docstrings.
    """
    _refuse_sycl(sycl_sources, extra_sycl_cflags, with_sycl)
    cpp = [(f"cpp_sources[{i}]", text) for i, text in enumerate(inline.strings(cpp_sources))]
    cuda = [(f"cuda_sources[{i}]", text) for i, text in enumerate(inline.strings(cuda_sources))]
    return load_listings(
        name,
        cpp,
        cuda,
        functions,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths,
        build_directory=build_directory,
        verbose=verbose,
        with_cuda=with_cuda,
        is_python_module=is_python_module,
        with_pytorch_error_handling=with_pytorch_error_handling,
        no_implicit_headers=no_implicit_headers,
        use_pch=use_pch,
    )


def load_listings(
    name: str,
    cpp: list[tuple[str, str]],
    cuda: list[tuple[str, str]],
    functions: Any,
    *,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    no_implicit_headers: bool = False,
    **arguments: Any,
) -> Any:
    """``load_inline`` for strings that have names, by which errors call them."""
    with cache.at_root(build_directory):
        directory = cache.builds_directory() / "inline" / name
    bindings = inline.bindings(functions, with_pytorch_error_handling)
    bound = [*cpp, (BINDINGS, bindings)] if bindings else cpp
    files = {"main.cpp": bound, **({"cuda.cu": cuda} if cuda else {})}
    texts = {
        str(directory / file): inline.unit(file, listings, no_implicit_headers)
        for file, listings in files.items()
    }
    if is_python_module and functions is None and not inline.may_define_a_module([*cpp, *cuda]):
        raise BuildError(
            f"error: the sources of {name} define no Python module\n"
            "   = name the functions to bind in functions=[...], or write "
            "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), or give is_python_module=False"
        )

    made = extension(
        name,
        list(texts),
        build_directory=build_directory,
        is_python_module=is_python_module,
        texts=texts,
        listings=[*bound, *cuda],
        **arguments,
    )
    return _load(made, verbose)


def _load(extension: Extension, verbose: bool, standalone: bool = False) -> Any:
    stand_back()
    build = extension.load(verbose or None)
    library = build.info.library
    place = publish.link(library, extension.root) if extension.root else library
    module = reload.give(build, extension)
    if build.content["python_module"]:
        return module
    # A library goes by its own path: the loader would take the link's for the one it first led to.
    return str(place if standalone else library)


def _extension(name: str, root: str | os.PathLike[str] | None, **asked: Any) -> Extension:
    """An extension of these arguments of :func:`_spec`, which a record can hold."""
    place = Path(root).absolute() if root else None
    return Extension(name, partial(_respec, name, asked), place)


def _respec(name: str, asked: dict[str, Any], toolchain: Toolchain) -> BuildSpec:
    made = dict(asked)
    made["paths"] = [Path(path) for path in asked["paths"]]
    made["include_paths"] = tuple(Path(path) for path in asked["include_paths"])
    made["texts"] = tuple((Path(path), text) for path, text in asked["texts"].items())
    made["listings"] = tuple((label, text) for label, text in asked["listings"])
    return _spec(name, toolchain=toolchain, asked=asked, **made)


def _spec(
    name: str,
    paths: list[Path],
    toolchain: Toolchain,
    *,
    cflags: list[str],
    cuda_cflags: list[str],
    ldflags: list[str],
    include_paths: tuple[Path, ...],
    with_cuda: bool | None,
    texts: tuple[tuple[Path, str], ...] = (),
    **rest: Any,
) -> BuildSpec:
    headers: tuple[Path, ...] = ()
    base = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path("/")
    if len(paths) == 1 and paths[0].is_dir():
        base = paths[0].parent
        sources, headers = divide(files_below(paths[0]), paths[0])
        include_paths = (paths[0], *include_paths)
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
        include_paths=include_paths,
        cflags=(*common_cflags(toolchain), *cflags),
        cuda_cflags=(*common_cuda_cflags(), *cuda_cflags) if with_cuda else (),
        ldflags=(*default_ldflags(toolchain), *ldflags),
        with_cuda=with_cuda,
        architectures=toolchain.architectures if with_cuda else (),
        base=base,
        texts=texts,
        **rest,
    )


def _options(
    cflags: Any, cuda_cflags: Any, ldflags: Any, include_paths: Any
) -> dict[str, list[str]]:
    """The caller's lists as they are now: they, and the current directory, may change later."""
    lists = {"cflags": cflags, "cuda_cflags": cuda_cflags, "ldflags": ldflags}
    for name, given in {**lists, "include_paths": include_paths}.items():
        if isinstance(given, (str, os.PathLike)):  # whose letters would be taken one by one
            raise TypeError(f"expected extra_{name} to be a list, but got {given!r}")
    # torch strips them too.
    paths = absolute(os.fspath(path).strip() for path in include_paths or ())
    return {**{name: list(given or ()) for name, given in lists.items()}, "include_paths": paths}


def absolute(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Paths as they are in the current directory, which may change later."""
    return [str(Path(path).absolute()) for path in paths]


def _refuse_sycl(*arguments: Any) -> None:
    if any(arguments):
        raise ToolchainError(
            "HIP and SYCL are not supported here; use torch.utils.cpp_extension for them"
        )


def _refuse_suffixes(sources: list[Path], with_cuda: bool) -> None:
    """What no compiler takes for a source would be given to the linker, and missed in the end."""
    known = (".cu", ".cuh", *_GCC) if with_cuda else _GCC
    for path in sources:
        if path.suffix in (".hip", ".sycl"):
            _refuse_sycl(path)
        if path.suffix not in known:
            cuda = " without CUDA" if path.suffix in (".cu", ".cuh") else ""
            usual = ", ".join((*CXX_SUFFIXES, *CUDA_SUFFIXES))
            raise BuildError(f"expected sources that end in {usual}, but got {path}{cuda}")


def _refuse_both(is_python_module: bool, is_standalone: bool) -> None:
    if is_python_module and is_standalone:
        raise ValueError("is_python_module and is_standalone exclude each other")
