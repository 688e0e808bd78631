"""``load`` and ``load_inline`` with the signatures of ``torch.utils.cpp_extension``.

A program changes one import line and gets this engine: a key made of contents, cached loads
without a process, one build for many processes, errors in words, and ``reload``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, overload

from . import cache, inline, publish, reload
from .background import build_all, stand_back
from .build import BuildInfo
from .errors import BuildError, ToolchainError
from .extension import SYCL, Extension, Flagged, FlaggedInline, Flags, Paths, extension
from .spec import BINDINGS

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def load(
    name: str,
    sources: Paths,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_sycl_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: Literal[True] = True,
    is_standalone: Literal[False] = False,
    keep_intermediates: bool = True,
) -> ModuleType: ...
@overload
def load(
    name: str,
    sources: Paths,
    *,
    is_python_module: Literal[False],
    is_standalone: bool = False,
    verbose: bool = False,
    **flags: Unpack[Flagged],
) -> str: ...
def load(
    name: str,
    sources: Paths,
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
) -> ModuleType | str:
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
    sources: Paths,
    *,
    force: bool = False,
    verbose: bool = False,
    is_python_module: bool = True,
    is_standalone: bool = False,
    **flags: Unpack[Flagged],
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
    for each, info in zip(extensions, infos, strict=True):
        if each.root:
            publish.link(info.library, each.root)
    return infos[0] if one else infos


@overload
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
    is_python_module: Literal[True] = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> ModuleType: ...
@overload
def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    *,
    is_python_module: Literal[False],
    verbose: bool = False,
    **flags: Unpack[FlaggedInline],
) -> str: ...
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
) -> ModuleType | str:
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
) -> ModuleType | str:
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


def _load(extension: Extension, verbose: bool, standalone: bool = False) -> ModuleType | str:
    stand_back()
    build = extension.load(verbose or None)
    library = build.info.library
    place = publish.link(library, extension.root) if extension.root else library
    module = reload.give(build, extension)
    if build.content["python_module"]:
        return module
    # A library goes by its own path: the loader would take the link's for the one it first led to.
    return str(place if standalone else library)


def _refuse_sycl(*arguments: Any) -> None:
    if any(arguments):
        raise ToolchainError(SYCL)
