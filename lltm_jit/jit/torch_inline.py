"""``load_inline`` with the signature of ``torch.utils.cpp_extension.load_inline``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from .loading.reload import load_and_give
from .request import inline
from .request.spec import BINDINGS, refuse_sycl, spec
from .user.errors import BuildError, own_frames_hidden

Flags = Sequence[str] | None

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OfLoad(TypedDict, total=False):
    """The arguments of ``load`` that type checkers are told about."""

    extra_cflags: Flags
    extra_cuda_cflags: Flags
    extra_ldflags: Flags
    extra_include_paths: Sequence[str | os.PathLike[str]] | None
    build_directory: str | os.PathLike[str] | None
    with_cuda: bool | None
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


@overload
def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    *,
    is_python_module: Literal[True] = True,
    **named: Unpack[OfInline],
) -> ModuleType: ...
@overload
def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    *,
    is_python_module: Literal[False],
    **named: Unpack[OfInline],
) -> str: ...
@own_frames_hidden
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

    The arguments are those of :func:`torch.utils.cpp_extension.load_inline`. Errors name the string
    and the line in it, such as ``cuda_sources[0]:12``.

    Args:
        name: the name of the extension, and of its Python module.
        cpp_sources: a string or strings of C++.
        cuda_sources: a string or strings of CUDA.
        sycl_sources: not supported.
        functions: the functions to bind: a name, a list of names, or a dictionary of names and
            docstrings. ``"ns::f"`` is bound under this name, as torch does it, and as ``f``.
        with_pytorch_error_handling: translate C++ exceptions as torch does.
        use_pch: make the first build wait for the precompiled header; later builds use it anyway.
        no_implicit_headers: do not include ``torch/extension.h`` and the CUDA headers.

    The other arguments are those of :func:`load`.

    Returns:
        As :func:`load`.

    Raises:
        BuildError, ToolchainError, CacheError, TypeError: as for :func:`load`.
        ValueError: if ``functions`` is none of the above.

    Example:
        Compile a function and call it::

            text = "double cube(double x) { return x * x * x; }"
            cubes = lltm_jit.load_inline("cubes", text, functions="cube")
            cubes.cube(3.0)  # 27.0
    """
    refuse_sycl(sycl_sources, extra_sycl_cflags, with_sycl)
    cpp = [(f"cpp_sources[{i}]", text) for i, text in enumerate(inline.strings(cpp_sources))]
    cuda = [(f"cuda_sources[{i}]", text) for i, text in enumerate(inline.strings(cuda_sources))]
    how = (build_directory, verbose, is_python_module, with_pytorch_error_handling)
    lists: dict[str, Any] = {"extra_cflags": extra_cflags, "extra_cuda_cflags": extra_cuda_cflags}
    lists |= {"extra_ldflags": extra_ldflags, "extra_include_paths": extra_include_paths}
    more: dict[str, Any] = {**lists, "with_cuda": with_cuda, "wait_for_header": use_pch}
    return load_listings(name, cpp, cuda, functions, *how, no_implicit_headers, **more)


def load_listings(
    name: str,
    cpp: list[tuple[str, str]],
    cuda: list[tuple[str, str]],
    functions: Any,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    no_implicit_headers: bool = False,
    **arguments: Any,
) -> ModuleType | str:
    """``load_inline`` for strings that have names, by which errors call them."""
    if build_directory:  # where torch puts the sources, so that they find what lies there
        beside = f"-iquote{Path(build_directory).absolute()}"
        for kind, flags in (("cflags", [beside]), ("cuda_cflags", ["-Xcompiler", beside])):
            given = arguments.get(f"extra_{kind}") or ()
            if not isinstance(given, str):  # which is refused
                arguments[f"extra_{kind}"] = [*given, *map(shlex.quote, flags)]
    sources = [text for _, text in (*cpp, *cuda)]
    bindings = inline.bindings(functions, with_pytorch_error_handling)
    bound = [*cpp, (BINDINGS, bindings)] if bindings else cpp
    files = {"main.cpp": bound, **({"cuda.cu": cuda} if cuda else {})}
    texts = tuple(
        (file, inline.unit(file, listings, no_implicit_headers)) for file, listings in files.items()
    )
    if is_python_module and functions is None and not re.search(inline.DEFINES, "\n".join(sources)):
        raise BuildError(
            f"error: the sources of {name} define no Python module\n"
            "   = name the functions to bind in functions=[...], or write "
            "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), or pass is_python_module=False"
        )
    made = spec(
        name,
        (),
        build_directory=build_directory,
        is_python_module=is_python_module,
        texts=texts,
        listings=(*bound, *cuda),
        **arguments,
    )
    return load_and_give(made, verbose)
