"""``load`` and ``load_inline`` with the signatures of ``torch.utils.cpp_extension``.

A program changes one import and gets this engine: builds identified by content, cached loads that
start no process, one build for many processes, readable errors, and ``reload``.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from .loading import engine
from .loading.build import BuildInfo
from .loading.reload import load_and_give
from .request.spec import BINDINGS, refuse_sycl, spec
from .store import cache
from .user.errors import ended_after, own_frames_hidden

__all__ = ["build", "load", "load_inline"]

Flags = Sequence[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Texts = str | Sequence[str]

_IMPLICIT_HEADERS = {
    "main.cpp": "#include <torch/extension.h>\n",
    "cuda.cu": "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n",
}


@own_frames_hidden
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
    *,
    narrow: bool = True,
    timeout: float | None = None,
) -> Any:
    """Load an extension from C++ and CUDA sources, and build it first if necessary.

    The arguments are those of :func:`torch.utils.cpp_extension.load`, and also ``narrow`` and
    ``timeout``. After loading, ``import name`` gives the module too, unless another module has that
    name.

    Args:
        name: the name of the extension, and of its Python module.
        sources: a file, a list of files, or a directory, which stands for all sources and headers
            below it (without ``.cu`` files if ``with_cuda`` is false).
        extra_cflags: flags for the C++ compiler. Unless they have another level, such as
            ``["-O3"]``, the sources are compiled with ``-O1``; torch's function passes no level.
        extra_cuda_cflags: flags for nvcc, which also compiles host code with ``-O1``.
        extra_sycl_cflags: not supported.
        extra_ldflags: flags for the linker.
        extra_include_paths: directories to search for headers.
        build_directory: used instead of ``TORCH_EXTENSIONS_DIR`` for this call; the library is also
            found there as ``<name>.so``.
        verbose: print every step and the compilers' commands and output.
        with_cuda: whether to compile for CUDA; by default, if there is a ``.cu`` source.
        with_sycl: not supported.
        is_python_module: whether the extension is a Python module; if not, it is only loaded into
            the process.
        is_standalone: build an executable instead.
        keep_intermediates: no effect; objects are always kept for the next build.
        narrow: compile with only those parts of ``torch/extension.h`` and torch's other large
            headers that the sources use, which takes a third of the time. A source that does not
            compile with them gets the full headers.
        timeout: seconds after which a build is ended, with all its processes. The time spent
            waiting for another process's build counts, too.

    Returns:
        The module. For ``is_python_module=False``, the path of the loaded library; for
        ``is_standalone=True``, the path of the executable.

    Raises:
        BuildError: if the sources do not compile, link or import; the text is the first error.
        BuildTimeout: if the build takes longer than ``timeout``.
        ToolchainError: if a required compiler is missing, or SYCL is requested.
        CacheError: if the directory for builds cannot be used.
        FileNotFoundError: if there is no such source.
        TypeError: if a string is given instead of a list.

    Example:
        Load, edit and reload::

            mine = lltm_jit.load("mine", ["mine.cpp", "mine_cuda.cu"], extra_cflags=["-O3"])
            lltm_jit.reload(mine)
    """
    refuse_sycl(extra_sycl_cflags, with_sycl)
    lists = (extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    kind = (with_cuda, is_python_module, is_standalone)
    made = spec(name, sources, *lists, build_directory, *kind, narrow=narrow)
    return load_and_give(made, verbose, timeout)


@own_frames_hidden
def load_inline(
    name: str,
    cpp_sources: Texts,
    cuda_sources: Texts | None = None,
    sycl_sources: Texts | None = None,
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
    *,
    narrow: bool = True,
    timeout: float | None = None,
) -> Any:
    """Load an extension from sources given as strings.

    The arguments are those of :func:`torch.utils.cpp_extension.load_inline`. Errors name the string
    and the line in it, such as ``cuda_sources[0]:12``.

    Args:
        name: the name of the extension, and of its Python module.
        cpp_sources: a string or strings of C++.
        cuda_sources: a string or strings of CUDA.
        sycl_sources: not supported.
        functions: the functions to bind: a name, a list of names, or a dictionary of names and
            docstrings. ``"ns::f"`` is bound under this name, as in torch, and as ``f``.
        with_pytorch_error_handling: translate C++ exceptions as torch does.
        use_pch: no effect; narrow headers are quicker.
        no_implicit_headers: do not include ``torch/extension.h`` and the CUDA headers.

    The other arguments are those of :func:`load`.

    Returns:
        As :func:`load`.

    Raises:
        ValueError: if ``functions`` is none of the above; otherwise as :func:`load`.

    Example:
        Compile a function and call it::

            text = "double cube(double x) { return x * x * x; }"
            cubes = lltm_jit.load_inline("cubes", text, functions="cube")
            cubes.cube(3.0)  # 27.0
    """
    refuse_sycl(sycl_sources, extra_sycl_cflags, with_sycl)
    given = (cpp_sources or (), cuda_sources or ())
    cpp, cuda = ([texts] if isinstance(texts, str) else texts for texts in given)
    return load_listings(
        name,
        [(f"cpp_sources[{i}]", text) for i, text in enumerate(cpp)],
        [(f"cuda_sources[{i}]", text) for i, text in enumerate(cuda)],
        functions,
        build_directory=build_directory,
        verbose=verbose,
        with_pytorch_error_handling=with_pytorch_error_handling,
        no_implicit_headers=no_implicit_headers,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths,
        with_cuda=with_cuda,
        is_python_module=is_python_module,
        narrow=narrow,
        timeout=timeout,
    )


def load_listings(
    name: str,
    cpp: list[tuple[str, str]],
    cuda: list[tuple[str, str]],
    functions: Any,
    *,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_pytorch_error_handling: bool = True,
    no_implicit_headers: bool = False,
    timeout: float | None = None,
    **more: Any,
) -> ModuleType | str:
    """``load_inline`` for strings with names, which errors show."""
    if build_directory:  # torch puts the sources there, where they find other files
        beside = f"-iquote{Path(build_directory).absolute()}"
        for kind, flags in (("cflags", [beside]), ("cuda_cflags", ["-Xcompiler", beside])):
            given = more.get(f"extra_{kind}") or ()
            if not isinstance(given, str):  # a string is refused
                more[f"extra_{kind}"] = [*given, *map(shlex.quote, flags)]
    bindings = _bindings(functions, with_pytorch_error_handling)
    bound = [*cpp, (BINDINGS, bindings)] if bindings else cpp
    files = {"main.cpp": bound, **({"cuda.cu": cuda} if cuda else {})}
    texts = []
    for file, listings in files.items():
        head = "" if no_implicit_headers else _IMPLICIT_HEADERS[file]
        pieces = (f'#line 1 "{each}"\n{text}\n' for each, text in listings)
        texts.append((file, head + "".join(pieces)))
    more |= {"texts": tuple(texts), "listings": (*bound, *cuda)}
    made = spec(name, (), build_directory=build_directory, **more)
    return load_and_give(made, verbose, timeout)


def _bindings(functions: Any, with_pytorch_error_handling: bool) -> str:
    """The C++ code of a module of functions; empty if there are none to bind."""
    if functions is None:
        return ""
    if isinstance(functions, str):
        functions = [functions]
    if not isinstance(functions, Mapping):
        names = functions if isinstance(functions, Sequence) else [functions]
        if not all(isinstance(function, str) for function in names):
            raise ValueError(f"expected functions to be names, but got {functions!r}")
        functions = {function: function for function in functions}
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    last = {name: name if "<" in name else name.rpartition("::")[2] for name in functions}
    found = Counter(last.values())
    for function, docstring in functions.items():
        called = function
        if with_pytorch_error_handling:
            called = f"torch::wrap_pybind_function({function})"
        text = json.dumps("" if docstring is None else str(docstring), ensure_ascii=False)
        # torch's name, and the name without namespaces, which Python can write.
        short = [last[function]] if found[last[function]] == 1 else []
        bound = dict.fromkeys([function, *short])
        lines += [f'  m.def("{name}", {called}, {text});' for name in bound]
    return "\n".join([*lines, "}"])


@overload
def build(name: str, sources: Paths, **named: Any) -> BuildInfo: ...
@overload
def build(
    name: Sequence[Mapping[str, Any]],
    *,
    force: bool = False,
    verbose: bool = False,
    timeout: float | None = None,
) -> list[BuildInfo]: ...
@own_frames_hidden
def build(
    name: str | Sequence[Mapping[str, Any]],
    sources: Any = None,
    *,
    force: bool = False,
    verbose: bool = False,
    timeout: float | None = None,
    **arguments: Any,
) -> BuildInfo | list[BuildInfo]:
    """Compile what :func:`load` would load, without importing it.

    Several extensions are built at the same time, with ``MAX_JOBS`` compilers in total.

    Args:
        name: the name of the extension, or a list of dictionaries of arguments to build several.
        sources: as for :func:`load`.
        arguments: further arguments of :func:`load`.
        force: compile every file, even if the build is in the cache.
        verbose: print the compilers' commands and output.
        timeout: seconds after which all these builds are ended.

    Returns:
        A :class:`BuildInfo`, or a list of them for a list.

    Raises:
        BuildError, BuildTimeout, ToolchainError, CacheError, TypeError: as for :func:`load`. What
            the other extensions have compiled by then is kept.

    Example:
        One extension, then two at the same time::

            lltm_jit.build("mine", "kernels/", extra_cflags=["-O2"])
            lltm_jit.build([
                {"name": "one", "sources": "one/"},
                {"name": "two", "sources": "two/"},
            ])
    """
    one = isinstance(name, str)
    asked = [{"name": name, "sources": sources, **arguments}] if isinstance(name, str) else name
    specs = [spec(**each) for each in asked]
    with ended_after(timeout):
        infos = engine.build_all(specs, force=force, verbose=verbose or None)
    for each, info in zip(specs, infos, strict=True):
        if each.root:
            cache.put(info.library, Path(each.root))
    return infos[0] if one else infos
