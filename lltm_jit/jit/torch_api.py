"""``load`` and ``load_inline`` with the signatures of ``torch.utils.cpp_extension``.

A program changes one import line and gets this engine: a key made of contents, cached loads
without a process, one build for many processes, errors in words, and ``reload``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import cache, engine, inline, publish, reload
from .background import stand_back
from .errors import BuildError, ToolchainError
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
from .toolchain import Toolchain, cuda_cure, detect

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
    ``with_cuda=False`` without ``.cu``); C++ is compiled with ``-O3`` unless ``extra_cflags`` says
    otherwise; ``build_directory`` takes the place of TORCH_EXTENSIONS_DIR for this call, and gets
    a link to what is built; afterwards ``import name`` gives the module, too, unless the name is
    another's;
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
    _refuse_both(is_python_module, is_standalone)
    files = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    paths = [Path(file).absolute() for file in files]  # the current directory may change later
    options = _options(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)

    def respec(toolchain: Toolchain) -> BuildSpec:
        return _spec(
            name,
            paths,
            toolchain,
            **options,
            with_cuda=with_cuda,
            python_module=is_python_module,
            standalone=is_standalone,
        )

    return _load(respec, build_directory, verbose)


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
    and ``use_pch`` have no effect. Errors name the string and its own line, as in
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
    )


def load_listings(
    name: str,
    cpp: list[tuple[str, str]],
    cuda: list[tuple[str, str]],
    functions: Any,
    *,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    no_implicit_headers: bool = False,
) -> Any:
    """``load_inline`` for strings that have names, by which errors call them."""
    with cache.at_root(build_directory):
        directory = cache.builds_directory() / "inline" / name
    bindings = inline.bindings(functions, with_pytorch_error_handling)
    bound = [*cpp, (BINDINGS, bindings)] if bindings else cpp
    texts = [(directory / "main.cpp", inline.unit("main.cpp", bound, no_implicit_headers))]
    if cuda:
        texts.append((directory / "cuda.cu", inline.unit("cuda.cu", cuda, no_implicit_headers)))
    options = _options(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    if is_python_module and functions is None and not inline.may_define_a_module([*cpp, *cuda]):
        raise BuildError(
            f"error: the sources of {name} define no Python module\n"
            "   = name the functions to bind in functions=[...], or write "
            "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), or give is_python_module=False"
        )

    def respec(toolchain: Toolchain) -> BuildSpec:
        return _spec(
            name,
            [path for path, _ in texts],
            toolchain,
            **options,
            with_cuda=with_cuda,
            python_module=is_python_module,
            texts=tuple(texts),
            listings=(*bound, *cuda),
        )

    return _load(respec, build_directory, verbose)


def _load(respec: reload.Respec, build_directory: Any, verbose: bool) -> Any:
    stand_back()
    root = Path(build_directory).absolute() if build_directory else None
    with cache.at_root(root):
        toolchain = detect()
        spec = respec(toolchain)
        build = engine.load(spec, toolchain, verbose=verbose or None)
        library = build.info.library
        place = publish.link(library, root) if root else library
    if spec.python_module:
        reload.remember(build, respec, root)
        return build.module
    # A library goes by its own path: the loader would take the link's for the one it first led to.
    return str(place if spec.standalone else library)


def _spec(
    name: str,
    paths: list[Path],
    toolchain: Toolchain,
    *,
    cflags: tuple[str, ...],
    cuda_cflags: tuple[str, ...],
    ldflags: tuple[str, ...],
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
) -> dict[str, tuple[Any, ...]]:
    """The caller's lists as they are now: they, and the current directory, may change later."""
    lists = {"cflags": cflags, "cuda_cflags": cuda_cflags, "ldflags": ldflags}
    for name, given in {**lists, "include_paths": include_paths}.items():
        if isinstance(given, (str, os.PathLike)):  # whose letters would be taken one by one
            raise TypeError(f"expected extra_{name} to be a list, but got {given!r}")
    # torch strips them too.
    paths = tuple(Path(os.fspath(path).strip()).absolute() for path in include_paths or ())
    return {**{name: tuple(given or ()) for name, given in lists.items()}, "include_paths": paths}


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
